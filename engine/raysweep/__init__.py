"""raysweep: hyperparameter sweeps as pipeline steps on Ray.

Names are imported when they are first used, so that `import raysweep` costs nothing and needs no Ray. The
other errors are in `raysweep.errors`.
"""

from __future__ import annotations

import importlib.util
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysweep.errors import Infeasible, RaysweepError, SpecError, SweepFailedError, TrialStopped
    from raysweep.from_tune.tuner import from_tuner
    from raysweep.outcome import SweepOutcome, TrainOutcome, TrialOutcome
    from raysweep.run import run_sweep, run_training
    from raysweep.runs.reading.listing import sweeps
    from raysweep.specs.sweep import SweepSpec
    from raysweep.specs.train import TrainSpec
    from raysweep.specs.trial.resources import Resources
    from raysweep.specs.trial.scaling import Scaling
    from raysweep.stored import StoredSweep, load
    from raysweep.trial import get_checkpoint, get_context, new_checkpoint, report, should_checkpoint
    from raysweep.version import __version__


_HOMES: dict[str, tuple[str, ...]] = {
    "raysweep.errors": ("Infeasible", "RaysweepError", "SpecError", "SweepFailedError", "TrialStopped"),
    "raysweep.outcome": ("SweepOutcome", "TrainOutcome", "TrialOutcome"),
    "raysweep.run": ("run_sweep", "run_training"),
    "raysweep.runs.reading.listing": ("sweeps",),
    "raysweep.from_tune.tuner": ("from_tuner",),
    "raysweep.specs.trial.resources": ("Resources",),
    "raysweep.specs.trial.scaling": ("Scaling",),
    "raysweep.specs.sweep": ("SweepSpec",),
    "raysweep.specs.train": ("TrainSpec",),
    "raysweep.stored": ("StoredSweep", "load"),
    "raysweep.trial": ("get_checkpoint", "get_context", "new_checkpoint", "report", "should_checkpoint"),
    "raysweep.version": ("__version__",),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

_ROOMS = ("transfer", "tune")
"""Rooms that are had by their name: `raysweep.transfer.fit`, `raysweep.tune.running`."""

__all__ = [
    "Infeasible",
    "RaysweepError",
    "Resources",
    "Scaling",
    "SpecError",
    "StoredSweep",
    "SweepFailedError",
    "SweepOutcome",
    "SweepSpec",
    "TrainOutcome",
    "TrainSpec",
    "TrialOutcome",
    "TrialStopped",
    "__version__",
    "from_tuner",
    "get_checkpoint",
    "get_context",
    "load",
    "new_checkpoint",
    "report",
    "run_sweep",
    "run_training",
    "should_checkpoint",
    "sweeps",
]


def __getattr__(name: str) -> Any:
    if name in _ROOMS:
        return importlib.import_module(f"{__name__}.{name}")
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'raysweep' has no attribute {name!r}{_elsewhere(name)}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value


def _elsewhere(name: str) -> str:
    """The place of a name that is not at the top level, for the message."""
    # `from raysweep import faultplan` asks for it here first: a worker's start would take a second longer.
    if name.startswith("_") or importlib.util.find_spec(f"{__name__}.{name}") is not None:
        return ""
    for module in ("raysweep.errors", "raysweep.outcome", "raysweep.specs.identity"):
        home = getattr(getattr(importlib.import_module(module), name, None), "__module__", "")
        if home == module or home.startswith(f"{module}."):
            return f": raysweep.{name} is {module}.{name}"
    return ""


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
