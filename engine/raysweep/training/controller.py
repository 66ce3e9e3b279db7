"""Runs a trainer to its end in this process, and says what happened in raysweep's words."""

from __future__ import annotations

import asyncio
import threading
import traceback
from concurrent.futures import wait
from typing import Any

from ray.train.v2.api.data_parallel_trainer import DataParallelTrainer

from raysweep.errors import one_line
from raysweep.outcome import ErrorInfo
from raysweep.raycompat import train
from raysweep.threads import start_thread
from raysweep.training.feasibility import live_nodes
from raysweep.training.keeping import Keeper
from raysweep.training.watch import Watch


def run_controller(
    trainer: DataParallelTrainer, watch: Watch, keeper: Keeper, stop: threading.Event
) -> tuple[Any, bool]:
    """Run the trainer to its end, or until `stop` is set, in a thread of this process.

    Returns: Ray Train's result (its `error` is set if the run failed), and whether it went on from a
    checkpoint.
    Raises: StateRestoreError; after the workers have ended, KeyboardInterrupt, or CancelledError where `stop`
        was set.
    """

    def run() -> tuple[Any, bool]:
        with train.own_logging_left_alone():
            return asyncio.run(_run(trainer, watch, keeper, stop))

    running = start_thread(run, "raysweep-training")
    try:
        return running.result()
    except BaseException:
        stop.set()
        wait([running])
        raise


async def _run(
    trainer: DataParallelTrainer, watch: Watch, keeper: Keeper, stop: threading.Event
) -> tuple[Any, bool]:
    keeper.take()
    watch.resume(keeper.read())
    failures: Any = trainer.run_config.failure_config
    is_elastic = isinstance(trainer.scaling_config.num_workers, tuple)

    def began(workers: int) -> None:
        keeper.begin(workers)
        watch.began(workers)

    def reported(metrics: dict[str, Any], path: str | None) -> None:
        watch.reported(metrics, path.rstrip("/").rsplit("/", 1)[-1] if path else None)
        if path:
            keeper.collect()

    controller = train.make_controller(
        trainer,
        policy=train.Decision(failures, _Retries(failures.max_failures, watch)),
        listener=train.Listener(
            reported,
            lambda error: watch.failed(_error_info(error)),
            on_taken=watch.taken,
            on_begin=began,
            on_end=watch.ended,
        ),
        store=lambda text: keeper.write(watch.history.seal(text)),
        stop=stop,
        # Where there is one only, there is none to move to, unless others may come.
        watches_nodes=is_elastic or len(live_nodes()) > 1,
        elastic=_elastic(trainer.scaling_config) if is_elastic else None,
    )
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


def _elastic(scaling_config: Any) -> Any:
    from raysweep.raycompat.elastic import ElasticController, ElasticSize

    return ElasticController, ElasticSize(scaling_config, scaling_config.elastic_resize_monitor_interval_s)


class _Retries:
    """Try again `max_failures` times."""

    def __init__(self, max_failures: int, watch: Watch) -> None:
        self._max_failures = max_failures
        self._watch = watch
        self._failures = 0

    def __call__(self, cause: BaseException) -> bool:
        if not train.is_of_workers(cause):
            self._watch.failed(_error_info(cause))
        self._failures += 1
        return train.may_pass(cause) and self._failures <= self._max_failures


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
