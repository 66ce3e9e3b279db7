"""A synthetic year of nights, with memory and without: trials to within 1 % of the night's optimum.

What is best moves: slowly all year, with the day of the week, and once, at `JUMP`, to somewhere else. Levels
and scales of the scores move too. Each night is a sweep of its own with another seed; three contenders have
the same nights, seeds and noise:

- `cold`: without memory;
- `told`: `warm_start: 14`, earlier scores told as they are;
- `memory`: `warm_start` with anchors (its defaults).

Search, memory and anchors are raysweep's own (`recall`, `make_searcher`), over stored outcomes; a trial
takes no time, one runs at a time. A year is a seed; figures are over all seeds. A night that never gets
there counts as one trial more than it has.
"""

from __future__ import annotations

import math
import os
import tempfile
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from functools import partial
from random import Random
from statistics import fmean, median, stdev
from typing import Any, Final

from benchmarks.measure import Json, significant, target
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.runs.across_runs.warm_start import recall
from raysweep.runs.folder import SweepFolder
from raysweep.search import make_searcher
from raysweep.specs import SweepSpec, sweep_id
from raysweep.specs.sweep_parts import Memory
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

NIGHTS: Final = 364
JUMP: Final = 200
TRIALS: Final = 30
SEEDS: Final = 10
AFTER: Final = 14
"""How many nights from the jump on are looked at by themselves."""
NOISE: Final = 0.002
"""Of a score, as a part of it: a standard deviation."""
CONTENDERS: Final[dict[str, Any]] = {"cold": None, "told": 14, "memory": {}}
WIDTHS: Final = (1.0, 0.6, 0.3)
"""How much each parameter matters."""


@dataclass(frozen=True, slots=True)
class Night:
    """One night's truth: the best place, its loss, and how steeply losses rise around it."""

    place: tuple[float, ...]
    level: float
    scale: float

    def loss(self, config: dict[str, Any]) -> float:
        """Without noise; `level` at the best place."""
        far = sum(
            w * (config[f"x{i}"] - c) ** 2 for i, (w, c) in enumerate(zip(WIDTHS, self.place, strict=True))
        )
        return float(self.level + self.scale * far)


def year(seed: int, nights: int = NIGHTS, jump: int = JUMP) -> list[Night]:
    """The nights of a year."""
    rng = Random(seed)
    before, after = ([rng.uniform(0.2, 0.8) for _ in WIDTHS] for _ in range(2))
    while math.dist(before, after) < 0.4:
        after = [rng.uniform(0.2, 0.8) for _ in WIDTHS]
    drift = [rng.gauss(0, 1) for _ in WIDTHS]
    drift = [0.15 * d / math.hypot(*drift) for d in drift]
    weekend = [rng.gauss(0, 1) for _ in WIDTHS]
    weekend = [0.08 * w / math.hypot(*weekend) for w in weekend]
    found = []
    for night in range(nights):
        base, year_part = (before if night < jump else after), night / NIGHTS
        is_weekend = night % 7 in (5, 6)
        place = tuple(
            min(max(b + d * math.sin(2 * math.pi * year_part) + w * is_weekend, 0.0), 1.0)
            for b, d, w in zip(base, drift, weekend, strict=True)
        )
        level = 1.0 + 0.2 * math.sin(2 * math.pi * year_part) + 0.1 * is_weekend + 0.3 * (night >= jump)
        found.append(Night(place, level, 1.0 + 0.3 * is_weekend))
    return found


def run_night(store: Store, spec: SweepSpec, key: str, night: Night) -> tuple[int, str]:
    """One sweep, its outcome stored; and after how many trials it was within 1 % of the best."""
    warm = recall(store, spec, sweep_id(spec.name, key))
    searcher = make_searcher(spec, spec.seed or 0, warm)
    trials, there, said = [], 0, ""
    for number in range(spec.num_samples or 0):
        config = searcher.ask(number)
        assert config is not None
        said = searcher.take_remark() or said
        exact = night.loss(config)
        value = exact * (1 + Random(f"{spec.seed}/{number}").gauss(0, NOISE))
        searcher.tell(number, value, "completed")
        if not there and exact <= 1.01 * night.level:
            there = number + 1
        trials.append(
            TrialOutcome(
                trial_id=f"{number:05d}", number=number, state="completed", config=config, score=value
            )
        )
    outcome = SweepOutcome(
        sweep_id=sweep_id(spec.name, key),
        name=spec.name,
        key=key,
        status="completed",
        metric=spec.metric,
        mode=spec.mode,
        best=min(trials, key=lambda trial: trial.score or 0.0),
        trials=tuple(trials),
        started_at=0.0,
        ended_at=1.0,
    )
    SweepFolder(store, outcome.sweep_id).write_outcome_if_absent(outcome)
    return there or len(trials) + 1, said


