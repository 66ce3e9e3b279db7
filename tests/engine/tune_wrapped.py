"""A function that names its resources as Ray Tune's users do."""

from __future__ import annotations

from typing import Any

from ray import tune


def wants_two(config: dict[str, Any]) -> None:
    tune.report({"loss": 1.0})


tune.with_resources(wants_two, {"cpu": 2})
