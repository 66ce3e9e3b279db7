"""noop, noop-1000, noop-grid, noop-fresh, noop-tune: trials of one number: all the time is overhead."""

from __future__ import annotations

import random
from collections.abc import Sequence
from statistics import median
from typing import Any

from benchmarks import contenders
from benchmarks.measure import Contender, Json, Sample, compare, ratio, target
from benchmarks.trainables import noop

TRAINABLE = "benchmarks.trainables:noop"
SPACE = {"x": {"uniform": [0.0, 1.0]}}
WARM = (
    "wall is the whole call, with the start of the workers; warm is from the first trial's start to the last"
    " one's end. Where a peer runs fewer trials in a round, compare what a trial costs: ratios do."
)


def run_100(rounds: int, *, trials: int = 100, tune_trials: int = 10, with_tune: bool = True) -> Json:
    """`trials` no-op trials; Ray Tune's default, at seconds a trial, runs `tune_trials` a round."""
    peers = [own(trials), pool(trials)]
    if with_tune:
        peers += [tune_default(tune_trials), tune_reuse(trials)]
    shown, _ = compare(peers, rounds, "trial")
    return {"what": f"{trials} trials that return one number, 1 CPU each, 2 slots", "note": WARM, **shown}


def run_1000(rounds: int, *, trials: int = 1000) -> Json:
    """The steady state: both targets are on the warm figure; the wall figures stand beside it."""
    shown, samples = compare([own(trials), pool(trials), tune_reuse(trials)], rounds, "trial")
    ours, bare, tune = samples["raysweep"], samples["actor_pool"], samples["tune_reuse"]
    targets = [
        target("times as fast as Ray Tune reuse_actors=True, warm", ratio(ours, tune, "warm"), at_least=40),
        target("times as fast as a bare ActorPool, warm", ratio(ours, bare, "warm"), at_least=1.0),
        target("part of the event loop's thread at 5,000 trials/s", _loop_part(ours, 5_000), at_most=0.5),
    ]
    what = f"{trials} trials that return one number, default settings, journal on the local disk, 2 slots"
    return {"what": what, "note": WARM, **shown, "targets": targets}


def run_grid(rounds: int, *, points: int = 1000) -> Json:
    """The points of a grid: the whole call, which begins with the check of all values."""
    grid = {"x": {"grid_search": [number / points for number in range(points)]}}
    ours = contenders.raysweep(TRAINABLE, grid, 1, units=points)
    shown, samples = compare([ours, pool(points)], rounds, "trial")
    whole = ratio(samples["raysweep"], samples["actor_pool"], "wall")
    targets = [target("times as fast as a bare ActorPool, the whole call", whole, at_least=1.0)]
    return {"what": f"a grid of {points} points, 2 slots", "note": WARM, **shown, "targets": targets}


def _loop_part(samples: Sequence[Sample], trials_per_s: int) -> float:
    return median(sample.extra["loop_cpu_us"] for sample in samples) * trials_per_s / 1e6


def run_fresh(rounds: int, *, trials: int = 100, tune_trials: int = 10) -> Json:
    """A fresh process a trial. Ray Tune's default starts an actor, so a process, a trial."""
    peers = [own(trials, isolation="process"), tune_default(tune_trials)]
    shown, samples = compare(peers, rounds, "trial")
    ours, tune = samples["raysweep"], samples["tune_default"]
    targets = [
        target("times as fast as Ray Tune's default, wall per trial", ratio(ours, tune, "wall"), at_least=50),
        target("times as fast as Ray Tune's default, warm per trial", ratio(ours, tune, "warm"), at_least=50),
    ]
    note = (
        f"{WARM} Ray Tune runs only {tune_trials} trials a round: its wall cost per trial carries more of its"
        " fixed start, its warm cost leaves out the start of its first two actors; the truth lies between."
    )
    what = f"{trials} trials in a process of their own, 2 slots"
    return {"what": what, "note": note, **shown, "targets": targets}


def run_stand_in(rounds: int, *, trials: int = 1000, tune_trials: int = 100) -> Json:
    """A program that calls Tune, as it is, and in the stand-in; Tune runs `tune_trials` a round."""
    peers = [contenders.stand_in(noop, _space(), trials), tune_reuse(tune_trials)]
    shown, samples = compare(peers, rounds, "trial")
    times = ratio(samples["raysweep"], samples["tune_reuse"], "wall")
    goal = "times as fast as Ray Tune reuse_actors=True, the whole call per trial"
    what = f"{trials} trials of a Tune program that return one number, 2 slots"
    return {"what": what, **shown, "targets": [target(goal, times, at_least=10)]}


def own(trials: int, **fields: Any) -> Contender:
    """raysweep on the no-op."""
    return contenders.raysweep(TRAINABLE, SPACE, trials, **fields)


def pool(trials: int) -> Contender:
    """The ActorPool on as many configs."""
    return contenders.actor_pool(noop, lambda: [{"x": random.random()} for _ in range(trials)])


def tune_default(trials: int) -> Contender:
    """Ray Tune as it comes."""
    return contenders.tune("tune_default", noop, _space(), trials, reuse_actors=False)


def tune_reuse(trials: int) -> Contender:
    """Ray Tune with `reuse_actors=True`, which it does only on request."""
    return contenders.tune("tune_reuse", noop, _space(), trials, reuse_actors=True)


def _space() -> dict[str, Any]:
    from ray import tune

    return {"x": tune.uniform(0.0, 1.0)}
