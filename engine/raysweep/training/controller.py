"""Runs a trainer to its end in this process and translates what its workers raised into raysweep's errors."""

from __future__ import annotations

import asyncio
import logging
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final

from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raysweep.errors import one_line
from raysweep.outcome import ErrorInfo
from raysweep.raycompat import train
from raysweep.specs import TrainSpec
from raysweep.training.feasibility import live_nodes
from raysweep.training.progress import Watch
from raysweep.training.time_limits import Ending

_log = logging.getLogger(__name__)
_LOOK_S = 0.2
START_RETRIES: Final = 4
"""The number of times in a row that workers which did not start are started again."""
START_PAUSE_S: Final = 1.0
"""The pause before the first of these, which doubles with each; longer if `failure.backoff_initial_s` is."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RunEnd:
    """The end of a run."""

    result: Any
    """Ray Train's; its `error` is set if the run failed."""
    is_resumed: bool
    """True if it continued from a checkpoint."""
    is_ended_by_limit: bool = False
    """True if it was ended before its function returned."""


@dataclass(frozen=True, slots=True)
class Halt:
    """The ends of a run from outside: the end of its trial, or a limit of its spec."""

    stop: threading.Event
    ending: Ending

    def is_set(self) -> bool:
        """True if the run is to end now."""
        return self.stop.is_set() or self.ending.is_over


async def run_trainer(
    trainer: DataParallelTrainer,
    spec: TrainSpec,
    watch: Watch,
    halt: Halt,
    *,
    on_report: Callable[[dict[str, Any], str | None], None],
    on_begin: Callable[[int], None],
    start: tuple[str, Mapping[str, Any]] | None = None,
    is_asked: Callable[[], bool] = lambda: False,
) -> RunEnd:
    """Run the trainer to its end, or until `halt` is set.

    Args:
        trainer: What is to run.
        spec: The training.
        watch: Hears of errors, and of the workers' end.
        halt: Ends it.
        on_report: Gets rank 0's metrics, and the path of the checkpoint or None, once for each report.
        on_begin: Gets the number of workers that begin, from the newest checkpoint.
        start: The name of a checkpoint to begin from, and its metrics.
        is_asked: Whether the workers are to be asked for a checkpoint, besides what `halt` says.

    Raises: CancelledError: `halt.stop` was set.
    """
    retries = Retries(spec, watch)
    is_elastic = isinstance(trainer.scaling_config.num_workers, tuple)
    controller = train.make_controller(
        trainer,
        policy=train.Decision(trainer.run_config.failure_config, retries.is_retried, retries.is_moved),
        listener=train.Listener(
            on_report,
            lambda error: watch.failed(_error_info(error)),
            on_begin=on_begin,
            on_launch=retries.launched,
            on_end=watch.ended,
        ),
        stop=halt,
        # Where there is one only, there is none to move to, unless others may come.
        watches_nodes=is_elastic or len(live_nodes()) > 1,
        elastic=_elastic(trainer.scaling_config, halt.ending) if is_elastic else None,
    )
    retries.pause = controller.pause
    if start is not None:
        controller.begin_from(*start)
    try:
        return await _drive(controller, halt, is_asked)
    finally:
        controller.close()


async def _drive(controller: train.LocalController, halt: Halt, is_asked: Callable[[], bool]) -> RunEnd:
    is_resumed, asked_with = controller.has_checkpoint, None
    running = asyncio.ensure_future(controller.run())  # type: ignore[no-untyped-call]
    while not running.done():
        if halt.is_set() or (
            asked_with is not None and controller.newest_checkpoint is not asked_with.newest
        ):
            running.cancel()
            break
        if halt.ending.wants_checkpoint:
            controller.ask_for_checkpoint()
            asked_with = asked_with or _Asked(controller.newest_checkpoint)
        elif is_asked():
            controller.ask_for_checkpoint()
        await asyncio.wait([running], timeout=_LOOK_S)
    with suppress(asyncio.CancelledError):
        await running
        return RunEnd(result=controller.get_result(), is_resumed=is_resumed)
    if halt.stop.is_set():
        raise asyncio.CancelledError
    return RunEnd(result=controller.result_so_far(), is_resumed=is_resumed, is_ended_by_limit=True)


