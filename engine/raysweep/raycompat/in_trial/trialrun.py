"""A run of Ray Train V2 inside a trial: its controller in the trial's process, its workers in its bundles.

`trainer.fit()` starts a controller actor, which asks for a placement group of its own. In a trial that group
would come on top of what the trial holds: with all drivers placed, none of their groups may be. Here the
workers go into bundles of the group that the trial holds already, and the controller's loop runs on a thread
of the trial's own process: what ends that process ends the workers, which are its actors; nothing is left.
Imports Ray Train.
"""

from __future__ import annotations

import asyncio
import copy
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Final

import pyarrow.fs
import ray
from ray.train import Checkpoint
from ray.train._internal.session import _TrainingResult
from ray.train.constants import DEFAULT_STORAGE_PATH
from ray.train.v2._internal.execution.callback import ReportCallback, WorkerGroupCallback
from ray.train.v2._internal.execution.failure_handling import (
    FailureDecision,
    FailurePolicy,
    create_failure_policy,
)
from ray.train.v2._internal.execution.worker_group.placement_group_handle import (
    DefaultPlacementGroupHandle,
)
from ray.train.v2._internal.util import ObjectRefWrapper
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import WorkerGroupError

from raysweep.raycompat.in_trial.dataplace import DataPlace
from raysweep.raycompat.in_trial.trialdata import EndsRun, TrialDatasets, split_names
from raysweep.raycompat.in_trial.validation import ValidationAsked, Validations, validation_asked_by
from raysweep.raycompat.preemption import HAS_NOTICES, PreemptionError, PreemptionInfo
from raysweep.raycompat.train import (
    POLL_FASTEST_S,
    FixedSize,
    LocalController,
    LocalWorkers,
    is_preemption,
)
from raysweep.raycompat.train import own_logging_left_alone as _own_logging_left_alone

STOP_SLICE_S: Final = 0.1
# They see to a placement group and to a controller that are actors of Ray's own, and there are neither; or
# `TrialDatasets` stands in their place.
_LEFT_OUT: Final = ("PlacementGroupCleanerCallback", "StateManagerCallback", "DatasetsCallback")


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The request of a trainer. `refused`: the parts that a trial cannot give: field, what, what to do."""

    num_workers: int
    bundle: dict[str, float]
    strategy: str
    min_workers: int | None = None
    """Fewer would do, down to so many; None: it has to be that number."""
    split: int = 0
    """The number of data sets that are split among the workers."""
    whole: int = 0
    """The number that each worker reads for itself."""
    refused: tuple[tuple[str, str, str], ...] = ()
    validation: ValidationAsked | None = None
    """The request of its `validation_config`; None: it has none."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunPlace:
    """The place where a run keeps its checkpoints while the attempt lasts: a folder that all nodes reach."""

    storage_path: str
    folder: str
    """Its name in `storage_path`."""
    is_given: bool = False
    """True if the trainer has given the storage, and with it perhaps a file system of its own."""


def asked_by(trainer: DataParallelTrainer) -> Asked:
    """The request of this trainer."""
    scaling: Any = trainer.scaling_config
    split = len(split_names(trainer)) if trainer.datasets else 0
    validation = trainer.validation_config
    refused = [
        (
            scaling.num_workers == 0,
            "ScalingConfig",
            "num_workers=0, which trains in the calling process",
            "give num_workers=1",
        ),
        (scaling.use_tpu, "trainer", "use_tpu", "run it outside of a sweep"),
        (
            scaling.label_selector,
            "trainer",
            "ScalingConfig.label_selector",
            "write it into the spec, as resources.label_selector",
        ),
    ]
    return Asked(
        num_workers=scaling.max_workers,
        min_workers=max(1, scaling.min_workers) if scaling.elasticity_enabled else None,
        split=split,
        whole=len(trainer.datasets) - split,
        bundle={
            name: float(amount) for name, amount in scaling._resources_per_worker_not_none.items() if amount
        },
        strategy=scaling.placement_strategy,
        refused=tuple((field, what, fix) for is_there, field, what, fix in refused if is_there),
        validation=validation_asked_by(validation) if validation is not None else None,
    )


