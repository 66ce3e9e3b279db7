"""Specs that name no search, and a searcher that is asked and told by turns."""

from __future__ import annotations

from typing import Any

from raysweep.search import Searcher
from raysweep.search import make_searcher as make_searcher
from raysweep.specs import SweepSpec

NUMBERS: dict[str, Any] = {"x": {"uniform": [0, 1]}, "y": {"loguniform": [0.01, 1]}}


def spec(**fields: Any) -> SweepSpec:
    plain = {"name": "a", "trainable": "m:f", "param_space": NUMBERS, "metric": "loss", "mode": "min"}
    return SweepSpec(**plain | {"num_samples": 40} | fields)


def play(searcher: Searcher, count: int) -> list[Any]:
    configs = []
    for number in range(count):
        config = searcher.ask(number)
        assert config is not None
        searcher.tell(number, (config["x"] - 0.3) ** 2 + config["y"], "completed")
        configs.append(config)
    return configs
