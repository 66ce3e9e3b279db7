"""What stands before a sweep: a trainable that is there, room for a trial; and what its workers are told."""

from __future__ import annotations

import importlib.util
import os
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from raysweep.cluster.session import SweepPlace
from raysweep.cluster.worker import WorkerSetup
from raysweep.core.state import SweepState
from raysweep.errors import MetricNeverReportedError, SpecError, TrainableImportError
from raysweep.spec import SweepSpec, load_trainable, trainable_ref

if TYPE_CHECKING:
    from raysweep.cluster.server import LinkServer
    from raysweep.storage.folder import SweepFolder


def check_trainable(trainable: str | Callable[..., Any]) -> None:
    """Find the trainable's module without importing it: that can take seconds, and is the workers' business.

    Raises:
        TrainableImportError: There is no such module.
    """
    if not isinstance(trainable, str) or trainable.startswith("<") or ":" not in trainable:
        return
    module = trainable.partition(":")[0]
    try:
        is_there = module in sys.modules or importlib.util.find_spec(module) is not None
    except (ImportError, ValueError):
        is_there = False
    if not is_there:
        load_trainable(trainable)  # raises, and says which part is missing and what is near


def check_room(spec: SweepSpec) -> int:
    """How many trials the connected cluster can hold at once.

    Raises:
        InfeasibleResourcesError: Not even one; says what was asked for and what there is.
    """
    from raysweep.cluster.actors import live_nodes
    from raysweep.cluster.preflight import count_slots

    return count_slots(spec.resources, live_nodes(), spec.max_concurrent_trials)


def make_setup(spec: SweepSpec, folder: SweepFolder, server: LinkServer) -> WorkerSetup:
    """What every worker of the sweep is told."""
    import cloudpickle

    trainable = spec.trainable
    is_path = isinstance(trainable, str)
    reference = trainable_ref(trainable)
    total: dict[str, float] = {}
    for bundle in spec.resources.to_bundles():
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return WorkerSetup(
        host=server.host,
        port=server.port,
        token=server.token,
        trainable=reference,
        pickled=None if is_path or not reference.startswith("<") else cloudpickle.dumps(trainable),
        isolation=spec.effective_isolation,
        place=SweepPlace(sweep_id=folder.sweep_id, storage_path=folder.store.url, resources=total),
        sys_path=tuple(path or os.getcwd() for path in ["", *sys.path]),
        hides_gpus=spec.resources.total_gpus == 0,
    )


def spec_fault(state: SweepState) -> SpecError:
    """The error for a sweep that cannot give a result as it was asked for."""
    if state.fault_field == "trainable":
        why = state.why.removeprefix("TrainableImportError: ").removeprefix("trainable: ")
        return TrainableImportError("trainable", why)
    return MetricNeverReportedError(
        state.fault_field, state.why, f"set {state.fault_field} to a name that the trainable reports"
    )
