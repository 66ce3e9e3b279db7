"""Ray Train V2's controller, in the calling process instead of in an actor, without its helpers.

`trainer.fit()` starts up to five helper processes before the first worker (controller, autoscaling
coordinator, placement group cleaner, dataset manager, preemption watcher), each of which imports ray.train,
ray.data and pandas. A training step is driven by a process that waits for it anyway, so here

- the controller's loop runs in that process: what dies with it would have died with it (the controller is an
  actor that its driver owns), and Ctrl-C reaches it;
- no placement group cleaner is needed: a group that the driver made goes with the driver;
- a fixed number of workers needs no autoscaling coordinator: the pending placement group asks the autoscaler;
  an elastic one looks at the nodes itself (`elastic`);
- a dataset manager only where there are datasets;
- the workers are polled as often as they report.

Figures: docs/performance.md.
"""

from __future__ import annotations

import asyncio
import logging
import math
import re
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, Protocol

import ray
from ray.exceptions import ActorUnschedulableError, RayActorError, RuntimeEnvSetupError
from ray.train import Checkpoint
from ray.train._internal.session import _TrainingResult
from ray.train.v2._internal.callbacks import AcceleratorSetupCallback, BackendSetupCallback
from ray.train.v2._internal.callbacks.env_callback import _initialize_env_callbacks
from ray.train.v2._internal.callbacks.metrics import ControllerMetricsCallback, WorkerMetricsCallback
from ray.train.v2._internal.exceptions import (
    UserExceptionWithTraceback,
    WorkerGroupStartupFailedError,
    WorkerGroupStartupTimeoutError,
    WorkerHealthCheckFailedError,
)
from ray.train.v2._internal.execution.callback import ReportCallback, WorkerGroupCallback
from ray.train.v2._internal.execution.controller import TrainController
from ray.train.v2._internal.execution.failure_handling import FailureDecision, FailurePolicy
from ray.train.v2._internal.execution.scaling_policy.fixed import FixedScalingPolicy
from ray.train.v2._internal.execution.worker_group import WorkerGroup
from ray.train.v2._internal.execution.worker_group.placement_group_handle import (
    DefaultPlacementGroupHandle,
)
from ray.train.v2._internal.util import ObjectRefWrapper
from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer
from ray.train.v2.api.exceptions import ControllerError, WorkerGroupError

from raysweep.raycompat.preemption import HAS_NOTICES, PreemptionInfo

__all__ = [
    "Decision",
    "FixedSize",
    "Listener",
    "LocalController",
    "LocalWorkers",
    "UserExceptionWithTraceback",
    "WorkerGroupStartupFailedError",
    "WorkerHealthCheckFailedError",
    "make_controller",
    "own_logging_left_alone",
]

POLL_FASTEST_S = 0.01
POLL_SLOWEST_S = 0.2
WAIT_SLICE_S = 0.5
_DETAIL: Final = re.compile(r"\t(class_name|actor_id|pid|name|namespace|ip): ")
PLACE_S = 15.0
"""The wait for room of more workers than an elastic run needs; then the room is counted again."""
ASKED_S = 86400.0
"""The time limit for workers to report a requested checkpoint; the caller ends the run."""


class Signal(Protocol):
    """Such as a `threading.Event`."""

    def is_set(self) -> bool:
        """True if the run is to end."""
        ...


@contextmanager
def own_logging_left_alone() -> Iterator[None]:
    """The controller sets up the logger `ray.train` as if the process were its own: undo that."""
    logger = logging.getLogger("ray.train")
    before = (logger.level, logger.handlers[:], logger.filters[:], logger.propagate)
    try:
        yield
    finally:
        logger.level, logger.handlers[:], logger.filters[:], logger.propagate = before


# --- what failed


def cause_of(error: BaseException) -> BaseException:
    """The error that the controller wrapped in its own, if it did."""
    cause: BaseException = error.controller_failure if isinstance(error, ControllerError) else error
    return cause


