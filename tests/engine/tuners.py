"""Tuners of Ray Tune, for what `from_tuner` makes of them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

from ray import tune

Make = Callable[..., tune.Tuner]
TUNES_RULES = {"max_failures": 0, "breaker_trials": 0, "non_finite": "ignore"}


def train(config: dict[str, Any]) -> None:
    tune.report({"loss": config["x"]})


def maker_of_tuners(storage: Path) -> Make:
    """Makes tuners from keywords of `TuneConfig` and `RunConfig` mixed."""

    def make(trainable: Any = train, space: Any = None, **fields: Any) -> tune.Tuner:
        of_run = {
            name: fields.pop(name) for name in list(fields) if name in tune.RunConfig.__dataclass_fields__
        }
        plain: dict[str, Any] = {"metric": "loss", "mode": "min"}
        run = {"storage_path": str(storage), "name": "named"} | of_run
        return tune.Tuner(
            trainable,
            param_space={"x": tune.uniform(0, 1)} if space is None else space,
            tune_config=tune.TuneConfig(**plain | fields),
            run_config=tune.RunConfig(**run),
        )

    return make
