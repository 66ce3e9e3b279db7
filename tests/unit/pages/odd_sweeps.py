"""Sweeps that a page is seldom tried with: by name, a function that stores one and returns its folder."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any, Final

from raysweep.core.vocabulary import events as ev
from raysweep.runs.folder import SweepFolder
from raysweep.simulate import Kill, simulate
from raysweep.simulate.simulation import Running
from raysweep.specs.identity import sweep_id
from tests.unit.pages.sweeps import SPEC, store, store_part, unfinished

XY: Final = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}}
LOSS: Final[dict[str, Any]] = {
    "metric": "loss", "mode": "min", "scheduler": "fifo", "seed": 1, "param_space": XY, "num_samples": 12,
}  # fmt: skip
SCORED: Final = {"metric": "accuracy", "mode": "max"}
LONG: Final = "long names and a very long name of a sweep for the head of the page"
WHY: Final = "the flow run 'nightly' was set to Cancelling"
TRY_IT: Final = "</script><img src=x onerror=window.broken=1> ${x} {{ ds }} `id` [a](b) *|* %s"
HOSTILE: Final = f"{TRY_IT} \x1b[31m\n\u202e."
RTL: Final = "שלום עולם العربية \u202egnirts 模型 🦄"

Curve = Callable[[dict[str, Any], int], dict[str, Any] | None]


def falls(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """A loss that falls."""
    return None if iteration > 12 else {"loss": (config["x"] - 0.3) ** 2 + 1 / iteration}


def once(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """One report."""
    return None if iteration > 1 else {"loss": (config["x"] - 0.3) ** 2 + config["y"] * 0.001}


def three(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """Three metrics, far apart in size."""
    if iteration > 5:
        return None
    return {
        "accuracy": 1 - (config["x"] - 0.3) ** 2 - 0.1 / iteration,
        "latency_ms": 5 + 100 * config["x"] * config["y"],
        "model_size_bytes": 1e9 * (1 + config["y"]),
    }


def unranked(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """A number and a text; the sweep has no metric."""
    return None if iteration > 5 else {"gain": config["x"] * iteration, "note": "hello"}


def silent(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """Another metric than the sweep's."""
    return None if iteration > 3 else {"gain": config["x"]}


def fails(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """A report, then an error with a long word."""
    if iteration > 1:
        raise ValueError(f"cannot open /data/{'very/long/path/' * 8}{config['x']:.3f}.parquet")
    return {"loss": 1.0}


def breaks(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """Bad from its second report on in nine of ten configs; the others are cut by the sweep's failure."""
    if iteration > 1 and config["x"] > 0.1:
        raise ValueError("no data")
    return None if iteration > 90 else {"loss": config["x"] + 1 / iteration}


def wide(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """One report of a config with many parameters."""
    return None if iteration > 1 else {"loss": (config["x0"] - 0.3) ** 2}


def attacks(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """A metric, a text, a parameter and an error with names that are code elsewhere."""
    if config[HOSTILE] == HOSTILE and config["x"] > 0.8:
        raise ValueError(HOSTILE * 5)
    return None if iteration > 3 else {HOSTILE: config["x"] / iteration, f"said {HOSTILE}": HOSTILE}


def sized(size: float) -> Curve:
    """A loss of about this size that falls."""

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return None if iteration > 4 else {"loss": size * (1 + config["x"] / iteration)}

    return curve


def not_a_number(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """NaN for some configs, infinity for others."""
    if iteration > 4:
        return None
    return {"loss": math.nan if config["x"] > 0.7 else math.inf if config["x"] > 0.5 else config["x"]}


def named(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """A metric with a name from right to left."""
    return None if iteration > 3 else {RTL: config[RTL] / iteration}


def _ended(curve: Curve, root: Path, **changes: Any) -> SweepFolder:
    return store(root, curve, **(LOSS | changes))[0]


def _live(curve: Curve, root: Path, **changes: Any) -> SweepFolder:
    spec = SPEC | LOSS | changes
    slots = spec.pop("slots", 3)
    simulated = simulate(spec, curve, slots=slots, step_s=2.0, save_every=2)
    return store_part(root, spec, simulated, part=0.5, ago_s=1.0, sweep_id=sweep_id(spec["name"], "live"))


def _cancelled(curve: Curve, root: Path, **changes: Any) -> SweepFolder:
    at = changes.pop("at", 30.0)

    def cancel(running: Running) -> None:
        running.clock.at(
            at, lambda: running.controller.emit(ev.CancelRequested(at=running.controller.now, reason=WHY))
        )

    return _ended(curve, root, disturb=cancel, **changes)


def _interrupted(curve: Curve, root: Path, **changes: Any) -> SweepFolder:
    return unfinished(_ended(curve, root, **changes))


Make = Callable[[Path], SweepFolder]
ODD: Final[dict[str, Make]] = {
    "one trial": partial(_ended, falls, num_samples=1),
    "all failed": partial(_ended, fails, failure={"max_failures": 1, "breaker_trials": 1000}),
    "impossible constraint": partial(_ended, three, **SCORED, constraints=["latency_ms <= -1"]),
    "three metrics": partial(
        _ended, three, metric=["accuracy", "latency_ms", "model_size_bytes"], mode=["max", "min", "min"],
        num_samples=30,
    ),
    "no metric": partial(_ended, unranked, metric=None, mode=None),
    "metric never reported": partial(_ended, silent),
    "failed, others cut": partial(
        _ended, breaks, slots=8, failure={"max_failures": 0, "breaker_trials": 3}, num_samples=40
    ),
    "constraint": partial(_ended, three, **SCORED, constraints=["latency_ms <= 20"], num_samples=20),
    "long names": partial(
        _ended, wide, name=LONG,
        param_space={
            **{f"x{number}": {"uniform": [0, 1]} for number in range(12)},
            "model": {
                "architecture": {"encoder_hidden_dimension_of_the_feed_forward": {"choice": [128, 256]}},
                "text": "a very long constant text that never ends " * 4,
            },
            "x" * 62: {"uniform": [0, 1]},
        },
    ),
    "right to left": partial(
        _ended, named, name="night שלום العربية 模型 🦄", metric=RTL,
        param_space={RTL: {"uniform": [0, 1]}, "模" * 40: {"choice": ["🦄", RTL]}},
    ),
    "huge": partial(_ended, sized(1e300)),
    "tiny": partial(_ended, sized(1e-300)),
    "large": partial(_ended, sized(4e37)),
    "not a number": partial(_ended, not_a_number),
    "live": partial(_live, falls),
    "only running": partial(_live, falls, num_samples=2, slots=2),
    "cancelled": partial(_cancelled, falls),
    "cancelled at once": partial(_cancelled, falls, num_samples=2, slots=2, at=6.0),
    "resumed": partial(_ended, falls, kills=(Kill(when="after", append=9), Kill(when="before", append=40))),
    "hostile": partial(
        _ended, attacks, name=f"night {TRY_IT}", metric=HOSTILE, tags={HOSTILE: HOSTILE},
        param_space={"x": {"uniform": [0, 1]}, HOSTILE: {"choice": [HOSTILE, f"b {HOSTILE}"]}},
    ),
    "interrupted": partial(_interrupted, falls),
    "2,000 trials": partial(
        _ended, once, param_space={**XY, "opt": {"choice": ["sgd", "adam"]}}, num_samples=2000, slots=16
    ),
}  # fmt: skip