def place_run(trainer: DataParallelTrainer, storage_path: str, sweep: str, folder: str) -> RunPlace:
    """The place where this run keeps its checkpoints.

    Args:
        trainer: Whose own storage path is used where it has one, below it a folder of this sweep's.
        storage_path: Else this one.
        sweep: The name of the sweep's folder, which no other sweep has.
        folder: The name of the run's.
    """
    given = trainer.run_config.storage_path
    if given in (None, DEFAULT_STORAGE_PATH):
        return RunPlace(storage_path=storage_path, folder=folder)
    return RunPlace(storage_path=f"{str(given).rstrip('/')}/{sweep}", folder=folder, is_given=True)


def find_group() -> Any:
    """The placement group that this process runs in; None: it is in none, or not connected to Ray."""
    if not ray.is_initialized():
        return None
    return ray.util.get_current_placement_group()


# --- the run


class TrialRun:
    """One run, from its folder in the storage to its end.

    Args:
        trainer: What is to run, and stays as it is. Of the run, its name, its storage, how many checkpoints
            it keeps and how many workers it has are the trial's.
        place: Its folder.
        group: The placement group that the workers go into.
        first: The bundle of rank 0; the other ranks have those that follow.
        on_report: Gets rank 0's metrics, the checkpoint as Ray has it or None, and which validation was asked
            for or None, once for each report. What it raises ends the run.
        workers: How many, where the trainer has a range.
        data: Where its data sets are read; None: the trial holds no CPUs for that.
        wrap: Makes the function that the workers run of the trainer's own.
        wants_checkpoint: Whether the trial is asked for a checkpoint: then the workers are.
        validations: Knows what came of those that were asked for; None: the trainer validates nothing.
    """

    def __init__(
        self,
        trainer: DataParallelTrainer,
        place: RunPlace,
        group: Any,
        first: int,
        on_report: Callable[[dict[str, Any], Any, Any], None],
        *,
        workers: int | None = None,
        data: DataPlace | None = None,
        wrap: Callable[[Any], Any] = lambda function: function,
        wants_checkpoint: Callable[[], bool] = lambda: False,
        validations: Validations | None = None,
    ) -> None:
        config: Any = trainer.run_config
        keeps = config.checkpoint_config
        if keeps.num_to_keep is None:
            keeps = replace(keeps, num_to_keep=1)  # the sweep keeps those that it was handed
        mine: Any = replace(
            config,
            name=place.folder,
            storage_path=place.storage_path,
            storage_filesystem=config.storage_filesystem if place.is_given else None,
            checkpoint_config=keeps,
        )
        scaling: Any = trainer.scaling_config
        if workers is not None and workers != scaling.num_workers:
            scaling = replace(scaling, num_workers=workers)
        self._trainer = trainer = copy.copy(trainer)
        trainer.run_config, trainer.scaling_config = mine, scaling
        trainer.train_run_context = replace(
            trainer.train_run_context, run_config=mine, scaling_config=scaling
        )
        self._datasets: list[TrialDatasets] = []
        self.data_of_worker: DataPlace | None = None
        """The place of Ray Data that a worker uses itself; None: as everywhere."""
        if data is not None:
            self.data_of_worker = data.with_cpus(max(1, data.cpus // scaling.max_workers))
            if trainer.datasets:
                self._datasets = [TrialDatasets(trainer, data, scaling.max_workers)]
                self.data_of_worker = self._datasets[0].of_worker
        self._config = mine
        self._storage: Any = mine.storage_context
        self._group, self._first, self._on_report = group, first, on_report
        self._wrap, self._wants_checkpoint = wrap, wants_checkpoint
        self._validations = validations
        self._restored: Checkpoint | None = None

    def check_datasets(self) -> None:
        """See that the data sets can be read where they are, as far as they are made already.

        Raises: DataRefused.
        """
        for each in self._datasets:
            each.check()

    def begin_from(self, folder: Path) -> None:
        """`ray.train.get_checkpoint()` in the workers gives what is in this folder, on whatever node."""
        given = Checkpoint.from_directory(str(folder))
        self._restored = self._storage.persist_current_checkpoint(given, "restored")

    def run(self, stop: threading.Event) -> Any:
        """Run to the end, or until `stop` is set; blocks. The workers are gone when it returns or raises.

        Returns: Ray Train's result; its `error` is set if the run failed.
        Raises: CancelledError: `stop` was set. DataRefused. What `on_report` raised.
        """
        with _own_logging_left_alone():
            try:
                return asyncio.run(self._drive(stop))
            except EndsRun as failed:
                raise failed.error from None

    async def _drive(self, stop: threading.Event) -> Any:
        controller = self._make_controller()
        try:
            running = asyncio.ensure_future(controller.run())  # type: ignore[no-untyped-call]
            while not running.done():
                await asyncio.wait([running], timeout=STOP_SLICE_S)
                if stop.is_set():
                    running.cancel()
                    break
                if self._wants_checkpoint():
                    controller.ask_for_checkpoint()
                if self._validations is not None:
                    self._validations.settle()
            await running
            return controller.get_result()
        finally:
            controller.kill()
            for each in self._datasets:
                each.close()

    def _make_controller(self) -> _Controller:
        trainer = self._trainer
        context = trainer.train_run_context

        class Workers(_Workers):
            group = self._group
            first = self._first

        callbacks: list[Any] = trainer._create_default_callbacks()
        policy = AnnouncedNodes(self._config.failure_config)
        controller = _Controller(
            train_fn_ref=ObjectRefWrapper(self._wrap(trainer._get_train_func())),
            train_run_context=context,
            scaling_policy=FixedSize(context.scaling_config),
            failure_policy=policy,
            callbacks=[
                *(each for each in callbacks if type(each).__name__ not in _LEFT_OUT),
                *self._datasets,
                *([self._validations] if self._validations is not None else []),
                Reports(self._on_report, self._validations),
            ],
        )
        policy.announced = lambda: controller.announced
        controller.worker_group_cls = Workers
        controller.watch_other_nodes()
        controller._health_check_interval_s = POLL_FASTEST_S
        manager: Any = controller._checkpoint_manager
        if self._validations is not None:
            self._validations.manager = manager
        # What a later attempt begins from, the sweep says.
        manager._write_state_to_storage = lambda: None
        if self._restored is not None:
            manager._latest_checkpoint_result = _TrainingResult(checkpoint=self._restored, metrics={})
        return controller

    def remove_earlier(self, prefix: str) -> None:
        """Remove the folders of runs that begin so and were left by attempts whose process was killed."""
        files, here = self._storage.storage_filesystem, self._storage.storage_fs_path
        with suppress(OSError):
            for found in files.get_file_info(pyarrow.fs.FileSelector(here, allow_not_found=True)):
                if found.base_name.startswith(prefix) and found.base_name != self._config.name:
                    files.delete_dir(found.path)

    def remove(self) -> None:
        """Remove its folder, as far as that can be done."""
        with suppress(OSError):
            self._storage.storage_filesystem.delete_dir(self._storage.experiment_fs_path)


class AnnouncedNodes(FailurePolicy):
    """Ray Train's own policy, but a node that goes before its announced time is one that was taken away.

    It costs what `max_preemption_failures` of the FailureConfig says, and nothing of `max_failures`.
    """

    def __init__(self, failure_config: Any) -> None:
        super().__init__(failure_config)
        self._theirs = create_failure_policy(failure_config)
        self.announced: Callable[[], frozenset[int]] = frozenset
        """The ranks on nodes that are about to go."""

    def make_decision(self, training_failed_error: Any) -> FailureDecision:
        announced = self.announced()
        error = training_failed_error
        if HAS_NOTICES and isinstance(error, WorkerGroupError) and is_preemption(error, announced):
            ranks = {"": sorted(announced)}
            error = PreemptionError(PreemptionInfo(deadline_ms=None, preempted_node_to_ranks=ranks))
        return self._theirs.make_decision(error)


class _Controller(LocalController):
    def watch_other_nodes(self) -> None:
        """Look only for other nodes than this process's that will be taken away, if workers are on any.

        Of this one the sweep hears and asks the trial: its workers would be asked for two checkpoints.
        """
        here = ray.get_runtime_context().get_node_id()
        hooks: list[Any] = self._worker_group_callbacks_to_propagate
        for each in hooks:
            if type(each).__name__ == "PreemptionCallback":
                watch = each.after_worker_group_start
                each.after_worker_group_start = lambda group, watch=watch: _watch(watch, group, here)

    def kill(self) -> None:
        """End the workers at once, if any are left: no hook of theirs is waited for."""
        group: Any = self.get_worker_group()
        if group is not None and group.has_started():
            group.kill()


def _watch(watch: Callable[[Any], None], group: Any, here: str) -> None:
    """Begin to look for nodes of this group's workers that will be taken away; all workers are told."""
    workers = group.get_workers()
    if any(worker.metadata.node_id != here for worker in workers):
        shown = [_without_node(worker) if worker.metadata.node_id == here else worker for worker in workers]
        watch(SimpleNamespace(get_workers=lambda: shown))


def _without_node(worker: Any) -> Any:
    return replace(worker, metadata=replace(worker.metadata, node_id=""))


class _Workers(LocalWorkers):
    """Workers in bundles of a placement group that is not theirs."""

    group: Any
    first: int

    def _create_placement_group(self, scaling_config: Any, worker_group_context: Any) -> Any:
        return _Lent(self.group)

    def _create_workers(
        self,
        num_workers: int,
        placement_group: Any,
        resources_per_worker: dict[str, float],
        placement_group_bundle_indices: list[int] | None = None,
        starting_world_rank: int = 0,
        world_size: int | None = None,
        replica_group_size: int | None = None,
    ) -> Any:
        indices = placement_group_bundle_indices or [self.first + rank for rank in range(num_workers)]
        return super()._create_workers(
            num_workers,
            placement_group,
            resources_per_worker,
            indices,
            starting_world_rank,
            world_size,
            replica_group_size,
        )

    def kill(self) -> None:
        """End them at once: the hooks that Ray Train would give them seconds for are those of dead actors."""
        for worker in self.get_workers():
            ray.kill(worker.actor)
        self.abort()  # type: ignore[no-untyped-call]


class _Lent(DefaultPlacementGroupHandle):
    """The trial's own group: it is there, and it stays."""

    def wait(self, timeout_seconds: float = 0) -> bool:
        return True

    def shutdown(self) -> None:
        pass


# --- its reports


class Reports(ReportCallback, WorkerGroupCallback):
    """Hands each report on, once.

    Workers that Ray Train starts again begin from their newest checkpoint: they repeat the reports after it,
    and which report of the trial is its nth must not depend on that.
    """

    def __init__(
        self, on_report: Callable[[dict[str, Any], Any, Any], None], validations: Validations | None = None
    ) -> None:
        self._on_report = on_report
        self._validations = validations
        self._made = 0
        self._at = 0
        self._at_checkpoint = 0

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._at = self._at_checkpoint

    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        self._at += 1
        checkpoint, validation = training_report.checkpoint, training_report.validation or None
        if checkpoint is not None:
            self._at_checkpoint = self._at
        if self._at <= self._made:
            if validation is not None and self._validations is not None:
                self._validations.drop(checkpoint)
            return
        self._made = self._at
        try:
            self._on_report(metrics[0], checkpoint, validation)
        except Exception as error:
            raise EndsRun(error) from error
