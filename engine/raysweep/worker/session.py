"""One attempt of a trial, from the side of user code: reports, checkpoints, and being stopped."""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from math import isfinite
from pathlib import Path
from threading import get_ident
from typing import TYPE_CHECKING, Any, Final

from raysweep import faultplan
from raysweep.errors import TrialStopped
from raysweep.messages import (
    Answer,
    Gang,
    Interrupt,
    Job,
    Judged,
    Order,
    Stop,
    TrialNoted,
    TrialReported,
    Upcoming,
    Validation,
)
from raysweep.trial.owners import ENDED
from raysweep.trial.session import Reported, StoredAt, TrialContext
from raysweep.worker.checkpoints.restoring import Restorer
from raysweep.worker.ending import Ending
from raysweep.worker.filled import Filler
from raysweep.worker.link import Link
from raysweep.worker.process.stray_calls import Strays
from raysweep.worker.rows import MAX_INT, MIN_INT, PLAIN_TYPES, RowMaker, with_nested
from raysweep.worker.rungs import RungWatch
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.waiting import Waiting

if TYPE_CHECKING:
    from os import PathLike

    from raysweep.storage.checkpoints.manifest import Manifest
    from raysweep.worker.checkpoints.saver import Saver

_ALONE: Final = Gang(world_size=1)


@dataclass(frozen=True, slots=True)
class StoredParts:
    """A checkpoint whose files other processes of the trial have stored; it counts once it is committed."""

    joined: Manifest
    """Its number is the checkpoint's."""


