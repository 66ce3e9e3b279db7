"""What multi-fidelity methods find for the same epochs: learning curves in closed form, a virtual clock.

Branin, Currin and Hartmann-6 with a fidelity as in Kandasamy et al., "Multi-fidelity Bayesian Optimisation
with Continuous Approximations", ICML 2017: an epoch is one part in 27 of the whole fidelity. `power_laws`:
curves that fall to Hartmann's function at a rate of their own, so that they cross.

Ours run in `raysweep.simulate`, one trial at a time, with a checkpoint at each epoch. Optuna's default
sampler and its pruners drive a study of their own. After so many epochs the config counts that was best among
those that had run longest, with its value at the whole fidelity.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from time import process_time
from typing import Any, Final

from benchmarks.hunts import beside
from benchmarks.measure import Json, significant
from benchmarks.search import PROBLEMS, hartmann6, hartmann6_of
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec

EPOCHS: Final = 27
FULL: Final = 20
"""All epochs together are those of so many trials that run to their end."""
SEEDS: Final = 20
BASE: Final = "random"
_EPOCH_S: Final = 60.0
_HALVING: Final = {"max_t": EPOCHS, "reduction_factor": 3}
_ASHA: Final = {"grace_period": 1, **_HALVING}
CONTENDERS: Final[dict[str, tuple[str, Any]]] = {
    BASE: ("random", "fifo"),
    "asha": ("random", {"asha": _ASHA}),
    "asha, promotion": ("random", {"asha": {**_ASHA, "type": "promotion"}}),
    "pasha": ("random", {"pasha": _ASHA}),
    "hyperband": ("random", {"hyperband": _HALVING}),
    "bohb": ("bohb", {"hyperband": _HALVING}),
    "asha, tpe": ("tpe", {"asha": _ASHA}),
    "asha, auto": ("auto", {"asha": _ASHA}),
    "asha, promotion, auto": ("auto", {"asha": {**_ASHA, "type": "promotion"}}),
    "asha, delayed, auto": ("auto", {"asha": {**_ASHA, "type": "promotion", "delayed": True}}),
}
OPTUNAS: Final = {"optuna, halving": "SuccessiveHalvingPruner", "optuna, hyperband": "HyperbandPruner"}
Values = Sequence[float]
Function = Callable[[Values, float], float]
"""(config, fidelity from 0 to 1) -> what is to be small."""


def branin(x: Values, z: float) -> float:
    """Branin's function at the whole fidelity; below that its bends are elsewhere."""
    b = 5.1 / (4 * math.pi**2) - 0.01 * (1 - z)
    c = 5 / math.pi - 0.1 * (1 - z)
    t = 1 / (8 * math.pi) + 0.05 * (1 - z)
    return (x[1] - b * x[0] ** 2 + c * x[0] - 6) ** 2 + 10 * (1 - t) * math.cos(x[0]) + 10


def currin(x: Values, z: float) -> float:
    """Currin et al., 1991, turned over."""
    above = 2300 * x[0] ** 3 + 1900 * x[0] ** 2 + 2092 * x[0] + 60
    below = 100 * x[0] ** 3 + 500 * x[0] ** 2 + 4 * x[0] + 20
    bent = math.exp(-1 / (2 * x[1])) if x[1] > 0 else 0.0
    return -(1 - (0.9 + 0.1 * z) * bent) * above / below


def hartmann(x: Values, z: float) -> float:
    """Hartmann's function at the whole fidelity; below that its hills are lower, the small ones by more."""
    return hartmann6_of(x, [each - 0.1 * (1 - z) for each in (1.0, 1.2, 3.0, 3.2)])


def power_law(x: Values, z: float) -> float:
    """A curve that falls to Hartmann's function, fast or slowly."""
    rate = 0.3 + 0.7 * (0.5 + 0.5 * math.sin(7 * sum(x)))
    end = hartmann6(x)
    return end + 2.0 * ((EPOCHS * z) ** -rate - EPOCHS**-rate)


CURVES: Final[dict[str, tuple[Function, float, tuple[tuple[float, float], ...]]]] = {
    "branin": (branin, PROBLEMS["branin"][1], PROBLEMS["branin"][2]),
    "currin": (currin, -13.798722044728434, ((0, 1),) * 2),
    "hartmann6": (hartmann, PROBLEMS["hartmann6"][1], PROBLEMS["hartmann6"][2]),
    "power_laws": (power_law, PROBLEMS["hartmann6"][1], PROBLEMS["hartmann6"][2]),
}