def user_exception(error: BaseException) -> tuple[BaseException, str] | None:
    """The exception of the user's function in a worker, and its traceback; None for any other error."""
    if isinstance(error, UserExceptionWithTraceback):
        return error._base_exc, error._traceback_str.strip()
    return None


def worker_death(error: BaseException) -> BaseException | None:
    """The death of a worker; None for any other error."""
    if isinstance(error, WorkerHealthCheckFailedError | RayActorError):
        death: BaseException = getattr(error, "health_check_failure", error)
        return death
    return None


def is_death(error: BaseException) -> bool:
    """True if workers died, and none of them raised."""
    failures: dict[int, BaseException] = getattr(error, "worker_failures", {})
    causes = tuple(failures.values()) or (error,)
    return any(map(worker_death, causes)) and not any(map(user_exception, causes))


def failed_start(error: BaseException) -> BaseException | None:
    """The reason why workers did not start, where no user code has run in them; None for any other error."""
    if isinstance(error, WorkerGroupStartupFailedError):
        return error.__cause__ or error
    return error if isinstance(error, ActorUnschedulableError | RuntimeEnvSetupError) else None


def start_problem(error: BaseException) -> str:
    """In one line, without the ids that Ray lists, the reason why a worker did not start."""
    lines = [line for line in str(error).splitlines() if line.strip() and not _DETAIL.match(line)]
    if getattr(error, "actor_init_failed", False):  # in between is a traceback
        lines = lines[-1:]
    elif len(lines) > 1 and isinstance(error, RayActorError):
        lines = lines[1:]
    return " ".join(" ".join(lines).split()).rstrip(".") or type(error).__name__


def is_of_workers(error: BaseException) -> bool:
    """True if the controller told the listener already: it is what the workers raised, or died of."""
    return isinstance(error, WorkerGroupError)


def may_pass(error: BaseException) -> bool:
    """True if new workers may do better."""
    return isinstance(error, WorkerGroupError | RayActorError)


def is_preemption(error: BaseException, announced: frozenset[int] = frozenset()) -> bool:
    """True if a node was taken away; `announced` are the ranks on nodes that were said to go.

    Ray itself counts a node that goes before the time that was announced as one that failed.
    """
    failures: dict[int, BaseException] = getattr(error, "worker_failures", {})
    return type(error).__name__ == "PreemptionError" or any(
        getattr(death, "preempted", False) or rank in announced
        for rank, failure in failures.items()
        if (death := worker_death(failure)) is not None
    )


# --- what the caller hears and decides


class Decision(FailurePolicy):
    """Workers are started again where a node was taken away and `is_moved` says so, or `is_retried` does of
    what failed, which may be the start itself."""

    def __init__(
        self,
        failure_config: Any,
        is_retried: Callable[[BaseException], bool],
        is_moved: Callable[[], bool] = lambda: True,
    ) -> None:
        super().__init__(failure_config)
        self._is_retried = is_retried
        self._is_moved = is_moved
        self.announced: Callable[[], frozenset[int]] = frozenset
        """The ranks on nodes that are about to go."""

    def make_decision(self, training_failed_error: Any) -> FailureDecision:
        cause = cause_of(training_failed_error)
        if isinstance(cause, WorkerGroupStartupTimeoutError):  # elastic: another number may have room
            return FailureDecision.RETRY
        is_retried = self._is_moved() if is_preemption(cause, self.announced()) else self._is_retried(cause)
        return FailureDecision.RETRY if is_retried else FailureDecision.RAISE