class Session:
    """Buffers reports, has checkpoints stored, raises `TrialStopped` when it is time."""

    def __init__(self, job: Job, place: SweepPlace, link: Link) -> None:
        self.job = job
        self.ending = Ending()
        """The order to end, if it was given."""
        self.waiting = Waiting(job.who, None if job.rank else link, self.ending)
        """The wait inside `report`, or for a checkpoint. Only the silence of rank 0 counts in a gang."""
        self.variables: Mapping[str, str] = {}
        """The environment variables of the sweep's trackers."""
        self._link = link
        self._place = place
        self._nested = place.nested
        self._filler = Filler(place.filled, self._read_base) if place.filled else None
        self._reporting = threading.RLock()
        """Held from a report's number until it is sent: threads may report, too."""
        self._reports = 0
        self._rows = RowMaker()
        self._noted: set[str] = set()
        self._answered = -1
        self._ahead = place.evaluations_ahead
        self._unjudged: deque[int] = deque()
        """The reports whose checkpoints are evaluated, until they are answered."""
        self.goes_ahead = False
        """True if `report(wait=True)` waits until a checkpoint is stored, and not for its evaluation."""
        self.validation: Validation | None = None
        """The validation of the checkpoint of the next report, if a trainer asks for it."""
        self.judged: dict[int, Judged] = {}
        """The result of it, by the number of the report, from 0."""
        self._rungs = RungWatch(place.rungs, job.iteration) if place.rungs and job.gang is None else None
        # Made when they are first asked for: most attempts of a short trial need neither.
        self._known_context: TrialContext | None = None
        self._known_saver: Saver | None = None
        self._strays: Strays | None = None
        self._is_finished = False

    @property
    def should_checkpoint(self) -> bool:
        """See `raysweep.should_checkpoint`."""
        return self.ending.may_checkpoint

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
                trackers=self.variables,
            )
        return self._known_context

    @property
    def _saver(self) -> Saver:
        with self.ending.changed:
            if self._known_saver is None:
                from raysweep.worker.checkpoints.saver import Saver

                self._known_saver = Saver(self.job, self._place, self._link, self.waiting)
                if self._is_finished:
                    self._known_saver.finish()
            return self._known_saver

    @property
    def has_reported(self) -> bool:
        """True if the trial has reports: of this attempt, or before the checkpoint that it began from."""
        return bool(self._reports or self.job.iteration)

    @property
    def newest_report(self) -> int:
        """The number in this attempt of its newest report, from 0."""
        return self._reports - 1

    def find_verdict(self, report: int) -> tuple[dict[str, Any], str] | None:
        """The result of a report's validation: its metrics, and why there are none; None: it is open."""
        is_over = self._answered >= report or self.ending.reason is not None
        judged = self.judged.pop(report, None)
        if judged is not None:
            from raysweep.documents.json_numbers import without_names  # brings pydantic

            return without_names(judged.metrics), judged.problem
        return ({}, "it is not validated") if is_over else None

    def count_stray(self) -> None:
        """See `trial.session.TrialSession`."""
        with self.ending.changed:
            if self._strays is None:
                self._strays = Strays(self.job, self._link)
        self._strays.count()

    def report(self, metrics: dict[str, Any], checkpoint: Reported | StoredParts, wait: bool) -> None:
        """See `raysweep.report`."""
        job, is_saved = self.job, False
        ending, waiting = self.ending, self.waiting
        is_own = get_ident() == waiting.thread
        if is_own:
            waiting.is_busy = True
        try:
            self._reporting.acquire()
            try:
                index, rows = self._reports, self._rows
                if ending.reason is not None and self._leaves_before(index, checkpoint is not None):
                    ending.raise_stopped()
                if self._nested:
                    metrics = with_nested(metrics, self._nested)
                if self._filler is not None:
                    metrics = self._filler.fill(metrics)
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
                is_judged = checkpoint is not None and self._ahead is not None
                has_to_store, wait = wait, wait and not (is_judged and self.goes_ahead)
                if is_judged:
                    self._unjudged.append(index)
                    self._link.send(Upcoming(*job.who, report=index, validation=self.validation))
                    self._send_rows(index, keys, [row], is_waiting=True)
                elif wait or patience_s:
                    self._send_rows(index, keys, [row], is_waiting=not wait or checkpoint is None)
                else:
                    self._link.send_row(job.trial, job.attempt, index, keys, row, packed)
            finally:
                self._reporting.release()
            if checkpoint is not None:
                self._say_upcoming(index)
                is_saved = self._save(
                    checkpoint, index, dict(zip(keys, row, strict=True)), waits=has_to_store
                )
                if wait:
                    # Asks for the answer without a row of its own: it comes when the checkpoint's record
                    # is durable.
                    self._send_rows(index + 1, keys, [], is_waiting=True)
            if wait or patience_s:
                self._await_answer(index, None if wait else patience_s)
            if is_judged:
                self._await_evaluations()
        finally:
            if is_own:
                waiting.is_busy = False
            if self._rungs is not None:
                self._rungs.begin_step()
        if ending.reason is not None and self._leaves_after(index, is_saved):
            ending.raise_stopped()

    def _save(
        self,
        checkpoint: StoredAt | StoredParts | str | PathLike[str],
        index: int,
        metrics: dict[str, Any],
        *,
        waits: bool,
    ) -> bool:
        try:
            if isinstance(checkpoint, StoredParts):
                return self._saver.save_parts(checkpoint.joined, index, metrics)
            if isinstance(checkpoint, StoredAt):
                return self._saver.save_link(checkpoint.uri, index, metrics)
            return self._saver.save(Path(checkpoint), index, metrics, waits=waits)
        except BaseException:
            if self._ahead is not None:
                with self.ending.changed:
                    self._unjudged.remove(index)
                self._link.send(Upcoming(*self.job.who, report=index, is_void=True))
            raise

    def _read_base(self) -> Mapping[str, Any]:
        """The metrics of the checkpoint that the attempt began from."""
        return self._saver.read_metrics(self.job.checkpoint) if self.job.checkpoint else {}

    def _send_rows(
        self, first: int, keys: tuple[str, ...], rows: list[list[Any]], *, is_waiting: bool
    ) -> None:
        self._link.send(
            TrialReported(*self.job.who, first=first, keys=keys, rows=rows, is_waiting=is_waiting)
        )

    def _note_as_text(self, kinds: Mapping[str, str]) -> None:
        for name, kind in kinds.items():
            if name not in self._noted:
                self._noted.add(name)
                text = f"metric {name!r} is kept as text, since JSON cannot hold a value of type {kind}"
                self.note(text)

    def note(self, text: str) -> None:
        """Add a note to the sweep; the same note of other trials is not repeated."""
        self._link.send(TrialNoted(*self.job.who, text=text, is_shared=True))

    def _say_upcoming(self, report: int) -> None:
        """A checkpoint of this report follows."""

    def _leaves_before(self, index: int, has_checkpoint: bool) -> bool:
        """True if one that was told to end does so instead of making this report."""
        return not self.ending.may_report(has_checkpoint)

    def _leaves_after(self, index: int, is_saved: bool) -> bool:
        """True if one that was told to end does so, having made this report."""
        return is_saved or self.ending.is_due

    def store_again(self, directory: Path, metrics: dict[str, Any]) -> None:
        """Store the checkpoint of the newest report once more, where none is evaluated.

        `metrics`: of that report.
        """
        if self._reports and self._ahead is None and not self.job.rank:
            self._saver.save(directory, self._reports - 1, metrics, waits=False)

    def store_parts(self, parts: StoredParts, report: int, metrics: dict[str, Any]) -> None:
        """Commit a checkpoint of a report that was made before, by its number in the attempt, from 0."""
        self._saver.save_parts(parts.joined, report, metrics)

    def new_checkpoint(self) -> AbstractContextManager[Path]:
        """See `raysweep.new_checkpoint`."""
        return self._saver.new_folder()

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        """See `raysweep.get_checkpoint`."""
        self._saver.flush()
        self.ending.raise_if_interrupted()
        return self._restored() if self._saver.newest else None

    @contextmanager
    def _restored(self) -> Iterator[Path]:
        if self._is_finished:
            self.count_stray()
            raise TrialStopped(ENDED, "the checkpoint is not restored: the trial that asked for it has ended")
        with Restorer(self.job, self._place, self._link, self._saver, self.waiting).folder() as folder:
            yield folder

    def tell(self, order: Order) -> None:
        """From another thread: act on what the controller says of this attempt."""
        match order:
            case Stop():
                self.stop(order.reason, order.wants_checkpoint, order.allows)
            case Answer():
                self.answer(order.report)
            case Judged():
                self.judged[order.report] = order
            case Interrupt():
                self.interrupt()

    def stop(self, reason: str, wants_checkpoint: bool = False, allows: str = "nothing") -> None:
        """From another thread: the trial should end at its next report, or the next one with a checkpoint.

        `allows` says what it may still make: `nothing`, a `checkpoint` that it has in hand, or a `report`.
        """
        faultplan.reach_in_trial("stop", self.job.trial, self.job.attempt)
        self.ending.ask(reason, wants_checkpoint, allows)

    def answer(self, report: int) -> None:
        """From another thread: everything up to `report` is journaled and decided."""
        with self.ending.changed:
            self._answered = max(self._answered, report)
            self.ending.changed.notify_all()

    def interrupt(self) -> None:
        """From another thread: the trial should end now; what waits for an answer waits no longer."""
        self.ending.interrupt()

    def raise_if_over(self) -> None:
        """See `Ending.raise_if_over`."""
        self.ending.raise_if_over()

    def _await_answer(self, index: int, patience_s: float | None) -> None:
        ending = self.ending
        with ending.changed:
            ending.changed.wait_for(lambda: self._answered >= index or ending.is_due, patience_s)

    def _await_evaluations(self) -> None:
        """Wait while more reports than it may be ahead of wait for evaluations of their checkpoints."""
        ending, unjudged = self.ending, self._unjudged
        with ending.changed:
            while True:
                while unjudged and unjudged[0] <= self._answered:
                    unjudged.popleft()
                if len(unjudged) <= (self._ahead or 0) or ending.reason is not None:
                    return
                ending.changed.wait()

    def finish(self) -> None:
        """User code has ended: what it handed over is stored, if there is the time, before that is said."""
        with self.ending.lock:
            self._is_finished = True
            saver = self._known_saver
        if saver is not None:
            saver.finish()
