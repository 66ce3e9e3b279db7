"""LightGBM on the flights: configs found on 10,000 to 40,000 rows, carried to all rows in several ways.

For each seed, as many random configs run at each of three proxy scales, each scale with a sample of its own
of the training days; the area under the ROC curve on the validation days is their score. The best of the
largest scale is then trained on all rows as it is (`copied`), by the law (`law`; where its verdict is not
`carries` that is the copied config) and by rules. `search` spends as much on random configs with all rows:
rows times rounds of the proxy scales and of one training. All are compared by their area on the test days.

Two ways to divide the days: `later` trains on the first seven tenths of the year, validates on the next one,
and tests on the rest; `between` has the folds of the example, where test days lie between training days.
"""

from __future__ import annotations

import math
import os
import sys
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import date
from multiprocessing import get_context
from random import Random
from statistics import fmean, median, stdev
from typing import Any, Final

import numpy as np

from benchmarks.measure import Json
from raysweep.space.parsed import normalise, parse
from raysweep.transfer import fit
from raysweep.transfer.rules import carry

SEEDS: Final = 20
SCALES: Final = (10_000, 20_000, 40_000)
TRIALS: Final = 12
"""Of each scale."""
DAYS: Final = ("later", "between")
SPACE: Final = parse(
    normalise(
        {
            "rounds": {"lograndint": [5, 200]},
            "num_leaves": {"lograndint": [8, 64]},
            "min_child_samples": {"lograndint": [10, 1000]},
            "lambda_l2": {"loguniform": [0.01, 100]},
        }
    )
)
ROUNDS_BY_ROWS: Final = "min(rounds * scale.rows / proxy.rows, 199)"
ROUNDS_BY_ROOT: Final = "min(rounds * sqrt(scale.rows / proxy.rows), 199)"
LEAF_BY_ROOT: Final = "min(min_child_samples * sqrt(scale.rows / proxy.rows), 999)"
RULES: Final[Mapping[str, Mapping[str, str]]] = {
    "rounds by rows": {"rounds": ROUNDS_BY_ROWS},
    "rounds by root": {"rounds": ROUNDS_BY_ROOT},
    "both by root": {"rounds": ROUNDS_BY_ROOT, "min_child_samples": LEAF_BY_ROOT},
}
FIXED: Final = {
    "objective": "binary",
    "metric": "auc",
    "learning_rate": 0.3,
    "feature_pre_filter": False,  # else the data depend on min_child_samples
    "deterministic": True,
    "force_row_wise": True,
    "num_threads": 1,
    "verbosity": -1,
}
_LATER: Final = (256, 292)
"""The last days of the year that train and validate."""