class Listener(ReportCallback, WorkerGroupCallback):
    """Hands on what the controller hears.

    `on_report` gets rank 0's metrics, and the path of the checkpoint if there is one. `on_begin` gets the
    number of workers before they are handed the training function, `on_launch` is called once all of them
    have it, and `on_end` once they are gone.
    `on_error` gets the first exception of the user's function, or else what the first worker died of: where
    one worker raised, others may have died of it.
    """

    def __init__(
        self,
        on_report: Callable[[dict[str, Any], str | None], None],
        on_error: Callable[[BaseException], None],
        *,
        on_begin: Callable[[int], None] = lambda workers: None,
        on_launch: Callable[[], None] = lambda: None,
        on_end: Callable[[], None] = lambda: None,
    ) -> None:
        self._on_report = on_report
        self._on_error = on_error
        self._on_begin, self._on_end = on_begin, on_end
        self._on_launch = on_launch

    def after_worker_group_start(self, worker_group: Any) -> None:
        self._on_begin(len(worker_group.get_workers()))

    def after_worker_group_training_start(self, worker_group: Any) -> None:
        self._on_launch()

    def after_worker_group_shutdown(self, worker_group_context: Any) -> None:
        self._on_end()

    def after_worker_group_abort(self, worker_group_context: Any) -> None:
        self._on_end()

    def after_report(self, training_report: Any, metrics: list[dict[str, Any]]) -> None:
        checkpoint = training_report.checkpoint
        self._on_report(metrics[0], checkpoint.path if checkpoint else None)

    def after_worker_group_poll_status(self, worker_group_status: Any) -> None:
        statuses = worker_group_status.worker_statuses.values()
        errors = [each.error for each in statuses if each.error is not None]
        if errors:
            self._on_error(next((error for error in errors if user_exception(error)), errors[0]))


# --- the controller


class LocalController(TrainController):
    """Ray Train's state machine with a poll that follows the workers' pace."""

    _asked: Any = None
    _pause_s = 0.0

    async def _step(self) -> Any:
        await asyncio.sleep(0)  # the one place where a run that is waiting for room can be cancelled
        if self._pause_s:
            self.close()  # nothing is held meanwhile
            pause_s, self._pause_s = self._pause_s, 0.0
            await asyncio.sleep(pause_s)
        return await super()._step()

    def pause(self, seconds: float) -> None:
        """Let the next workers begin so much later."""
        self._pause_s = seconds

    def ask_for_checkpoint(self) -> None:
        """Let `get_preemption_info()` of the present workers say that they are to report one; once.

        Before Ray 2.58 workers have no such call, and are asked for nothing.
        """
        group: Any = self.get_worker_group()
        if not HAS_NOTICES or group is None or group is self._asked or not group.has_started():
            return
        self._asked = group
        until_ms = int((time.time() + ASKED_S) * 1000)
        for worker in group.get_workers():
            info = PreemptionInfo(deadline_ms=until_ms, preempted_node_to_ranks={})
            worker.actor.mark_preempt.remote(info)

    async def _poll_workers(self) -> Any:
        status = await super()._poll_workers()
        if any(worker.training_report is not None for worker in status.worker_statuses.values()):
            self._health_check_interval_s = POLL_FASTEST_S
        else:
            self._health_check_interval_s = min(self._health_check_interval_s * 1.5, POLL_SLOWEST_S)
        return status

    @property
    def newest_checkpoint(self) -> Any:
        """The newest checkpoint that counts, as the checkpoint manager has it; None before the first."""
        return self._checkpoint_manager.latest_checkpoint_result

    @property
    def has_checkpoint(self) -> bool:
        """True if there is a checkpoint to continue from."""
        return self.newest_checkpoint is not None

    def begin_from(self, name: str, metrics: Mapping[str, Any]) -> None:
        """Let the workers begin from a checkpoint in the run's folder; `metrics`: those of its report."""
        storage: Any = self._train_run_context.run_config.storage_context
        path, files = storage.build_checkpoint_path_from_name(name), storage.storage_filesystem
        manager: Any = self._checkpoint_manager
        manager._latest_checkpoint_result = _TrainingResult(Checkpoint(path, files), dict(metrics))

    def result_so_far(self) -> Any:
        """The result of a run that is ended before its time: its newest checkpoint is the last."""
        return self._build_result()

    @property
    def announced(self) -> frozenset[int]:
        """The ranks on nodes that are about to go."""
        info = getattr(self.get_state(), "preemption_info", None)
        return frozenset() if info is None else frozenset(info.preempted_ranks)

    def follow(self, policy: Any) -> None:
        """Tell a policy what it asks for; that of a fixed number asks for nothing."""

    def watch_no_nodes(self) -> None:
        """Start no process that looks for nodes which will be taken away."""
        hooks = self._worker_group_callbacks_to_propagate
        hooks[:] = [each for each in hooks if type(each).__name__ != "PreemptionCallback"]

    def close(self) -> None:
        """End the workers, if any are left."""
        if self.get_worker_group() is not None:
            self._shutdown_worker_group()  # type: ignore[no-untyped-call]


