"""The calls of Ray Train V2 in a trial of a sweep. Imports Ray Train."""

from __future__ import annotations

import builtins
import logging
import shutil
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NoReturn

from ray.train.v2._internal.execution.context import get_train_context
from ray.train.v2._internal.execution.train_fn_utils import TrainFnUtils
from ray.train.v2._internal.logging import patch_print

from raysweep.raycompat.in_trial.trialcalls import TrialCalls


def heard_of_end() -> Any:
    """The notice that this worker is about to be ended; None: there is none, as always before Ray 2.58."""
    import ray.train

    ask = getattr(ray.train, "get_preemption_info", None)
    return None if ask is None else ask()


@contextmanager
def plain_output() -> Iterator[None]:
    """In a worker: `print` only writes to standard output, and Ray Train's own lines go to its files alone.

    Else Ray Train writes each print a second time, as a log record.
    """
    before = builtins.print
    builtins.print = getattr(patch_print, "_original_print", before)
    loggers = [logging.getLogger(name) for name in ("ray.train", "ray", "")]
    handlers = [each for logger in loggers for each in logger.handlers if _writes_to_console(each)]
    for each in handlers:
        each.addFilter(_is_of_user)
    try:
        yield
    finally:
        builtins.print = before
        for each in handlers:
            each.removeFilter(_is_of_user)


def _writes_to_console(handler: logging.Handler) -> bool:
    return isinstance(handler, logging.StreamHandler) and not isinstance(handler, logging.FileHandler)


def _is_of_user(record: logging.LogRecord) -> bool:
    return not record.name.startswith("ray.train")


def count_reports() -> int:
    """The number of reports that this worker of a Ray Train run has made."""
    return int(get_train_context().report_call_index)


class TrainWorker(TrainFnUtils):
    """Behind `ray.train.report`, `get_checkpoint`, `get_context` and their siblings."""

    def __init__(self, calls: TrialCalls) -> None:
        self._calls = calls

    def report(
        self,
        metrics: dict[str, Any],
        checkpoint: Any = None,
        checkpoint_dir_name: str | None = None,
        checkpoint_upload_mode: Any = None,
        delete_local_checkpoint_after_upload: bool | None = None,
        checkpoint_upload_fn: Callable[..., Any] | None = None,
        validation: Any = False,
    ) -> None:
        if checkpoint_upload_fn is not None:
            _refuse("report(checkpoint_upload_fn=…)", "leave it out: the sweep stores checkpoints")
        if validation:
            _refuse("report(validation=…)", "report the validation's metrics instead")
        self._calls.report(metrics, checkpoint)
        # Returns when the directory is copied; a caller that says so hands its own over.
        if checkpoint is not None and delete_local_checkpoint_after_upload:
            shutil.rmtree(checkpoint.path, ignore_errors=True)

    def get_checkpoint(self) -> Any:
        return self._calls.get_checkpoint()

    def get_context(self) -> Any:
        from ray.train.v2.api.context import LocalTrainContext

        calls = self._calls
        return LocalTrainContext(
            experiment_name=calls.experiment,
            world_size=calls.world_size,
            world_rank=calls.rank,
            local_rank=calls.local_rank,
            local_world_size=calls.world_size,
            node_rank=calls.node_rank,
        )

    def get_all_reported_checkpoints(self, *args: Any, **options: Any) -> NoReturn:
        _refuse("get_all_reported_checkpoints()", "use ray.train.get_checkpoint() for the newest")

    def get_dataset_shard(self, dataset_info: Any) -> NoReturn:
        _refuse("get_dataset_shard()", "load the data in the trainable, or give it by tune.with_parameters")

    def get_preemption_info(self) -> None:
        return None

    def is_distributed(self) -> bool:
        return self._calls.world_size > 1

    def barrier(self) -> None:
        if self._calls.world_size > 1:
            _refuse("collective.barrier()", "use that of torch.distributed")

    def broadcast_from_rank_zero(self, data: Any) -> Any:
        if self._calls.world_size > 1:
            _refuse("collective.broadcast_from_rank_zero()", "use that of torch.distributed")
        return data


def _refuse(call: str, fix: str) -> NoReturn:
    raise NotImplementedError(f"ray.train.{call} does not work in a trial of a sweep: {fix}")
