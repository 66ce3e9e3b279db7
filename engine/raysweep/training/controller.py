"""Ray Train's controller, in the calling process instead of in an actor, without its helpers.

`trainer.fit()` starts up to five helper processes before the first worker (controller, autoscaling
coordinator, placement group cleaner, dataset manager, preemption watcher), each of which imports ray.train,
ray.data and pandas. A training step is driven by a process that waits for it anyway, so here

- the controller's loop runs in a thread of that process: what dies with it would have died with it (the
  controller is an actor that its driver owns), and Ctrl-C reaches it;
- no placement group cleaner is needed: a group that the driver made goes with the driver;
- a fixed number of workers needs no autoscaling coordinator: the pending placement group asks the autoscaler;
- no dataset manager, for there are no datasets;
- the workers are polled as often as they report.

Figures: docs/performance.md. This leans on insides of Ray Train V2, as they are in Ray 2.60.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from typing import Any

import ray
from ray.exceptions import RayActorError
from ray.train.v2._internal.callbacks import AcceleratorSetupCallback, BackendSetupCallback
from ray.train.v2._internal.callbacks.env_callback import _initialize_env_callbacks
from ray.train.v2._internal.callbacks.metrics import ControllerMetricsCallback, WorkerMetricsCallback
from ray.train.v2._internal.exceptions import (
    UserExceptionWithTraceback,
    WorkerGroupStartupFailedError,
    WorkerHealthCheckFailedError,
)
from ray.train.v2._internal.execution.callback import ReportCallback, WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.failure_handling import FailureDecision, FailurePolicy
from ray.train.v2._internal.execution.scaling_policy.fixed import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2._internal.execution.worker_group.placement_group_handle import DefaultPlacementGroupHandle
from ray.train.v2._internal.util import ObjectRefWrapper
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, TrainingFailedError, WorkerGroupError

from raysweep.errors import one_line
from raysweep.outcome import ErrorInfo
from raysweep.training.feasibility import cluster_totals
from raysweep.training.snapshot import Snapshot
from raysweep.training.watch import Watch

POLL_FASTEST_S = 0.01
POLL_SLOWEST_S = 0.2
WAIT_SLICE_S = 0.5


class LocalController(TrainController):
    """Ray Train's state machine with a poll that follows the workers' pace."""

    async def _step(self) -> Any:
        await asyncio.sleep(0)  # the one place where a run that is waiting for room can be cancelled
        return await super()._step()

    async def _poll_workers(self) -> Any:
        status = await super()._poll_workers()
        if any(worker.training_report is not None for worker in status.worker_statuses.values()):
            self._health_check_interval_s = POLL_FASTEST_S
        else:
            self._health_check_interval_s = min(self._health_check_interval_s * 1.5, POLL_SLOWEST_S)
        return status

    @property
    def has_checkpoint(self) -> bool:
        """Whether there is a checkpoint to go on from."""
        return self._checkpoint_manager.latest_checkpoint_result is not None

    def close(self) -> None:
        """End the workers, if any are left."""
        group = self.get_worker_group()
        if group is not None:
            group.shutdown()  # type: ignore[no-untyped-call]


class _Room(DefaultPlacementGroupHandle):
    """A placement group that is waited for as long as it takes, or until the run is to stop."""

    def __init__(self, group: Any, stop: threading.Event) -> None:
        super().__init__(group)
        self._stop = stop

    def wait(self, timeout_seconds: float = 0) -> bool:
        """True once the workers' resources are reserved; the timeout is not used: a full cluster empties some
        day.

        Raises: CancelledError.
        """
        while not super().wait(WAIT_SLICE_S):
            if self._stop.is_set():
                self.shutdown()
                raise asyncio.CancelledError
        return True


class _Workers(WorkerGroup):
    """A worker group whose controller is no actor."""

    stop: threading.Event

    def _start(self) -> None:
        try:
            super()._start()  # type: ignore[no-untyped-call]
        except BaseException:
            # A worker may die between its start and the launch of the training function. Ray Train then
            # forgets the group, and its controller actor takes it along when it ends: this process does not
            # end.
            if self.has_started():
                self.shutdown()  # type: ignore[no-untyped-call]
            raise

    def _create_placement_group(self, scaling_config: Any, worker_group_context: Any) -> Any:
        made = super()._create_placement_group(scaling_config, worker_group_context)
        return _Room(made.placement_group, self.stop)

    @staticmethod
    def _get_worker_runtime_env(custom_runtime_env: Any) -> Any:
        env = WorkerGroup._get_worker_runtime_env(custom_runtime_env=custom_runtime_env)
        if not env.get("env_vars"):
            # Even an empty set of variables keeps Ray from using the worker processes that it has started
            # already.
            env.pop("env_vars", None)
        return env

    def _init_train_context_on_workers(self, workers: Any, sync_actor: Any, train_context_args: Any) -> None:
        tasks = [
            worker.actor.init_train_context.remote(
                train_run_context=self._train_run_context,
                distributed_context=worker.distributed_context,
                synchronization_actor=sync_actor,
                storage_context=self._storage_context,
                worker_callbacks=self._worker_callbacks_to_propagate,
                controller_actor=None,
                **{name: values[rank] for name, values in train_context_args.items()},
            )
            for rank, worker in enumerate(workers)
        ]
        ray.get(tasks)
        self._decorate_worker_log_file_paths(workers)


class _FixedSize(FixedScalingPolicy):
    """The workers that the spec asks for, without a coordinator."""

    def after_controller_start(self, train_run_context: Any) -> None:
        pass

    def _maybe_send_resource_request(self) -> None:
        pass

    def _cancel_resource_request(self) -> None:
        pass


class _Retries(FailurePolicy):
    """Try again `max_failures` times; a node that is taken away costs nothing."""

    def __init__(self, failure_config: Any, watch: Watch) -> None:
        super().__init__(failure_config)
        self._watch = watch
        self._failures = 0

    def make_decision(self, training_failed_error: TrainingFailedError) -> FailureDecision:
        cause = getattr(training_failed_error, "controller_failure", training_failed_error)
        if _is_preemption(cause):
            return FailureDecision.RETRY
        if not isinstance(cause, WorkerGroupError):
            self._watch.failed(_error_info(cause))
        may_pass = isinstance(cause, WorkerGroupError | WorkerGroupStartupFailedError | RayActorError)
        self._failures += 1
        is_over = self._failures > self.failure_config.max_failures
        return FailureDecision.RETRY if may_pass and not is_over else FailureDecision.RAISE


class _Ears(ReportCallback, WorkerGroupCallback):
    """Tells the watch what the controller hears."""

    def __init__(self, watch: Watch) -> None:
        self._watch = watch

    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        checkpoint = training_report.checkpoint
        self._watch.reported(
            metrics[0], checkpoint.path.rstrip("/").rsplit("/", 1)[-1] if checkpoint else None
        )

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        errors = [
            each.error for each in worker_group_status.worker_statuses.values() if each.error is not None
        ]
        if errors:
            # Where one worker raised, others may have died of it: the exception says more.
            first = next(
                (error for error in errors if isinstance(error, UserExceptionWithTraceback)), errors[0]
            )
            self._watch.failed(_error_info(first))


def run_controller(
    trainer: DataParallelTrainer, watch: Watch, snapshot: Snapshot, stop: threading.Event
) -> tuple[Any, bool]:
    """Run the trainer to its end, or until `stop` is set, in a thread of this process.

    Returns: Ray Train's result (its `error` is set if the run failed), and whether it went on from a
    checkpoint.
    Raises: CheckpointManagerInitializationError; after the workers have ended, KeyboardInterrupt, or
        CancelledError where `stop` was set.
    """
    done: Future[tuple[Any, bool]] = Future()
    thread = threading.Thread(
        target=_fill, args=(done, trainer, watch, snapshot, stop), name="raysweep-training", daemon=True
    )
    thread.start()
    try:
        return done.result()
    except BaseException:
        stop.set()
        thread.join()
        raise


def _fill(
    done: Future[tuple[Any, bool]],
    trainer: DataParallelTrainer,
    watch: Watch,
    snapshot: Snapshot,
    stop: threading.Event,
) -> None:
    try:
        with _own_logging_left_alone():
            done.set_result(asyncio.run(_run(trainer, watch, snapshot, stop)))
    except BaseException as error:  # noqa: BLE001  it is raised again in the thread that waits
        done.set_exception(error)


@contextmanager
def _own_logging_left_alone() -> Iterator[None]:
    """The controller sets up the logger `ray.train` as if the process were its own: undo that."""
    logger = logging.getLogger("ray.train")
    before = (logger.level, logger.handlers[:], logger.filters[:], logger.propagate)
    try:
        yield
    finally:
        logger.level, logger.handlers[:], logger.filters[:], logger.propagate = before


async def _run(
    trainer: DataParallelTrainer, watch: Watch, snapshot: Snapshot, stop: threading.Event
) -> tuple[Any, bool]:
    snapshot.take()
    controller = LocalController(
        train_fn_ref=ObjectRefWrapper(trainer._get_train_func()),
        train_run_context=trainer.train_run_context,
        scaling_policy=_FixedSize(trainer.train_run_context.scaling_config),
        failure_policy=_Retries(trainer.run_config.failure_config, watch),
        callbacks=[*_callbacks(trainer), _Ears(watch)],
    )

    class WorkersOfThisRun(_Workers):
        pass

    WorkersOfThisRun.stop = stop
    controller.worker_group_cls = WorkersOfThisRun
    controller._health_check_interval_s = POLL_FASTEST_S
    if len(cluster_totals()) == 1:  # a watcher of nodes that will be taken away has nothing to move to
        hooks = controller._worker_group_callbacks_to_propagate
        hooks[:] = [each for each in hooks if type(each).__name__ != "PreemptionCallback"]
    manager: Any = controller._checkpoint_manager
    manager._write_state_to_storage = lambda: snapshot.write(manager._save_state())
    is_resumed = controller.has_checkpoint
    try:
        running = asyncio.ensure_future(controller.run())  # type: ignore[no-untyped-call]
        while not running.done():
            await asyncio.wait([running], timeout=0.2)
            if stop.is_set():
                running.cancel()
                break
        await running
        return controller.get_result(), is_resumed
    finally:
        controller.close()


def _callbacks(trainer: DataParallelTrainer) -> list[Any]:
    return [
        *_initialize_env_callbacks(),
        AcceleratorSetupCallback(trainer.backend_config, trainer.train_run_context.scaling_config),
        BackendSetupCallback(trainer.backend_config),
        ControllerMetricsCallback(),
        WorkerMetricsCallback(trainer.train_run_context),
    ]


def _is_preemption(error: BaseException) -> bool:
    failures = list(getattr(error, "worker_failures", {}).values())
    causes = [getattr(failure, "health_check_failure", failure) for failure in failures]
    return type(error).__name__ == "PreemptionError" or any(
        getattr(cause, "preempted", False) for cause in causes
    )


def _error_info(error: BaseException) -> ErrorInfo:
    if isinstance(error, UserExceptionWithTraceback):
        raised, text = error._base_exc, error._traceback_str.strip()
        return ErrorInfo(
            kind="user_error",
            type=type(raised).__name__,
            message=one_line(text.splitlines()[-1]),
            traceback=text,
        )
    if isinstance(error, WorkerHealthCheckFailedError | RayActorError):
        death = getattr(error, "health_check_failure", error)
        return ErrorInfo(
            kind="worker_died", type=type(death).__name__, message=f"a worker died: {_first_line(death)}"
        )
    cause: BaseException = error.controller_failure if isinstance(error, ControllerError) else error
    lines = traceback.format_exception(cause)
    return ErrorInfo(
        kind="train_error",
        type=type(cause).__name__,
        message=one_line(f"{type(cause).__name__}: {_first_line(cause)}"),
        traceback="".join(lines),
    )


def _first_line(error: BaseException) -> str:
    return one_line(next(iter(str(error).strip().splitlines()), type(error).__name__), 300)
