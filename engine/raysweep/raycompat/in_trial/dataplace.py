"""Ray Data in a bundle of a trial's placement group: its tasks and its actors, and what it counts on.

Ray Data asks the whole cluster for CPUs, wherever it runs. `DataContext.scheduling_strategy` changes that for
reads and maps only: shuffles, joins, splits and the like say "SPREAD" or "DEFAULT" themselves. With it Ray
Data also counts all bundles of the group as its own, and no object store. So where Ray Data's executor runs
(the trial's process, the process that splits a data set, a worker that reads one for itself)

- each task and actor of Ray Data's that asks for CPUs goes to the bundle. What asks for none, as its
  coordinators and its statistics, stays where it is;
- a task that makes actors itself, as that which lists Parquet files, takes the place along;
- what they say of memory, labels and nodes is left out: the bundle is on one node, and holds CPUs;
- the executor counts on the CPUs that it is given, and on as large a part of the cluster's memory and object
  store. It asks no coordinator: what a trial holds does not change.

Nothing of Ray Data is imported here before its module is.
"""

from __future__ import annotations

import copyreg
import importlib
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import wraps
from typing import Any, Final
from weakref import WeakSet

import ray
from ray.actor import ActorClass
from ray.remote_function import RemoteFunction
from ray.util.debug import log_once
from ray.util.scheduling_strategies import PlacementGroupSchedulingStrategy

EXECUTOR: Final = "ray.data._internal.execution.streaming_executor"
"""The module in which an executor makes what tells it how much there is."""
SHUFFLE: Final = "ray.data._internal.execution.operators.hash_shuffle"
"""The module in which joins and the like look for how much there is."""
LISTING: Final = "ray.data._internal.datasource_v2.formats.parquet.footer_file_indexer"
"""The module of what lists Parquet files, in a task that makes actors of its own."""
_LEFT_OUT: Final = ("memory", "label_selector", "fallback_strategy")


@dataclass(frozen=True, slots=True, kw_only=True)
class DataPlace:
    """The place where Ray Data runs for a trial. Goes to other processes."""

    group: Any
    """The trial's placement group."""
    bundle: int
    """The place of the bundle in it."""
    cpus: int
    """The number of its CPUs."""

    def with_cpus(self, cpus: int) -> DataPlace:
        """A part of it."""
        return replace(self, cpus=cpus)

    def enter(self) -> None:
        """See `enter_data`."""
        enter_data(self)


def enter_data(place: DataPlace) -> None:
    """From now on Ray Data, which is imported, runs there, as far as its executor is in this process."""
    log_once("cpu_warning")  # that the cluster has no free CPUs: it needs none
    _replace(RemoteFunction, "_remote", _placing(place, _of_function))
    _replace(ActorClass, "_remote", _placing(place, _of_actor))
    executors = importlib.import_module(EXECUTOR)
    _replace(executors, "create_cluster_autoscaler", lambda _: _counting(place))
    _replace(executors.StreamingExecutor, "execute", _noting)
    if (indexers := _indexer_class()) is not None:
        copyreg.pickle(indexers, lambda indexer: (placed_indexer, (place, vars(indexer))))
    _replace(importlib.import_module(SHUFFLE), "_get_total_cluster_resources", lambda _: lambda: total(place))


def leave_data() -> None:
    """End what Ray Data still does in this process. From now on it runs as it did before."""
    for executor in list(_executors):
        with suppress(Exception):  # it was ending already
            executor.shutdown(force=True)
    _executors.clear()
    if _their_own:
        copyreg.dispatch_table.pop(_indexer_class(), None)
    while _their_own:
        (owner, name), theirs = _their_own.popitem()
        setattr(owner, name, theirs)


def placed_indexer(place: DataPlace, state: dict[str, Any]) -> Any:
    """The indexer of a task, in place of Ray Data's own of Parquet files, of which this is the state.

    Its actors go to the bundle, too, and are as many as it has CPUs and not 32.
    """
    theirs = _indexer_class()

    class PlacedIndexer(theirs):  # type: ignore[misc, valid-type]
        def list_files(self, *args: Any, **options: Any) -> Any:
            enter_data(place)
            try:
                yield from super().list_files(*args, **options)
            finally:
                leave_data()

        def __reduce__(self) -> Any:
            return placed_indexer, (place, vars(self))

    made: Any = PlacedIndexer.__new__(PlacedIndexer)
    made.__dict__.update(state, _num_actors=place.cpus, _max_inflight_batches=2 * place.cpus)
    return made


def total(place: DataPlace) -> Any:
    """The total for Ray Data: its CPUs, and as large a part of what the cluster has for data."""
    from ray.data import ExecutionResources

    cluster: dict[str, float] = ray.cluster_resources()  # type: ignore[no-untyped-call]
    part = min(1.0, place.cpus / max(cluster.get("CPU", 0.0), 1.0))
    return ExecutionResources(
        cpu=place.cpus,
        gpu=0,
        memory=cluster.get("memory", 0.0) * part,
        object_store_memory=cluster.get("object_store_memory", 0.0) * part,
    )


# --- what is put in place

_their_own: Final[dict[tuple[Any, str], Any]] = {}


_executors: Final[WeakSet[Any]] = WeakSet()
"""Those that may run still: they end by themselves when they are done, or once nothing refers to them."""


def _noting(theirs: Any) -> Any:
    @wraps(theirs)
    def execute(self: Any, *args: Any, **options: Any) -> Any:
        _executors.add(self)
        return theirs(self, *args, **options)

    return execute


def _replace(owner: Any, name: str, wrap: Callable[[Any], Any]) -> None:
    theirs = _their_own.setdefault((owner, name), getattr(owner, name))
    setattr(owner, name, wrap(theirs))


def _indexer_class() -> Any:
    """None before Ray 2.60: there no task of Ray Data makes actors of its own."""
    try:
        return importlib.import_module(LISTING).FooterFileIndexer
    except ImportError:
        return None


def _of_function(function: Any) -> str:
    return str(function._function.__module__)


def _of_actor(actor: Any) -> str:
    return str(actor.__ray_metadata__.modified_class.__module__)


def _placing(place: DataPlace, module_of: Callable[[Any], str]) -> Callable[[Any], Any]:
    strategy = PlacementGroupSchedulingStrategy(place.group, place.bundle)

    def wrap(theirs: Any) -> Any:
        @wraps(theirs)
        def remote(self: Any, *args: Any, **options: Any) -> Any:
            if module_of(self).startswith("ray.data.") and _asks(options):
                options = {name: value for name, value in options.items() if name not in _LEFT_OUT}
                options["scheduling_strategy"] = strategy
                if isinstance(self, ActorClass):  # unless it says so, one takes a CPU until it has begun
                    options.setdefault("num_cpus", 0)
            return theirs(self, *args, **options)

        return remote

    return wrap


def _asks(options: dict[str, Any]) -> bool:
    return options.get("num_cpus") != 0 and options.get("lifetime") != "detached"


def _counting(place: DataPlace) -> Callable[..., Any]:
    from ray.data._internal.cluster_autoscaler import ClusterAutoscaler

    class Held(ClusterAutoscaler):
        def try_trigger_scaling(self) -> None:
            pass

        def on_executor_shutdown(self) -> None:
            pass

        def get_total_resources(self) -> Any:
            return total(place)

    return lambda *args, **options: Held()