def make_controller(
    trainer: DataParallelTrainer,
    *,
    policy: Decision,
    listener: Listener,
    stop: Signal,
    watches_nodes: bool,
    elastic: tuple[type[LocalController], FixedSize] | None = None,
) -> LocalController:
    """The controller of this trainer.

    Args:
        trainer: What is to run.
        policy: What happens when workers fail.
        listener: Hears of reports and errors.
        stop: Ends the wait for room.
        watches_nodes: Whether workers are moved from nodes that will be taken away.
        elastic: Where the number of workers may change: the controller's class, and what says the number.
    """
    context = trainer.train_run_context
    made_by, size = elastic or (LocalController, FixedSize(context.scaling_config))
    controller = made_by(
        train_fn_ref=ObjectRefWrapper(trainer._get_train_func()),
        train_run_context=context,
        scaling_policy=size,
        failure_policy=policy,
        callbacks=[
            *_initialize_env_callbacks(),
            AcceleratorSetupCallback(trainer.backend_config, context.scaling_config),
            BackendSetupCallback(trainer.backend_config),
            ControllerMetricsCallback(),
            WorkerMetricsCallback(context),
            *_datasets(trainer),
            listener,
        ],
    )

    policy.announced = lambda: controller.announced

    class WorkersOfThisRun(LocalWorkers):
        pass

    WorkersOfThisRun.stop = stop
    if elastic is not None:
        WorkersOfThisRun.fewest = context.scaling_config.min_workers
    controller.worker_group_cls = WorkersOfThisRun
    controller._health_check_interval_s = POLL_FASTEST_S
    controller.follow(size)
    if not watches_nodes:
        controller.watch_no_nodes()
    manager: Any = controller._checkpoint_manager
    manager._write_state_to_storage = lambda: None  # the trial's checkpoints are the list
    return controller


def _datasets(trainer: DataParallelTrainer) -> list[Any]:
    """The callback that splits the data sets among the workers; none without any, as it imports Ray Data."""
    if not trainer.datasets:
        return []
    from ray.train.v2._internal.callbacks.datasets import DatasetsCallback

    datasets: dict[str, Any] = trainer.datasets
    return [DatasetsCallback(trainer.train_run_context, datasets)]


class _Room(DefaultPlacementGroupHandle):
    """A placement group that is waited for as long as it takes, or until the run is to stop.

    `patience_s`: only so long, where fewer workers would do.
    """

    def __init__(self, group: Any, stop: Signal, patience_s: float = math.inf) -> None:
        super().__init__(group)
        self._stop = stop
        self._patience_s = patience_s

    def wait(self, timeout_seconds: float = 0) -> bool:
        """True once the workers' resources are reserved; the timeout is not used: a full cluster empties some
        day.

        Raises: CancelledError.
        """
        until = time.monotonic() + self._patience_s
        while not super().wait(WAIT_SLICE_S):
            if self._stop.is_set():
                self.shutdown()
                raise asyncio.CancelledError
            if time.monotonic() >= until:
                return False
        return True


class LocalWorkers(WorkerGroup):
    """A worker group whose controller is no actor."""

    stop: Signal
    fewest: int | None = None
    """Of an elastic run: with more workers than these it is not waited for ever."""

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
        is_least = self.fewest is None or worker_group_context.num_workers <= self.fewest
        return _Room(made.placement_group, self.stop, math.inf if is_least else PLACE_S)

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


class FixedSize(FixedScalingPolicy):
    """The workers that the spec asks for, without a coordinator."""

    def after_controller_start(self, train_run_context: Any) -> None:
        pass

    def _maybe_send_resource_request(self) -> None:
        pass

    def _cancel_resource_request(self) -> None:
        pass
