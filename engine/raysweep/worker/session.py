"""One attempt of a trial, from the side of user code: reports, checkpoints, and being stopped."""

from __future__ import annotations

import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from math import isfinite
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final, NoReturn

from raysweep import faultplan
from raysweep.errors import CheckpointDamagedError, TrialStopped, one_line
from raysweep.messages import Answer, Busy, Damaged, Gang, Interrupt, Job, Noted, Order, Rows, Stop
from raysweep.trial.owners import ENDED
from raysweep.trial.session import Reported, StoredAt, TrialContext
from raysweep.worker.link import Link
from raysweep.worker.process.stray_calls import Strays
from raysweep.worker.rows import MAX_INT, MIN_INT, PLAIN_TYPES, RowMaker, with_nested
from raysweep.worker.rungs import RungWatch
from raysweep.worker.sweep_info import SweepPlace

if TYPE_CHECKING:
    from raysweep.worker.checkpoints.saver import Saver

_DAMAGED_FIX: Final = (
    "nothing else is restored in its stead; restore the file from a backup,"
    " or catch CheckpointDamagedError in the trainable to start the trial over"
)
_ALONE: Final = Gang(world_size=1)


class Session:
    """Buffers reports, has checkpoints stored, raises `TrialStopped` when it is time."""

    def __init__(self, job: Job, place: SweepPlace, link: Link) -> None:
        self.job = job
        self.stop_reason: str | None = None
        self.wants_checkpoint = False
        self.allows = "nothing"
        self.was_raised = False
        self.is_interrupted = False
        """It is to end now, not only at its next report; `interrupt` of the runner sees to it."""
        self.is_busy = False
        """Inside `report`, which raises `TrialStopped` itself: an interruption could leave a lock locked. Of
        the thread that runs the attempt, which alone is interrupted."""
        self.changed = threading.Condition()
        """Guards what other threads change, and is notified of it."""
        self._link = link
        self._place = place
        self._nested = place.nested
        self._thread = get_ident()
        self._reporting = threading.RLock()
        """Held from a report's number until it is sent: threads may report, too."""
        self._reports = 0
        self._rows = RowMaker()
        self._noted: set[str] = set()
        self._answered = -1
        self._rungs = RungWatch(place.rungs, job.iteration) if place.rungs and job.gang is None else None
        # Made when they are first asked for: most attempts of a short trial need neither.
        self._known_context: TrialContext | None = None
        self._known_saver: Saver | None = None
        self._strays: Strays | None = None
        self._is_finished = False

    @property
    def should_checkpoint(self) -> bool:
        """See `raysweep.should_checkpoint`."""
        return self.stop_reason is not None and self.allows != "nothing"

    @property
    def context(self) -> TrialContext:
        """See `raysweep.get_context`."""
        if self._known_context is None:
            job, gang = self.job, self.job.gang or _ALONE
            self._known_context = TrialContext(
                sweep_id=self._place.sweep_id,
                trial_id=f"{job.trial:05d}",
                number=job.trial,
                attempt=job.attempt,
                seed=job.seed,
                iteration=job.iteration,
                rank=job.rank,
                world_size=gang.world_size,
                local_rank=gang.local_rank,
                node_rank=gang.node_rank,
                resources=self._place.resources,
            )
        return self._known_context

    @property
    def _saver(self) -> Saver:
        with self.changed:
            if self._known_saver is None:
                from raysweep.worker.checkpoints.saver import Saver

                self._known_saver = Saver(self.job, self._place, self._link, self)
                if self._is_finished:
                    self._known_saver.finish()
            return self._known_saver

    @property
    def has_reported(self) -> bool:
        """Whether the trial has reports: of this attempt, or before the checkpoint that it began from."""
        return bool(self._reports or self.job.iteration)

    def count_stray(self) -> None:
        """See `trial.session.TrialSession`."""
        with self.changed:
            if self._strays is None:
                self._strays = Strays(self.job, self._link)
        self._strays.count()

    def report(self, metrics: dict[str, Any], checkpoint: Reported, wait: bool) -> None:
        """See `raysweep.report`."""
        job, is_saved = self.job, False
        is_own = get_ident() == self._thread
        if is_own:
            self.is_busy = True
        try:
            self._reporting.acquire()
            try:
                index, rows = self._reports, self._rows
                if self.stop_reason is not None and self._leaves_before(index, checkpoint is not None):
                    self._raise_stopped()
                if self._nested:
                    metrics = with_nested(metrics, self._nested)
                if tuple(metrics) != rows.keys:
                    rows.set_keys(tuple(metrics))
                keys = rows.keys
                row: list[Any] = []
                for name, value in metrics.items():  # a comprehension would be a call, up to Python 3.11
                    kind = type(value)
                    if (
                        (kind is float and isfinite(value))
                        or (kind is int and MIN_INT <= value <= MAX_INT)
                        or kind in PLAIN_TYPES
                    ):
                        row.append(value)
                    else:
                        row.append(rows.convert(name, value))
                packed = None
                if rows.is_odd:
                    packed = rows.pack(row)
                    if rows.as_text.keys() - self._noted:
                        self._note_as_text(rows.as_text)
                patience_s = 0.0 if self._rungs is None or wait else self._rungs.patience_s(metrics, index)
                self._reports = index + 1
                if wait or patience_s:
                    self._send_rows(index, keys, [row], is_waiting=not wait or checkpoint is None)
                else:
                    self._link.send_row(job.trial, job.attempt, index, keys, row, packed)
            finally:
                self._reporting.release()
            if checkpoint is not None:
                self._say_upcoming(index)
                found = dict(zip(keys, row, strict=True))
                if isinstance(checkpoint, StoredAt):
                    is_saved = self._saver.save_link(checkpoint.uri, index, found)
                else:
                    is_saved = self._saver.save(Path(checkpoint), index, found, waits=wait)
                if wait:
                    # Asks for the answer without a row of its own: it comes when the checkpoint's record
                    # is durable.
                    self._send_rows(index + 1, keys, [], is_waiting=True)
            if wait or patience_s:
                self._await_answer(index, None if wait else patience_s)
        finally:
            if is_own:
                self.is_busy = False
            if self._rungs is not None:
                self._rungs.begin_step()
        if self.stop_reason is not None and self._leaves_after(index, is_saved):
            self._raise_stopped()

    def _send_rows(
        self, first: int, keys: tuple[str, ...], rows: list[list[Any]], *, is_waiting: bool
    ) -> None:
        self._link.send(Rows(*self.job.who, first=first, keys=keys, rows=rows, is_waiting=is_waiting))

    def _note_as_text(self, kinds: Mapping[str, str]) -> None:
        for name, kind in kinds.items():
            if name not in self._noted:
                self._noted.add(name)
                text = f"metric {name!r} is kept as text, since JSON cannot hold a value of type {kind}"
                self.note(text)

    def note(self, text: str) -> None:
        """Tell whoever runs the sweep; the same note of other trials is not repeated."""
        self._link.send(Noted(*self.job.who, text=text, is_shared=True))

    def _say_upcoming(self, report: int) -> None:
        """A checkpoint of this report follows."""

    def _send_busy(self, *, is_over: bool) -> None:
        self._link.send(Busy(*self.job.who, is_over=is_over))

    def _leaves_before(self, index: int, has_checkpoint: bool) -> bool:
        """Whether one that was told to end does so instead of making this report."""
        return not self._may_report(has_checkpoint)

    def _leaves_after(self, index: int, is_saved: bool) -> bool:
        """Whether one that was told to end does so, having made this report."""
        return is_saved or self._is_to_end()

    def _may_report(self, has_checkpoint: bool) -> bool:
        """Whether a trial that was told to end may report once more."""
        is_taken = self.wants_checkpoint or self.allows == "report"
        return is_taken or (has_checkpoint and self.should_checkpoint)

    def new_checkpoint(self) -> AbstractContextManager[Path]:
        """See `raysweep.new_checkpoint`."""
        return self._saver.new_folder()

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        """See `raysweep.get_checkpoint`."""
        self._saver.flush()
        self.raise_if_interrupted()
        return self._restored() if self._saver.newest else None

    @contextmanager
    def _restored(self) -> Iterator[Path]:
        if self._is_finished:
            self.count_stray()
            raise TrialStopped(ENDED, "the checkpoint is not restored: the trial that asked for it has ended")
        target = Path(tempfile.mkdtemp(prefix="raysweep-checkpoint-"))
        try:
            self._send_busy(is_over=False)
            try:
                self._saver.flush()
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
        while (uri := self._saver.newest) is not None:
            try:
                _restore(self._place, uri, target)
                return
            except CheckpointDamagedError as error:
                if uri != self._saver.newest:
                    continue
                if uri == self.job.checkpoint and self.job.has_older:
                    self._go_back(uri, error)
                raise

    def _go_back(self, uri: str, error: CheckpointDamagedError) -> NoReturn:
        """End, since there is an older checkpoint: the trial's next attempt resumes from it.

        Nothing counts any more that this attempt does, whatever else it is told: should user code swallow
        this and begin anew, its reports would be taken for those that follow the checkpoint.
        """
        self._link.send(
            Damaged(*self.job.who, uri=uri, problem=one_line(f"{error.path}: {error.problem}", 500))
        )
        with self.changed:
            self.stop_reason, self.wants_checkpoint, self.allows = "damage", False, "nothing"
            self.is_interrupted = True
        self._raise_stopped()

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
        with self.changed:
            if self.stop_reason != "damage":
                self.stop_reason, self.wants_checkpoint, self.allows = reason, wants_checkpoint, allows
            self.changed.notify_all()

    def answer(self, report: int) -> None:
        """From another thread: everything up to `report` is journaled and decided."""
        with self.changed:
            self._answered = max(self._answered, report)
            self.changed.notify_all()

    def interrupt(self) -> None:
        """From another thread: the trial should end now; what waits for an answer waits no longer."""
        with self.changed:
            self.is_interrupted = True
            self.changed.notify_all()

    def raise_if_interrupted(self) -> None:
        """On the main thread, where an interruption may have come too early to be raised.

        Raises:
            TrialStopped: It has come.
        """
        if self.is_interrupted and self.stop_reason is not None:
            self._raise_stopped()

    def raise_if_ending(self) -> None:
        """As `raise_if_interrupted`, already when it was only told to end.

        Raises:
            TrialStopped: It was.
        """
        if self.stop_reason is not None:
            self._raise_stopped()

    def raise_if_over(self) -> None:
        """For code that only waits for others: as `raise_if_interrupted`, already when it was told to end and
        may make nothing more.

        Raises:
            TrialStopped: It was.
        """
        if self.stop_reason is not None and (self.is_interrupted or not self._may_make_more()):
            self._raise_stopped()

    def _may_make_more(self) -> bool:
        return self.wants_checkpoint or self.allows != "nothing"

    def _await_answer(self, index: int, patience_s: float | None) -> None:
        with self.changed:
            self.changed.wait_for(lambda: self._answered >= index or self._is_to_end(), patience_s)

    def _is_to_end(self) -> bool:
        """Whether it was told to end without a checkpoint, or no longer has the time for one."""
        return self.stop_reason is not None and (self.is_interrupted or not self.wants_checkpoint)

    def _raise_stopped(self) -> NoReturn:
        self.was_raised = True
        raise TrialStopped(self.stop_reason or "stopped")

    @property
    def is_ending(self) -> bool:
        """Whether it was told to end."""
        return self.stop_reason is not None

    def wait_until(self, is_so: Callable[[], bool]) -> None:
        """Wait, or until the trial is to end now."""
        with self.changed:
            if is_so():
                return
        was_busy = self.is_busy
        self._be_busy(True)
        try:
            self._send_busy(is_over=False)
            with self.changed:
                while not is_so() and not self.is_interrupted:
                    self.changed.wait()
            self._send_busy(is_over=True)
        finally:
            self._be_busy(was_busy)

    def _be_busy(self, is_busy: bool) -> None:
        if get_ident() == self._thread:
            self.is_busy = is_busy

    @contextmanager
    def while_busy(self, *, says_end: bool = True) -> Iterator[None]:
        """Inside `report`, while a checkpoint is moved: that may take long, and no lock of the link is held.

        `says_end`: what is stored says so itself, else this does.
        """
        self._send_busy(is_over=False)
        self._be_busy(False)
        try:
            yield
        finally:
            self._be_busy(True)
        if says_end:
            self._send_busy(is_over=True)

    def finish(self) -> None:
        """User code has ended: what it handed over is stored, if there is the time, before that is said."""
        with self.changed:
            self._is_finished = True
            saver = self._known_saver
        if saver is not None:
            saver.finish()


def _restore(place: SweepPlace, reference: str, target: Path) -> None:
    from raysweep.storage.checkpoints.node_cache import open_cache
    from raysweep.storage.checkpoints.store import CheckpointStore
    from raysweep.storage.objects.opening import open_store

    cache = open_cache(place.node_cache)
    store = CheckpointStore(open_store(place.storage_path), place.sweep_id, cache=cache)
    try:
        store.restore(reference, target)
    except CheckpointDamagedError as error:
        raise CheckpointDamagedError(error.path, error.problem, _DAMAGED_FIX) from error
