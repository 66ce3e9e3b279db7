"""Sweeps on an existing Ray cluster through its Jobs API: submit or attach, follow, cancel. Needs no Ray.

Names are imported when they are first used: the driver, which runs on the cluster, needs few of them.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from raysweep.jobs.attach import RunningJob, submit_or_attach
    from raysweep.jobs.client import JobsClient
    from raysweep.jobs.connection import ClusterConnection
    from raysweep.jobs.decisions import decide
    from raysweep.jobs.follow import cancel, wait
    from raysweep.jobs.options import JobOptions, JobSettings
    from raysweep.jobs.request import JobRequest
    from raysweep.jobs.sync import Cluster
    from raysweep.jobs.wire import ClusterVersion, JobInfo, Submission

_HOMES = {
    "attach": ("RunningJob", "submit_or_attach"),
    "client": ("JobsClient",),
    "connection": ("ClusterConnection",),
    "decisions": ("decide",),
    "follow": ("cancel", "wait"),
    "options": ("JobOptions", "JobSettings"),
    "request": ("JobRequest",),
    "sync": ("Cluster",),
    "wire": ("ClusterVersion", "JobInfo", "Submission"),
}
_HOME = {name: module for module, names in _HOMES.items() for name in names}

__all__ = [
    "Cluster",
    "ClusterConnection",
    "ClusterVersion",
    "JobInfo",
    "JobOptions",
    "JobRequest",
    "JobSettings",
    "JobsClient",
    "RunningJob",
    "Submission",
    "cancel",
    "decide",
    "submit_or_attach",
    "wait",
]


def __getattr__(name: str) -> Any:
    home = _HOME.get(name)
    if home is None:
        raise AttributeError(f"module 'raysweep.jobs' has no attribute {name!r}")
    value = getattr(importlib.import_module(f"raysweep.jobs.{home}"), name)
    globals()[name] = value
    return value
