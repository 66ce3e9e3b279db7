"""Trials on a bowl whose optimum moves with the scale, for the tests of laws."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from random import Random
from typing import Any

SPACE = {"lr": {"loguniform": [1e-4, 1e-1]}, "width": {"uniform": [0.0, 10.0]}}
LR_DECADES = 3.0


@dataclass(frozen=True)
class Bowl:
    """A score of `lr` and `width`; less is better.

    `optimum`: the coordinates of the best at 40,000 rows; `moves`: of lr by e-fold of rows.
    """

    optimum: tuple[float, float] = (0.5, 0.4)
    moves: float = 0.0
    noise: float = 0.02

    def score(self, config: dict[str, Any], rows: float) -> float:
        """Without noise."""
        best = self.optimum[0] + self.moves * math.log(rows / 40_000)
        away = (place(config["lr"]) - best, config["width"] / 10 - self.optimum[1])
        return 1 + 0.5 * (rows / 10_000) ** -0.3 + 5 * away[0] ** 2 + 3 * away[1] ** 2

    def trials(
        self, seed: int, count: int = 12, scales: Sequence[float] = (10_000, 20_000, 40_000)
    ) -> list[dict[str, Any]]:
        """Random trials, so many at each scale."""
        rng, found = Random(seed), []
        for rows in scales:
            for _ in range(count):
                config = {"lr": 10 ** (LR_DECADES * rng.random() - 4), "width": 10 * rng.random()}
                score = self.score(config, rows) + rng.gauss(0, self.noise)
                found.append({"scale": {"rows": rows}, "config": config, "score": score})
        return found

    def exact(self) -> Bowl:
        """The same without noise."""
        return replace(self, noise=0.0)


def place(lr: float) -> float:
    """The coordinate of a learning rate, from 0 to 1."""
    return (math.log10(lr) + 4) / LR_DECADES


def best_of_largest(trials: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """The config that copying takes."""
    largest = max(trial["scale"]["rows"] for trial in trials)
    inside = [trial for trial in trials if trial["scale"]["rows"] == largest and trial["score"] is not None]
    return dict(min(inside, key=lambda trial: trial["score"])["config"])
