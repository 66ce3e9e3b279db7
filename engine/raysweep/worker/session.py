"""One attempt of a trial, from the side of user code: reports, checkpoints, and being stopped."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass
from math import isfinite
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from raysweep import faultplan
from raysweep.errors import CheckpointDamagedError, RaysweepError, StorageError, TrialStopped, one_line
from raysweep.messages import Answer, Busy, Interrupt, Job, Order, Rows, Saved, Stop, Unsaved
from raysweep.trial import TrialContext
from raysweep.worker.link import Link
from raysweep.worker.rows import MAX_INT, MIN_INT, PLAIN_TYPES, RowMaker
from raysweep.worker.staging import Staging
from raysweep.worker.uploader import Handover, UploadAbandonedError, Uploader

if TYPE_CHECKING:
    from raysweep.storage.checkpoints import CheckpointRef, CheckpointStore
    from raysweep.storage.manifest import Manifest

_DAMAGED_FIX: Final = (
    "nothing else is restored in its stead; restore the file from a backup,"
    " or catch CheckpointDamagedError in the trainable to start the trial over"
)


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepPlace:
    """What a worker must know of its sweep; goes to it as JSON."""

    sweep_id: str
    storage_path: str
    resources: dict[str, float]
    metric: str = ""
    """Ranks the trial's checkpoints, and is what a number that a trainable returns is reported as."""
    ranks_by: str = ""
    """What ranks the trial's checkpoints, where that is another metric."""


