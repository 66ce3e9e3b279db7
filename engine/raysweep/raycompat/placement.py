"""The handle by which Ray Train's worker groups hold a placement group, since Ray 2.54."""

from __future__ import annotations

import ray

try:
    from ray.train.v2._internal.execution.worker_group.placement_group_handle import (
        DefaultPlacementGroupHandle,
    )
except ImportError as missing:
    raise ImportError(
        f"training with Ray Train requires Ray 2.54 or newer, and this is Ray {ray.__version__}:"
        " upgrade Ray; sweeps without Ray Train run on it"
    ) from missing

__all__ = ["DefaultPlacementGroupHandle"]