@dataclass(kw_only=True)
class Record:
    """Epochs as they were run: how long their trial had run, what it reported, and its value in the end."""

    problem: str
    epochs: list[tuple[int, float, float]] = field(default_factory=list)

    def run(self, config: Mapping[str, Any], epoch: int) -> float:
        """Run one epoch of a trial, and return what it reports."""
        function, _, bounds = CURVES[self.problem]
        x = [config[f"x{index}"] for index in range(len(bounds))]
        value = function(x, epoch / EPOCHS)
        self.epochs.append((epoch, value, function(x, 1.0)))
        return value

    def regret(self, epochs: int) -> float:
        """What the best of those that ran longest is away from the minimum, after so many epochs."""
        _, _, found = min(self.epochs[:epochs], key=lambda epoch: (-epoch[0], epoch[1]))
        return found - CURVES[self.problem][1]


def run(rounds: int, *, seeds: int = SEEDS, full: int = FULL, names: Sequence[str] = ()) -> Json:
    """Regrets by function and contender at the same epochs, beside random search without a scheduler."""
    seeds, names = max(seeds, seeds * rounds // 3), names or (*CONTENDERS, *OPTUNAS)
    return {
        "epochs": EPOCHS * full,
        "seeds": seeds,
        "load": round(os.getloadavg()[0], 1),
        "problems": {problem: compare(problem, seeds, full, names) for problem in CURVES},
    }


def compare(problem: str, seeds: int, full: int, names: Sequence[str]) -> Json:
    """One function: the median regret of each, and at how many seeds it was better than the first."""
    found: dict[str, list[float]] = {}
    shown: Json = {}
    for name in names:
        began = process_time()
        found[name] = [recorded(name, problem, seed, full).regret(EPOCHS * full) for seed in range(seeds)]
        took_s = (process_time() - began) / seeds
        shown[name] = {"regret": significant(median(found[name])), "s": significant(took_s)}
        if name != names[0]:
            shown[name] |= beside(found[name], found[names[0]])
    return shown


def recorded(name: str, problem: str, seed: int, full: int) -> Record:
    """All epochs of a contender, as many as `full` trials take that run to their end."""
    record = Record(problem=problem)
    (_optunas if name in OPTUNAS else _ours)(name, record, seed, EPOCHS * full)
    return record


def _ours(name: str, record: Record, seed: int, epochs: int) -> None:
    search, scheduler = CONTENDERS[name]
    spec = SweepSpec(
        name="fidelity",
        trainable="benchmarks.fidelity:branin",
        param_space={f"x{at}": {"uniform": list(each)} for at, each in enumerate(CURVES[record.problem][2])},
        metric="loss",
        mode="min",
        num_samples=None,
        seed=seed,
        search=search,
        scheduler=scheduler,
        stop={"time_budget_s": 1.2 * epochs * _EPOCH_S},
    )

    def curve(config: Mapping[str, Any], epoch: int) -> dict[str, Any] | None:
        return {"loss": record.run(config, epoch)} if epoch <= EPOCHS else None

    simulate(spec, curve, step_s=_EPOCH_S, slots=1, save_every=1, wait_every=1)
    assert len(record.epochs) >= epochs, f"{name} ran {len(record.epochs)} of {epochs} epochs"


def _optunas(name: str, record: Record, seed: int, epochs: int) -> None:
    import optuna

    optuna.logging.set_verbosity(optuna.logging.ERROR)
    pruner = (
        optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=3)
        if OPTUNAS[name] == "SuccessiveHalvingPruner"
        else optuna.pruners.HyperbandPruner(min_resource=1, max_resource=EPOCHS, reduction_factor=3)
    )
    study = optuna.create_study(
        study_name="fidelity", sampler=optuna.samplers.TPESampler(seed=seed), pruner=pruner
    )
    while len(record.epochs) < epochs:
        trial = study.ask()
        bounds = CURVES[record.problem][2]
        config = {f"x{at}": trial.suggest_float(f"x{at}", *each) for at, each in enumerate(bounds)}
        value, epoch = math.inf, 0
        while epoch < EPOCHS and not (epoch and trial.should_prune()):
            epoch += 1
            value = record.run(config, epoch)
            trial.report(value, epoch)
        if epoch < EPOCHS:
            study.tell(trial, state=optuna.trial.TrialState.PRUNED)
        else:
            study.tell(trial, value)
