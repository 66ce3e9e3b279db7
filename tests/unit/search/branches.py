"""Spaces with branches, the searches that take them, and whether a config fits its space."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from raysweep.documents.json_values import leaves
from raysweep.search import make_searcher
from raysweep.specs import SweepSpec

MODELS: dict[str, Any] = {
    "lr": {"loguniform": [1e-4, 1.0]},
    "model": {
        "choice": {
            "svm": {
                "c": {"uniform": [0, 10]},
                "kernel": {"choice": {"rbf": {"gamma": {"uniform": [0, 1]}}, "linear": {}}},
            },
            "forest": {"depth": {"randint": [1, 9]}, "criterion": "gini"},
        }
    },
}
# 2 * (2 * 3 + 1) + 2 * (3 + 1) configs
COUNTED: dict[str, Any] = {
    "a": {"choice": [1, 2]},
    "b": {
        "choice": {
            "x": {"p": {"choice": {"u": {"n": {"randint": [0, 2]}, "m": {"randint": [0, 3]}}, "v": None}}},
            "y": {"q": {"choice": [1, 2, 3]}},
            "z": 7,
        }
    },
}
COUNT = 22
TWO = {"grid_search": [1, 2]}
SEARCHES: dict[str, Any] = {
    "random": "random",
    "tpe": {"tpe": {"n_startup_trials": 4}},
    "tpe_alone": {"tpe": {"n_startup_trials": 4, "multivariate": False}},
    "gp": {"gp": {"n_startup_trials": 6}},
    "cma_es": {"cma_es": {"population_size": 4}},
    "nsga2": {"nsga2": {"population_size": 4}},
    "auto": {"auto": {"switch_after": 10}},
}
# A Gaussian process is costly to ask; with points and a warm start it is asked once here, the rest is slow.
DEAR_IS_SLOW = [pytest.param(name, marks=[pytest.mark.slow] * (name == "gp")) for name in SEARCHES]


def make_spec(**fields: Any) -> SweepSpec:
    plain = {"name": "w", "trainable": "m:f", "param_space": MODELS, "metric": "loss", "mode": "min"}
    return SweepSpec.model_validate({**plain, "seed": 1, "num_samples": 20, **fields})


def score(config: Mapping[str, Any]) -> float:
    return sum(str(sorted(map(str, leaves(config)))).encode()) % 97 / 97


def ask_all(spec: SweepSpec, most: int = 999) -> list[dict[str, Any]]:
    searcher = make_searcher(spec, spec.seed or 0)
    found: list[dict[str, Any]] = []
    while len(found) < most and (config := searcher.ask(len(found))) is not None:
        searcher.tell(len(found), score(config), "completed")
        found.append(config)
    return found


def fits(node: Any, value: Any) -> bool:
    """Whether a value is one that a normalised space allows: said apart from the code that is tested."""
    if isinstance(node, dict) and len(node) == 1:
        word, argument = next(iter(node.items()))
        if word in ("choice", "grid_search"):
            if isinstance(argument, list):
                return value in argument
            is_one = isinstance(value, dict) and len(value) == 1
            return is_one and all(name in argument and fits(argument[name], value[name]) for name in value)
        if word in ("uniform", "loguniform", "quniform"):
            return isinstance(value, float) and argument[0] <= value <= argument[1]
        if word in ("randint", "lograndint"):
            return isinstance(value, int) and argument[0] <= value < argument[1]
        if word in ("randn", "qrandn"):
            return isinstance(value, float)
        if word == "const":
            return bool(value == argument)
    if isinstance(node, dict):
        return (
            isinstance(value, dict)
            and node.keys() == value.keys()
            and all(fits(item, value[key]) for key, item in node.items())
        )
    if isinstance(node, list):
        return isinstance(value, list) and len(node) == len(value) and all(map(fits, node, value))
    return bool(node == value)


def text(config: Mapping[str, Any]) -> str:
    return str(sorted((path, str(value)) for path, value in leaves(config)))