@dataclass(frozen=True, slots=True)
class _Asked:
    newest: Any
    """The newest checkpoint when the workers were asked for one, or None."""


def _elastic(scaling_config: Any, ending: Ending) -> Any:
    from raysweep.raycompat.elastic import ElasticController, ElasticSize

    interval_s = scaling_config.elastic_resize_monitor_interval_s
    return ElasticController, ElasticSize(scaling_config, interval_s, time_left=lambda: ending.asks_in_s)


class Retries:
    """The decision to start workers again, and the pause before.

    Failures count against `failure.max_failures`; so do deaths of workers, unless
    `failure.max_worker_deaths` is a number of its own for them. A start that fails is neither: no
    user code has run in these workers, and often the cause is a node that has just joined and dies.
    `START_RETRIES` limits those in a row. A process that resumes the run counts anew.
    """

    def __init__(self, spec: TrainSpec, watch: Watch) -> None:
        self._spec = spec
        self._watch = watch
        self._counts = {"failures": 0, "deaths": 0, "preemptions": 0, "starts": 0}
        self.pause: Callable[[float], None] = lambda seconds: None
        """Is told how long new workers are to wait."""

    def is_retried(self, cause: BaseException) -> bool:
        """After a failure, a death, or a start that failed."""
        reason = train.failed_start(cause)
        if reason is not None:
            return self._starts_again(reason)
        if not train.is_of_workers(cause):
            self._watch.failed(_error_info(cause))
        policy = self._spec.failure
        is_death = policy.max_worker_deaths is not None and train.is_death(cause)
        limit = policy.max_worker_deaths if is_death else policy.max_failures
        may = self._count("deaths" if is_death else "failures", limit)
        if train.may_pass(cause) and may:
            earlier = self._counts["deaths"] + self._counts["failures"] - 1
            self.pause(min(policy.backoff_initial_s * 2.0**earlier, policy.backoff_max_s))
            return True
        return False

    def launched(self) -> None:
        """All workers have started."""
        self._counts["starts"] = 0

    def _starts_again(self, reason: BaseException) -> bool:
        policy, problem = self._spec.failure, one_line(train.start_problem(reason), 300)
        may = self._count("starts", START_RETRIES)
        failed = self._counts["starts"]
        if not may:
            message = f"the workers failed to start {failed} times in a row; the last time: {problem}"
            text = "".join(traceback.format_exception(reason))
            error = ErrorInfo(kind="train_error", type=type(reason).__name__, message=message, traceback=text)
            self._watch.failed(error)
            return False
        pause_s = max(policy.backoff_initial_s, START_PAUSE_S) * 2.0 ** (failed - 1)
        pause_s = min(pause_s, policy.backoff_max_s)
        self.pause(pause_s)
        _log.warning(
            "the workers failed to start: %s; retry %d of %d in %g s "
            "(not counted against failure.max_failures)",
            problem,
            failed,
            START_RETRIES,
            pause_s,
        )
        return True

    def is_moved(self) -> bool:
        """After nodes were taken away."""
        limit = self._spec.failure.max_preemptions
        if self._count("preemptions", limit):
            return True
        message = f"nodes were taken away more often than failure.max_preemptions ({limit}) allows"
        self._watch.failed(ErrorInfo(kind="preempted", message=message))
        return False

    def _count(self, name: str, limit: int | None) -> bool:
        self._counts[name] += 1
        return limit is None or self._counts[name] <= limit


def _error_info(error: BaseException) -> ErrorInfo:
    raised = train.user_exception(error)
    if raised is not None:
        exception, text = raised
        return ErrorInfo(
            kind="user_error",
            type=type(exception).__name__,
            message=one_line(text.splitlines()[-1]),
            traceback=text,
        )
    death = train.worker_death(error)
    if death is not None:
        message = f"a worker died: {_first_line(death)}"
        return ErrorInfo(kind="worker_died", type=type(death).__name__, message=message)
    cause = train.cause_of(error)
    return ErrorInfo(
        kind="train_error",
        type=type(cause).__name__,
        message=one_line(f"{type(cause).__name__}: {_first_line(cause)}"),
        traceback="".join(traceback.format_exception(cause)),
    )


def _first_line(error: BaseException) -> str:
    return one_line(next(iter(str(error).strip().splitlines()), type(error).__name__), 300)