class Session:
    """Buffers reports, stores checkpoints, raises `TrialStopped` when it is time."""

    def __init__(self, job: Job, place: SweepPlace, link: Link) -> None:
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
        self.allows = "nothing"
        self.was_raised = False
        self.is_interrupted = False
        """It is to end now, not only at its next report; `interrupt` of the runner sees to it."""
        self.is_busy = False
        """Inside `report`, which raises `TrialStopped` itself: an interruption could leave a lock locked."""
        self._place = place
        self._link = link
        self._reports = 0
        self._rows = RowMaker()
        self._next_checkpoint = job.next_checkpoint
        # What was saved last, else what the attempt began from: the one that no keep policy ever deletes.
        self._newest = job.checkpoint
        self._parent: Manifest | None = None
        self._saving = threading.Lock()
        self._is_last_stored = False
        self._answered = -1
        self._changed = threading.Condition()
        self._staging = Staging()
        self._uploader = Uploader(self._changed, self._save_taken)

    @property
    def should_checkpoint(self) -> bool:
        """See `raysweep.should_checkpoint`."""
        return self.stop_reason is not None and self.allows != "nothing"

    @property
    def context(self) -> TrialContext:
        """See `raysweep.get_context`."""
        return self._context

    def report(self, metrics: dict[str, Any], checkpoint: str | PathLike[str] | None, wait: bool) -> None:
        """See `raysweep.report`."""
        if self.stop_reason is not None and not self._may_report(checkpoint is not None):
            self._raise_stopped()
        job, index = self.job, self._reports
        rows = self._rows
        if tuple(metrics) != rows.keys:
            rows.set_keys(tuple(metrics))
        keys = rows.keys
        row = [
            value
            if (kind := type(value)) in PLAIN_TYPES
            or (kind is float and isfinite(value))
            or (kind is int and MIN_INT <= value <= MAX_INT)
            else rows.convert(name, value)
            for name, value in metrics.items()
        ]
        packed = rows.pack(row) if rows.is_odd else None
        self.is_busy = True
        is_saved = False
        try:
            self._reports = index + 1
            if wait:
                self._send_rows(index, keys, [row], is_waiting=checkpoint is None)
            else:
                self._link.send_row(job.trial, job.attempt, index, keys, row, packed)
            if checkpoint is not None:
                found = dict(zip(keys, row, strict=True))
                is_saved = self._save(Path(checkpoint), index, found, waits=wait)
                if wait:
                    # Asks for the answer without a row of its own: it comes when the checkpoint's record
                    # is durable.
                    self._send_rows(index + 1, keys, [], is_waiting=True)
            if wait:
                self._await_answer(index)
        finally:
            self.is_busy = False
        if self._is_to_end() or (is_saved and self.stop_reason is not None):
            self._raise_stopped()

    def _send_rows(
        self, first: int, keys: tuple[str, ...], rows: list[list[Any]], *, is_waiting: bool
    ) -> None:
        self._link.send(Rows(*self.job.who, first=first, keys=keys, rows=rows, is_waiting=is_waiting))

    def _send_busy(self, *, is_over: bool) -> None:
        self._link.send(Busy(*self.job.who, is_over=is_over))

    def _may_report(self, has_checkpoint: bool) -> bool:
        """Whether a trial that was told to end may report once more."""
        is_taken = self.wants_checkpoint or self.allows == "report"
        return is_taken or (has_checkpoint and self.should_checkpoint)

    def new_checkpoint(self) -> AbstractContextManager[Path]:
        """See `raysweep.new_checkpoint`."""
        return self._staging.new_folder()

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        """See `raysweep.get_checkpoint`."""
        self._flush()
        self.raise_if_interrupted()
        return self._restored() if self._newest else None

    @contextmanager
    def _restored(self) -> Iterator[Path]:
        target = Path(tempfile.mkdtemp(prefix="raysweep-checkpoint-"))
        try:
            self._send_busy(is_over=False)
            try:
                self._flush()
                self.raise_if_interrupted()
                self._restore_newest(target / "checkpoint")
            finally:
                self._send_busy(is_over=True)
            yield target / "checkpoint"
        finally:
            shutil.rmtree(target, ignore_errors=True)

    def _restore_newest(self, target: Path) -> None:
        """Fetch the checkpoint that is the newest now.

        One that a save on another thread made needless meanwhile may be deleted under our hands.
        """
        while (uri := self._newest) is not None:
            try:
                _restore(uri, target)
                return
            except CheckpointDamagedError:
                if uri == self._newest:
                    raise

    def tell(self, order: Order) -> None:
        """From another thread: act on what the controller says of this attempt."""
        match order:
            case Stop():
                self.stop(order.reason, order.wants_checkpoint, order.allows)
            case Answer():
                self.answer(order.report)
            case Interrupt():
                self.interrupt()

    def stop(self, reason: str, wants_checkpoint: bool = False, allows: str = "nothing") -> None:
        """From another thread: the trial should end at its next report, or the next one with a checkpoint.

        `allows` says what it may still make: `nothing`, a `checkpoint` that it has in hand, or a `report`.
        """
        faultplan.reach_in_trial("stop", self.job.trial, self.job.attempt)
        with self._changed:
            self.stop_reason, self.wants_checkpoint, self.allows = reason, wants_checkpoint, allows
            self._changed.notify_all()

    def answer(self, report: int) -> None:
        """From another thread: everything up to `report` is journaled and decided."""
        with self._changed:
            self._answered = max(self._answered, report)
            self._changed.notify_all()

    def interrupt(self) -> None:
        """From another thread: the trial should end now; what waits for an answer waits no longer."""
        with self._changed:
            self.is_interrupted = True
            self._changed.notify_all()

    def raise_if_interrupted(self) -> None:
        """On the main thread, where an interruption may have come too early to be raised.

        Raises:
            TrialStopped: It has come.
        """
        if self.is_interrupted and self.stop_reason is not None:
            self._raise_stopped()

    def _await_answer(self, index: int) -> None:
        with self._changed:
            while self._answered < index and not self._is_to_end():
                self._changed.wait()

    def _is_to_end(self) -> bool:
        """Whether it was told to end without a checkpoint, or no longer has the time for one."""
        return self.stop_reason is not None and (self.is_interrupted or not self.wants_checkpoint)

    def _raise_stopped(self) -> None:
        self.was_raised = True
        raise TrialStopped(self.stop_reason or "stopped")

    def _save(self, directory: Path, report: int, metrics: dict[str, Any], *, waits: bool) -> bool:
        """Store a checkpoint, or have it stored; whether it is. A trial survives one that cannot be."""
        if not directory.is_dir():
            raise RaysweepError(f"report(checkpoint=…) takes a directory; {str(directory)!r} is none")
        number = self._next_checkpoint
        self._next_checkpoint = number + 1
        folder = self._staging.take(directory)
        if folder is None:
            self._flush()  # they are committed in their order
            return self._save_here(Handover(folder=directory, number=number, report=report, metrics=metrics))
        from raysweep.storage.directory import scan_directory

        scan_directory(folder)  # what cannot be kept is said here, where it was made
        self._wait_until(lambda: self._uploader.has_room)
        self._uploader.add(Handover(folder=folder, number=number, report=report, metrics=metrics))
        # One that was asked for ends the trial: it is waited for.
        return self._flush() if waits or self.stop_reason is not None else False

    def _save_here(self, handover: Handover) -> bool:
        """On the caller's thread."""
        with self._saving:
            self._send_busy(is_over=False)
            self.is_busy = False  # an upload may take long, and no lock of the link is held meanwhile
            try:
                saved = self._store(handover)
            finally:
                self.is_busy = True
            return self._announce(handover, saved, None)

    def _save_taken(self, handover: Handover) -> None:
        """On the uploader's thread."""
        try:
            with self._saving, handover.context:
                saved = self._store(handover)
                self._announce(handover, saved, self._score(handover.metrics))
        except UploadAbandonedError:
            raise
        except Exception as error:  # noqa: BLE001  said; the trial, which is elsewhere by now, goes on
            self._uploader.go_on()
            self._link.send(Unsaved(*self.job.who, number=handover.number, problem=one_line(str(error), 500)))
        finally:
            shutil.rmtree(handover.folder, ignore_errors=True)

    def _store(self, handover: Handover) -> CheckpointRef | StorageError:
        """Store a checkpoint; the error if that failed.

        One at a time: the newest one, which the next one refers to, must stay until that one is committed.
        """
        from raysweep.storage.checkpoints import CheckpointStore
        from raysweep.storage.opening import open_store

        self._is_last_stored = False
        store = CheckpointStore(open_store(self._place.storage_path), self._place.sweep_id)
        metadata = {
            "attempt": self.job.attempt,
            "report": handover.report,
            "metrics": handover.metrics,
            "parent": self.job.checkpoint,
        }
        try:
            return store.save(
                self.context.trial_id,
                handover.number,
                handover.folder,
                metadata,
                parent=self._find_parent(store),
                go_on=self._uploader.go_on,
            )
        except StorageError as error:
            return error

    def _announce(self, handover: Handover, saved: CheckpointRef | StorageError, score: float | None) -> bool:
        """Tell the controller; whether it is stored."""
        who, number = self.job.who, handover.number
        if isinstance(saved, StorageError):
            self._link.send(Unsaved(*who, number=number, problem=str(saved)))
            return False
        # Before it is announced, and the one before is let go.
        self._newest, self._parent = saved.uri, saved.manifest
        self._is_last_stored = True
        ranks_by = self._place.ranks_by
        rank = _number(handover.metrics.get(ranks_by)) if ranks_by else None
        self._link.send(Saved(*who, number, handover.report, saved.uri, saved.size_bytes, score, rank))
        return True

    def _wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait for the uploader, or until the trial is to end now."""
        with self._changed:
            if is_so():
                return
        was_busy, self.is_busy = self.is_busy, True
        try:
            self._send_busy(is_over=False)
            with self._changed:
                while not is_so() and not self.is_interrupted:
                    self._changed.wait()
            self._send_busy(is_over=True)
        finally:
            self.is_busy = was_busy

    def _flush(self) -> bool:
        """Wait until all is stored that was handed over; whether the last one is."""
        self._wait_until(lambda: self._uploader.is_idle)
        return self._uploader.is_idle and self._is_last_stored

    def finish(self) -> None:
        """User code has ended: what it handed over is stored, if there is the time, before that is said."""
        self._flush()
        self._uploader.close()
        self._staging.close()

    def _score(self, metrics: dict[str, Any]) -> float | None:
        """By then the controller may know later reports, and not which one this belongs to."""
        return _number(metrics.get(self._place.metric))

    def _find_parent(self, store: CheckpointStore) -> Manifest | None:
        """The trial's own newest checkpoint: what it holds need not be stored again.

        That of a trial whose checkpoint this one goes on from is no parent: it is its owner's to delete.
        """
        newest = self._newest
        if self._parent is None and newest is not None and store.is_of(self.context.trial_id, newest):
            with suppress(StorageError):  # damaged or out of reach: then all is stored
                self._parent = store.read_manifest(newest)
        return self._parent


def _number(value: Any) -> float | None:
    """A finite number; None for anything else."""
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and isfinite(value) else None


def _restore(uri: str, target: Path) -> None:
    from raysweep.storage.checkpoints import restore_uri

    try:
        restore_uri(uri, target)
    except CheckpointDamagedError as error:
        raise CheckpointDamagedError(error.path, error.problem, _DAMAGED_FIX) from error
