"""One attempt of a trial, from the side of user code: reports, checkpoints, and being stopped."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import isfinite, isinf
from os import PathLike
from pathlib import Path
from typing import Any, Final

import orjson

from raysweep import faultplan
from raysweep.cluster.outbox import Outbox
from raysweep.cluster.wire import Job
from raysweep.errors import CheckpointDamagedError, RaysweepError, StorageError, TrialStopped
from raysweep.trial import TrialContext

# A trial that ends for these reasons goes on some day: the checkpoint that it has in hand is worth storing.
_RESUMABLE: Final = frozenset({"interrupt", "sweep", "preempt", "ending"})
# The sweep is about to end: there is time for the report in hand, and it counts.
_LAST_REPORT: Final = "ending"
_DAMAGED_FIX: Final = (
    "nothing else is restored in its stead; restore the file from a backup,"
    " or catch CheckpointDamagedError in the trainable to start the trial over"
)
_PLAIN: Final = frozenset({bool, type(None)})
# The integers that orjson writes.
_MIN_INT: Final = -(2**63)
_MAX_INT: Final = 2**64 - 1


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlace:
    """What a worker must know of its sweep; goes to it as JSON."""

    sweep_id: str
    storage_path: str
    resources: dict[str, float]


class Session:
    """Buffers reports, stores checkpoints, raises `TrialStopped` when it is time."""

    def __init__(self, job: Job, place: SweepPlace, outbox: Outbox) -> None:
        self.job = job
        self._context = TrialContext(
            sweep_id=place.sweep_id,
            trial_id=f"{job.trial:05d}",
            number=job.trial,
            attempt=job.attempt,
            seed=job.seed,
            iteration=job.iteration,
            resources=place.resources,
        )
        self.stop_reason: str | None = None
        self.wants_checkpoint = False
        self.was_raised = False
        self.is_busy = False
        """Inside `report`, which raises `TrialStopped` itself: an interruption could leave a lock locked."""
        self._place = place
        self._outbox = outbox
        self._reports = 0
        self._keys: tuple[str, ...] = ()
        self._next_checkpoint = job.next_checkpoint
        self._answered = -1
        self._changed = threading.Condition()

    @property
    def should_checkpoint(self) -> bool:
        """See `raysweep.should_checkpoint`."""
        return self.stop_reason in _RESUMABLE

    @property
    def context(self) -> TrialContext:
        """See `raysweep.get_context`."""
        return self._context

    def report(self, metrics: dict[str, Any], checkpoint: str | PathLike[str] | None, wait: bool) -> None:
        """See `raysweep.report`."""
        if self.stop_reason is not None and not self._may_report(checkpoint is not None):
            self._raise_stopped()
        job, index = self.job, self._reports
        keys = tuple(metrics)
        if keys != self._keys:
            self._keys = keys = _check_keys(metrics)
        row = [
            value
            if (kind := type(value)) in _PLAIN
            or (kind is float and isfinite(value))
            or (kind is int and _MIN_INT <= value <= _MAX_INT)
            else _to_json(name, value)
            for name, value in metrics.items()
        ]
        self.is_busy = True
        is_saved = False
        try:
            self._reports = index + 1
            if wait:
                self._outbox.post(["rows", job.trial, job.attempt, index, keys, [row], checkpoint is None])
            else:
                self._outbox.post_row(job.trial, job.attempt, index, self._keys, row)
            if checkpoint is not None:
                is_saved = self._save(Path(checkpoint), index, metrics=dict(zip(keys, row, strict=True)))
                if wait:
                    # Asks for the answer without a row of its own: it comes when the checkpoint's record
                    # is durable.
                    self._outbox.post(["rows", job.trial, job.attempt, index + 1, keys, [], True])
            if wait:
                self._await_answer(index)
        finally:
            self.is_busy = False
        if self.stop_reason is not None and (is_saved or not self.wants_checkpoint):
            self._raise_stopped()

    def _may_report(self, has_checkpoint: bool) -> bool:
        """Whether a trial that was told to end may report once more."""
        if has_checkpoint:
            return self.stop_reason in _RESUMABLE
        return self.wants_checkpoint or self.stop_reason == _LAST_REPORT

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        """See `raysweep.get_checkpoint`."""
        return self._restored(self.job.checkpoint) if self.job.checkpoint else None

    @contextmanager
    def _restored(self, uri: str) -> Iterator[Path]:
        target = Path(tempfile.mkdtemp(prefix="raysweep-checkpoint-"))
        try:
            self._outbox.post(["busy", self.job.trial, self.job.attempt, False])
            try:
                _restore(uri, target / "checkpoint")
            finally:
                self._outbox.post(["busy", self.job.trial, self.job.attempt, True])
            yield target / "checkpoint"
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def stop(self, reason: str, wants_checkpoint: bool = False) -> None:
        """From another thread: the trial should end at its next report, or the next one with a checkpoint."""
        faultplan.reach_in_trial("stop", self.job.trial, self.job.attempt)
        with self._changed:
            self.stop_reason, self.wants_checkpoint = reason, wants_checkpoint
            self._changed.notify_all()

    def answer(self, report: int) -> None:
        """From another thread: everything up to `report` is journaled and decided."""
        with self._changed:
            self._answered = max(self._answered, report)
            self._changed.notify_all()

    def _await_answer(self, index: int) -> None:
        with self._changed:
            while self._answered < index and (self.stop_reason is None or self.wants_checkpoint):
                self._changed.wait()

    def _raise_stopped(self) -> None:
        self.was_raised = True
        raise TrialStopped(self.stop_reason or "stopped")

    def _save(self, directory: Path, report: int, metrics: dict[str, Any]) -> bool:
        """Store a checkpoint; False if that failed, which the trial survives."""
        from raysweep.storage.checkpoints import CheckpointStore
        from raysweep.storage.store import open_store

        job, number = self.job, self._next_checkpoint
        if not directory.is_dir():
            raise RaysweepError(f"report(checkpoint=…) takes a directory; {str(directory)!r} is none")
        self._next_checkpoint = number + 1
        self._outbox.post(["busy", job.trial, job.attempt, False])
        self.is_busy = False  # an upload may take long, and nothing is locked meanwhile
        store = CheckpointStore(open_store(self._place.storage_path), self._place.sweep_id)
        metadata = {"attempt": job.attempt, "report": report, "metrics": metrics, "parent": job.checkpoint}
        try:
            saved = store.save(self.context.trial_id, number, directory, metadata)
        except StorageError as error:
            self.is_busy = True
            self._outbox.post(["unsaved", job.trial, job.attempt, number, str(error)])
            return False
        self.is_busy = True
        self._outbox.post(["saved", job.trial, job.attempt, number, report, saved.uri, saved.size_bytes])
        return True


def _restore(uri: str, target: Path) -> None:
    from raysweep.storage.checkpoints import restore_uri

    try:
        restore_uri(uri, target)
    except CheckpointDamagedError as error:
        raise CheckpointDamagedError(error.path, error.problem, _DAMAGED_FIX) from error


def _check_keys(metrics: dict[str, Any]) -> tuple[str, ...]:
    for name in metrics:
        if not isinstance(name, str):
            raise RaysweepError(
                f"report() takes metrics named by strings; {name!r} is a {type(name).__name__}"
            )
        _to_json(name, name)
    return tuple(metrics)


def _to_json(name: str, value: Any) -> Any:
    """The value as JSON; non-finite numbers as the strings `NaN`, `Infinity`, `-Infinity`."""
    item = getattr(value, "item", None)
    if callable(item) and getattr(value, "ndim", 0) == 0:
        value = item()
    if isinstance(value, float):
        if isfinite(value):
            return float(value)
        return ("Infinity" if value > 0 else "-Infinity") if isinf(value) else "NaN"
    try:
        if isinstance(value, int) and not _MIN_INT <= value <= _MAX_INT:
            return float(value)
        return orjson.loads(orjson.dumps(value, option=orjson.OPT_SERIALIZE_NUMPY))
    except (TypeError, OverflowError) as error:
        raise RaysweepError(
            f"metric {name!r} is a {type(value).__name__}, which is not JSON ({error});"
            " report numbers, strings, or lists of them"
        ) from error
