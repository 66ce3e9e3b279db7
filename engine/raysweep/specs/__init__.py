"""Specs as frozen data: `SweepSpec`, `TrainSpec` and their parts.

Names are imported when they are first used: a look at a stored run needs no models of specs.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from raysweep.documents.code.trainable import load_trainable, trainable_ref
    from raysweep.space.domains import Choice, Const, Domain, Float, Grid, Integer, Normal, SampleFrom
    from raysweep.space.parsed import Space
    from raysweep.specs.identity import Kind, RunId, slug, sweep_id
    from raysweep.specs.policies import CheckpointPolicy, FailurePolicy, StopPolicy
    from raysweep.specs.request import AnyRequest, RunRequest
    from raysweep.specs.sweep import SweepSpec
    from raysweep.specs.train import TrainSpec
    from raysweep.specs.trial.resources import Resources
    from raysweep.specs.trial.scaling import Scaling

_HOMES: Final[dict[str, tuple[str, ...]]] = {
    "raysweep.documents.code.trainable": ("load_trainable", "trainable_ref"),
    "raysweep.space.domains": (
        "Choice",
        "Const",
        "Domain",
        "Float",
        "Grid",
        "Integer",
        "Normal",
        "SampleFrom",
    ),
    "raysweep.space.parsed": ("Space",),
    "raysweep.specs.identity": ("Kind", "RunId", "slug", "sweep_id"),
    "raysweep.specs.policies": ("CheckpointPolicy", "FailurePolicy", "StopPolicy"),
    "raysweep.specs.request": ("AnyRequest", "RunRequest"),
    "raysweep.specs.trial.resources": ("Resources",),
    "raysweep.specs.trial.scaling": ("Scaling",),
    "raysweep.specs.sweep": ("SweepSpec",),
    "raysweep.specs.train": ("TrainSpec",),
}
_HOME: Final = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "AnyRequest",
    "CheckpointPolicy",
    "Choice",
    "Const",
    "Domain",
    "FailurePolicy",
    "Float",
    "Grid",
    "Integer",
    "Kind",
    "Normal",
    "Resources",
    "RunId",
    "RunRequest",
    "SampleFrom",
    "Scaling",
    "Space",
    "StopPolicy",
    "SweepSpec",
    "TrainSpec",
    "load_trainable",
    "slug",
    "sweep_id",
    "trainable_ref",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = getattr(importlib.import_module(home), name)
    globals()[name] = value
    return value