def run_year(seed: int, nights: int = NIGHTS, jump: int = JUMP, trials: int = TRIALS) -> Json:
    """How many trials each contender needed, night by night; and what the memory said."""
    needed: dict[str, list[int]] = {name: [] for name in CONTENDERS}
    said: list[str] = []
    with tempfile.TemporaryDirectory(prefix="raysweep-drift-") as folder:
        stores = {name: open_store(f"{folder}/{name}") for name in CONTENDERS}
        for number, night in enumerate(year(seed, nights, jump)):
            for name, warm_start in CONTENDERS.items():
                spec = make_spec(warm_start, seed * 1000 + number, trials)
                count, remark = run_night(stores[name], spec, f"{number:03d}", night)
                needed[name].append(count)
                if name == "memory":
                    said.append(remark)
    return {"seed": seed, "needed": needed, "said": said}


def make_spec(warm_start: Any, seed: int, trials: int) -> SweepSpec:
    """The spec of a night."""
    return SweepSpec(
        name="drift",
        trainable="benchmarks.drift:make_spec",
        param_space={f"x{i}": {"uniform": [0, 1]} for i, _ in enumerate(WIDTHS)},
        metric="loss",
        mode="min",
        num_samples=trials,
        search="tpe",
        seed=seed,
        warm_start=warm_start,
    )


def summary(years: Sequence[Json], jump: int = JUMP, after: int = AFTER) -> Json:
    """The figures over all years: the whole year, the jump's night, and the nights from it on."""
    nights = len(years[0]["needed"]["cold"])
    parts = {
        "year": range(1, nights),
        "jump": range(jump, jump + 1),
        "after_jump": range(jump, jump + after),
    }
    return {part: _compared(years, which) for part, which in parts.items()}


def _compared(years: Sequence[Json], nights: Sequence[int]) -> Json:
    found: Json = {}
    cold = [each["needed"]["cold"][night] for each in years for night in nights]
    for name in CONTENDERS:
        mine = [each["needed"][name][night] for each in years for night in nights]
        more = [a - b for a, b in zip(mine, cold, strict=True)]
        found[name] = {
            "median_trials": median(mine),
            "mean_trials": significant(fmean(mine)),
            "mean_more_than_cold": significant(fmean(more)),
            "standard_error": significant(stdev(more) / len(more) ** 0.5) if len(more) > 1 else None,
            "sooner_than_cold": sum(each < 0 for each in more),
            "later_than_cold": sum(each > 0 for each in more),
            "nights": len(more),
        }
    return found


def run(rounds: int, seeds: int = SEEDS, nights: int = NIGHTS, jump: int = JUMP) -> Json:
    """The year of each seed; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    with ProcessPoolExecutor(max_workers=min(seeds, len(os.sched_getaffinity(0)))) as pool:
        years = list(pool.map(partial(run_year, nights=nights, jump=jump), range(seeds)))
    found, cost = summary(years, jump), 1 + Memory().anchors
    targets = [
        target(
            "a year: trials with memory, of those without",
            found["year"]["memory"]["mean_trials"] / found["year"]["cold"]["mean_trials"],
            at_most=1.0,
        ),
        *(
            target(
                f"{part}: trials that memory needs more than none, at most champion and anchors",
                found[part]["memory"]["mean_more_than_cold"],
                at_most=float(cost),
            )
            for part in ("jump", "after_jump")
        ),
    ]
    return {
        "trials": TRIALS,
        "nights": nights,
        "seeds": seeds,
        "load": round(os.getloadavg()[0], 1),
        "found": found,
        "said_at_the_jump": [each["said"][jump] for each in years],
        "targets": targets,
    }