def run(
    rounds: int,
    seeds: int = SEEDS,
    trials: int = TRIALS,
    scales: Sequence[int] = SCALES,
    days: Sequence[str] = DAYS,
    full_rows: int | None = None,
) -> Json:
    """Areas on the test days by way to carry; more than three rounds are more seeds."""
    seeds = max(seeds, seeds * rounds // 3)
    asked = [(way, seed, trials, tuple(scales), full_rows) for seed in range(seeds) for way in days]
    found: dict[str, list[Json]] = {way: [] for way in days}
    with get_context("spawn").Pool(min(os.cpu_count() or 1, len(asked))) as pool:
        for way, seed, each in pool.imap_unordered(_one, asked):
            print(way, seed, each, file=sys.stderr, flush=True)
            found[way].append(each)
    return {way: summary(each) for way, each in found.items()}


def summary(found: Sequence[Json]) -> Json:
    """Means over seeds with their standard errors, and how the law moves each parameter."""
    names = list(found[0]["auc"])
    gains = {name: [each["auc"][name] - each["auc"]["copied"] for each in found] for name in names}
    return {
        "seeds": len(found),
        "rows": found[0]["rows"],
        "auc": {name: _spread([each["auc"][name] for each in found]) for name in names},
        "over_copied": {name: _spread(gains[name]) for name in names if name != "copied"},
        "verdicts": dict(Counter(each["verdict"] for each in found)),
        "factor": {
            name: round(median(each["factor"][name] for each in found), 2) for name in found[0]["factor"]
        },
        "search_trials": round(fmean(each["search_trials"] for each in found), 1),
    }


def _spread(values: Sequence[float]) -> Json:
    error = stdev(values) / math.sqrt(len(values)) if len(values) > 1 else None
    return {"mean": round(fmean(values), 4), "error": error and round(error, 4)}


def _one(asked: tuple[str, int, int, tuple[int, ...], int | None]) -> tuple[str, int, Json]:
    way, seed, trials, scales, full_rows = asked
    data, rng = Rows(way, seed), Random(seed)
    full = min(full_rows or len(data.train), len(data.train))
    ran = [
        {"scale": {"rows": rows}, "config": config, "score": data.auc(config, rows)}
        for rows in scales
        for config in (SPACE.sample(rng) for _ in range(trials))
    ]
    best = max((each for each in ran if each["scale"]["rows"] == scales[-1]), key=lambda each: each["score"])
    said = fit(ran, space=SPACE, mode="max")
    target, smallest = {"rows": full}, said.optimum_at({"rows": scales[0]})
    carried = said.at(target)
    configs = {"copied": best["config"], "law": carried.config}
    configs |= {
        name: carry(best["config"], rules, space=SPACE, scale=target, proxy=best["scale"])
        for name, rules in RULES.items()
    }
    areas = {name: data.auc(config, full, "test") for name, config in configs.items()}
    cost = sum(each["scale"]["rows"] * each["config"]["rounds"] for each in ran)
    searched = list(_search(data, rng, full, cost + full * best["config"]["rounds"]))
    found = max(searched, key=lambda each: each[0])[1]
    return (
        way,
        seed,
        {
            "rows": full,
            "auc": {**areas, "search": data.auc(found, full, "test")},
            "verdict": carried.verdict,
            "reasons": carried.reasons,
            "factor": {name: carried.optimum[name] / smallest[name] for name in smallest},
            "best": best["config"],
            "config": carried.config,
            "search_trials": len(searched),
        },
    )


def _search(data: Rows, rng: Random, rows: int, cost: float) -> Iterator[tuple[float, Json]]:
    """Random configs with their areas on the validation days, as many as the cost allows; one at least."""
    spent = 0.0
    while spent == 0.0 or spent < cost:
        config = SPACE.sample(rng)
        spent += rows * config["rounds"]
        yield data.auc(config, rows), config


class Rows:
    """The flights of three groups of days, and one shuffle of those that train."""

    def __init__(self, days: str, seed: int) -> None:
        from examples.flights.data import load

        flights = load()
        self.x, self.y, self.seed = flights.x, flights.y, seed
        part = flights.fold if days == "between" else _later(flights.x)
        train, valid, test = (np.flatnonzero(part == each) for each in range(3))
        self.train = np.random.default_rng(seed).permutation(train)
        self._judges = {"valid": valid, "test": test}
        self._known: dict[Any, float] = {}
        self._data: dict[Any, Any] = {}

    def auc(self, config: Mapping[str, Any], rows: int, judge: str = "valid") -> float:
        """The area on the days of `judge`, of a model of so many rows."""
        key = judge, rows, tuple(config.items())
        if key not in self._known:
            self._known[key] = self._train(config, rows, judge)
        return self._known[key]

    def _train(self, config: Mapping[str, Any], rows: int, judge: str) -> float:
        import lightgbm as lgb

        params = {**FIXED, **config, "seed": self.seed}
        rounds, data = params.pop("rounds"), self._dataset(rows)
        model = lgb.Booster(params, data)
        model.add_valid(self._dataset(rows, judge), judge)
        for _ in range(rounds):
            model.update()
        return float(model.eval_valid()[0][2])

    def _dataset(self, rows: int, judge: str = "") -> Any:
        """That of so many rows, or of a group of days in its bins."""
        import lightgbm as lgb

        from examples.flights.data import CATEGORICAL, FEATURES

        if (rows, judge) not in self._data:
            chosen = self._judges[judge] if judge else np.sort(self.train[:rows])
            data = lgb.Dataset(
                self.x[chosen],
                self.y[chosen],
                reference=self._dataset(rows) if judge else None,
                feature_name=list(FEATURES),
                categorical_feature=[FEATURES.index(name) for name in CATEGORICAL],
                params=dict(FIXED),
                free_raw_data=False,
            )
            self._data[rows, judge] = data.construct()
        return self._data[rows, judge]


def _later(x: Any) -> Any:
    """By flight 0, 1, 2: the first days of the year train, the next ones validate, the last ones test."""
    day_of = {
        (month, day): date(2013, month, day).timetuple().tm_yday
        for month, day in {(int(month), int(day)) for month, day in x[:, 3:5]}
    }
    days = np.array([day_of[int(month), int(day)] for month, day in x[:, 3:5]])
    return np.digitize(days, _LATER, right=True)
