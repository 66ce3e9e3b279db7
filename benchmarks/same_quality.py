"""Time to the same quality under ASHA, on a virtual clock, as a part of what Ray Tune's own ASHA takes.

The functions with a fidelity of `benchmarks.fidelity`, an epoch of which takes a minute. Ours run in
`raysweep.simulate`, with its costs. Ray Tune's `ASHAScheduler`, and its `OptunaSearch` where one learns, are
asked and told as by its controller, without any cost. Random search has the same configs by number in both.

At any time the config counts that is the best of those that ran longest (`longest`), or the best by what it
last reported, however long it ran (`reported`); its quality is its value at the whole fidelity. Wanted is
what Ray Tune has at its end, and the time is the first at which each has something as good; who never has
counts as `NEVER` times as long.
"""

from __future__ import annotations

import heapq
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import count
from statistics import median
from types import SimpleNamespace
from typing import Any, Final

from benchmarks.fidelity import CURVES, EPOCHS
from benchmarks.hunts import sign_test
from benchmarks.measure import Json, significant, target
from raysweep.search import make_searcher
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec

TRIALS: Final = 60
SLOTS: Final = 4
SEEDS: Final = 20
EPOCH_S: Final = 60.0
_HALVING: Final = {"max_t": EPOCHS, "grace_period": 1, "reduction_factor": 3}
_SCHEDULERS: Final[dict[str, Any]] = {
    "asha": {"asha": _HALVING},
    "promotion": {"asha": {**_HALVING, "type": "promotion"}},
    "promotion delayed": {"asha": {**_HALVING, "type": "promotion", "delayed": True}},
    "pasha": {"pasha": _HALVING},
    "pasha delayed": {"pasha": {**_HALVING, "delayed": True}},
}
CONTENDERS: Final[dict[str, tuple[str, Any]]] = {
    f"{search}, {name}": (search, each) for search in ("random", "auto") for name, each in _SCHEDULERS.items()
}
TUNES: Final = ("tune", "tune, optuna")
"""Ray Tune's ASHA with the search that it has by default, which is random, and with `OptunaSearch`."""
NEVER: Final = 100.0
TARGETED: Final = ("random, pasha", "auto, promotion delayed", "auto, pasha", "auto, pasha delayed")
Values = Mapping[str, Any]
Epoch = tuple[float, int, float, float]
"""When it ended, which of its trial it was, what that reported, and the value at the whole fidelity."""
RANKS: Final[dict[str, Callable[[Epoch], tuple[float, ...]]]] = {
    "longest": lambda epoch: (-epoch[1], epoch[2]),
    "reported": lambda epoch: (epoch[2],),
}
"""What is the best so far, by what is to be small."""


@dataclass(slots=True, kw_only=True)
class Track:
    """The epochs of one sweep."""

    problem: str
    epochs: list[Epoch] = field(default_factory=list)

    def note(self, at: float, config: Values, epoch: int) -> float:
        """An epoch of a trial ended; what it reports."""
        value = self.value(config, epoch)
        self.epochs.append((at, epoch, value, self.value(config, EPOCHS)))
        return value

    def value(self, config: Values, epoch: int) -> float:
        """What a trial of this config reports at an epoch."""
        function, _, bounds = CURVES[self.problem]
        return function([config[f"x{index}"] for index in range(len(bounds))], epoch / EPOCHS)

    def found(self, by: str) -> list[tuple[float, float]]:
        """Each time that something was the best so far, and its quality."""
        rank, best, found = RANKS[by], None, []
        for epoch in self.epochs:
            here = rank(epoch)
            if best is None or here < best:
                best = here
                found.append((epoch[0], epoch[3]))
        return found


