"""utilization: trials of uneven length; how close the makespan comes to work divided by slots."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import median

from benchmarks import contenders
from benchmarks.contenders import SLOTS
from benchmarks.measure import Contender, Json, Sample, compare, target
from benchmarks.trainables import sleep

SEED = 20_261_121
SIGMA = 0.5


def run(rounds: int, *, trials: int = 64, median_s: float = 1.0) -> Json:
    """`trials` that sleep; Ray Tune with `reuse_actors=True`, as its default would add 2 s to each."""
    from ray import tune

    durations = draw(trials, median_s)
    ideal_s = sum(durations) / SLOTS
    ours = contenders.raysweep(
        "benchmarks.trainables:sleep", {"seconds": {"grid_search": durations}}, 1, units=trials
    )
    space = {"seconds": tune.grid_search(durations)}
    peer = contenders.tune("tune_reuse", sleep, space, 1, reuse_actors=True, units=trials)
    shown, samples = compare([_over(ours, ideal_s), _over(peer, ideal_s)], rounds, "trial")
    return {
        "what": f"{trials} trials, lognormal, median {median_s:g} s, sigma {SIGMA}, {SLOTS} slots",
        "note": f"makespan / {ideal_s:.2f} s (the work / slots), seed {SEED}; wall has the start of workers",
        **shown,
        "targets": [
            target("makespan / ideal, wall", _median(samples["raysweep"], "wall_over_ideal"), at_most=1.10)
        ],
    }


def draw(trials: int, median_s: float) -> list[float]:
    """The durations: the same in every run."""
    rng = random.Random(SEED)
    return [round(median_s * rng.lognormvariate(0.0, SIGMA), 4) for _ in range(trials)]


def _over(contender: Contender, ideal_s: float) -> Contender:
    def run() -> Sample:
        sample = contender.run()
        extra = {
            "wall_over_ideal": sample.wall_s / ideal_s,
            "warm_over_ideal": (sample.warm_s or 0) / ideal_s,
        }
        return replace(sample, extra=extra)

    return replace(contender, run=run)


def _median(samples: Sequence[Sample], name: str) -> float:
    return median(sample.extra[name] for sample in samples)