def run(rounds: int, *, seeds: int = SEEDS, trials: int = TRIALS, slots: int = SLOTS) -> Json:
    """Times by function and contender, as parts of Ray Tune's; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    shown = {problem: compare(problem, seeds, trials, slots) for problem in CURVES}
    return {
        "what": f"{trials} trials of up to {EPOCHS} epochs under ASHA, {slots} slots",
        "seeds": seeds,
        "load": round(os.getloadavg()[0], 1),
        "problems": shown,
        "targets": [
            target(f"{problem}: {name}, time to the same quality, of Ray Tune's", found, at_most=0.5)
            for problem, each in shown.items()
            for name in TARGETED
            for found in [each[name]["tune"]["longest"]["median"]]
        ],
    }


def compare(problem: str, seeds: int, trials: int, slots: int) -> Json:
    """One function: each contender's time to the same quality as a part of each of Ray Tune's."""
    theirs = {name: [_tunes(name, problem, seed, trials, slots) for seed in range(seeds)] for name in TUNES}
    shown: Json = {
        name: {"epochs": median(len(each.epochs) for each in tracks)} for name, tracks in theirs.items()
    }
    for name in CONTENDERS:
        own = [_own(name, problem, seed, trials, slots) for seed in range(seeds)]
        shown[name] = {
            "epochs": median(len(each.epochs) for each in own),
            **{tune: {by: _of(own, tracks, by) for by in RANKS} for tune, tracks in theirs.items()},
        }
    return shown


def _of(own: Sequence[Track], theirs: Sequence[Track], by: str) -> Json:
    ratios = [_ratio(mine.found(by), its.found(by)) for mine, its in zip(own, theirs, strict=True)]
    sooner, later = sum(each < 1 for each in ratios), sum(each > 1 for each in ratios)
    return {
        "median": significant(median(ratios)),
        "sooner": f"{sooner}/{len(ratios)}",
        "in_half": sum(each <= 0.5 for each in ratios),
        "sign_test": float(f"{sign_test(sooner, later):.2g}"),
    }


def _ratio(mine: Sequence[tuple[float, float]], its: Sequence[tuple[float, float]]) -> float:
    wanted = its[-1][1]
    first = next((at for at, quality in mine if quality <= wanted), None)
    return NEVER if first is None else first / next(at for at, quality in its if quality <= wanted)


def _spec(problem: str, seed: int, trials: int, search: str, scheduler: Any = "fifo") -> SweepSpec:
    return SweepSpec(
        name="quality",
        trainable="benchmarks.fidelity:branin",
        param_space={f"x{at}": {"uniform": list(each)} for at, each in enumerate(CURVES[problem][2])},
        metric="loss",
        mode="min",
        num_samples=trials,
        seed=seed,
        search=search,
        scheduler=scheduler,
    )


def _own(name: str, problem: str, seed: int, trials: int, slots: int) -> Track:
    track = Track(problem=problem)

    def curve(config: Values, epoch: int) -> dict[str, Any] | None:
        return {"loss": track.value(config, epoch)} if epoch <= EPOCHS else None

    simulated = simulate(
        _spec(problem, seed, trials, *CONTENDERS[name]),
        curve,
        step_s=EPOCH_S,
        slots=slots,
        save_every=1,
        wait_every=1,
    )
    configs = [trial.config for trial in simulated.outcome.trials]
    for moment in simulated.timeline:
        if moment.what == "reported":
            assert moment.trial is not None
            assert moment.iteration is not None
            track.note(moment.at, configs[moment.trial], moment.iteration)
    return track


def _tunes(name: str, problem: str, seed: int, trials: int, slots: int) -> Track:
    """Ray Tune's own scheduler, asked and told; who is stopped gives its place to the next at once."""
    from ray.tune.schedulers import ASHAScheduler, TrialScheduler

    scheduler = ASHAScheduler(time_attr="training_iteration", metric="loss", mode="min", **_HALVING)
    track, ask, tell = Track(problem=problem), *_search(name, problem, seed, trials)
    due: list[tuple[float, int, Any]] = []
    turns, numbers = count(), iter(range(trials))

    def begin(at: float) -> None:
        if (number := next(numbers, None)) is not None:
            trial = SimpleNamespace(trial_id=f"{number:05d}", number=number, config=ask(number), epoch=0)
            scheduler.on_trial_add(None, trial)
            heapq.heappush(due, (at + EPOCH_S, next(turns), trial))

    for _ in range(slots):
        begin(0.0)
    while due:
        at, _, trial = heapq.heappop(due)
        trial.epoch += 1
        result = {"training_iteration": trial.epoch, "loss": track.note(at, trial.config, trial.epoch)}
        if trial.epoch < EPOCHS and scheduler.on_trial_result(None, trial, result) == TrialScheduler.CONTINUE:
            heapq.heappush(due, (at + EPOCH_S, next(turns), trial))
            continue
        scheduler.on_trial_complete(None, trial, result)
        tell(trial, result)
        begin(at)
    return track


def _search(
    name: str, problem: str, seed: int, trials: int
) -> tuple[Callable[[int], Values], Callable[[Any, Json], None]]:
    if name == "tune":
        drawn = make_searcher(_spec(problem, seed, trials, "random"), seed)
        return lambda number: drawn.ask(number) or {}, lambda trial, result: None
    import optuna
    from ray.tune.search.optuna import OptunaSearch

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    space = {
        f"x{at}": optuna.distributions.FloatDistribution(*each) for at, each in enumerate(CURVES[problem][2])
    }
    search = OptunaSearch(space=space, metric="loss", mode="min", seed=seed)

    def tell(trial: Any, result: Json) -> None:
        search.on_trial_complete(trial.trial_id, result)

    return lambda number: search.suggest(f"{number:05d}") or {}, tell
