"""The events of a sweep for its callbacks, made of its journal by a replay.

The same journal gives the same events with the same ids, whenever and however often it is read.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final, cast

from raysweep.core import SweepState, decode, step
from raysweep.core.state.trial import Trial, trial_id
from raysweep.core.views.result import best_shown, explain, num_trials
from raysweep.core.views.scores import score_of
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.documents.json_numbers import Counts
from raysweep.documents.stored_paths import to_uri
from raysweep.errors import JournalDamagedError, StorageError, SweepNotFoundError, one_line
from raysweep.hooks import events as hk
from raysweep.outcome.training_metrics import END, own_metrics
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.replay import damaged_record
from raysweep.runs.reading.history import take_reports
from raysweep.schedulers import load_scheduler
from raysweep.specs import SweepSpec

Key = tuple[int, int]
"""The place of an event: the number of the journal's record, and its number among those of the record."""
START: Final[Key] = (0, 0)
MIN_ENDED: Final = 5
"""After so many trials the pace is known well enough to compare it with the deadline."""
MAX_ERROR_CHARS: Final = 500


@dataclass(frozen=True, slots=True)
class Item:
    """An event with its place."""

    ordinal: int
    """The number of the event in the sweep, from 1."""
    key: Key
    event: hk.Event


def event_id(key: Key) -> str:
    """The id of the event from there."""
    return f"{key[0]:012d}.{key[1]:06d}"


class Feed:
    """Reads a journal from its start, as far as it goes; each `read` continues where the last one stopped.

    Raises:
        SweepNotFoundError: There is no such sweep.
        SpecError: The scheduler is a class of the user's that cannot be imported here.
    """

    def __init__(self, folder: SweepFolder) -> None:
        record = folder.read_spec()
        if record is None:
            raise SweepNotFoundError(folder.sweep_id, folder.store.url)
        spec = SweepSpec.from_any(dict(record.spec))
        load_scheduler(spec)
        self._folder, self._journal = folder, folder.journal()
        self._fields = dict(record.spec if record.train is None else record.train)
        self._is_training = record.train is not None
        self._reported: Mapping[str, Any] = {}
        """The metrics of the last report."""
        self._left_out = 0
        """The number of reports that are no events."""
        self._state = SweepState.create(spec, record.seed)
        self._ended: set[int] = set()
        self._failed = 0
        self._warned_deadline: float | None = None
        self._number, self._index = 0, 0
        self._reading: Iterator[Item] | None = None
        self.ordinal = 0
        """The number of events up to now."""

    @property
    def spec(self) -> SweepSpec:
        """The spec as it is now."""
        return self._state.spec

    @property
    def begun_at(self) -> float:
        """The begin of the sweep, in Unix seconds; 0 before the first read."""
        return self._state.clock.started_at or 0.0

    @property
    def has_ended(self) -> bool:
        """True if the sweep has ended, as far as was read."""
        return self._state.phase == "ended"

    def read(self, most: int) -> list[Item]:
        """Up to `most` events that are new; fewer: the journal has no more at present.

        Raises: StorageError: call it again; JournalDamagedError.
        """
        found: list[Item] = []
        if self._reading is None:
            self._reading = self._read()
        try:
            found.extend(islice(self._reading, most))
        except StorageError as error:
            self._reading = None
            if not found or isinstance(error, JournalDamagedError):
                raise
        if len(found) < most:
            self._reading = None
        return found

    def _read(self) -> Iterator[Item]:
        for line in self._journal.read():
            self._number, self._index = self._number + 1, 0
            try:
                event = decode(line)
            except ValueError as error:
                raise damaged_record(self._number, error) from error
            for made in self._take(event):
                self.ordinal += 1
                yield Item(self.ordinal, (self._number, self._index), made)

    def _take(self, event: ev.Event) -> Iterator[hk.Event]:
        state = self._state
        was_ended, had_room = state.phase == "ended", state.room.no_room_since is None
        if isinstance(event, ev.TrialReported):
            yield from self._reports(event)
        elif isinstance(event, ev.TrialStarted):
            yield from self._start(event)
        elif isinstance(event, ev.CheckpointCommitted):
            yield from self._checkpoint(event)
        else:
            is_new = isinstance(event, ev.ControllerStarted) and not state.controller.generation
            step(state, event)
            if is_new:
                yield self._sweep_start(event.at)
        yield from self._ends(event)
        yield from self._notices(event, had_room=had_room)
        if state.phase == "ended" and not was_ended:
            yield self._sweep_end(event.at)

    def _own(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """The metrics without those that the engine adds to a training's."""
        return own_metrics(metrics) if self._is_training else dict(metrics)

    def _id(self) -> str:
        self._index += 1
        return event_id((self._number, self._index))

    def _sweep_start(self, at: float) -> hk.SweepStart:
        spec = self._state.spec
        return hk.SweepStart(
            id=self._id(),
            at=at,
            sweep_id=self._folder.sweep_id,
            name=spec.name,
            uri=self._folder.uri,
            metric=spec.metric,
            mode=spec.mode,
            num_samples=spec.num_samples,
            tags=dict(spec.tags),
            spec=self._fields,
        )

    def _start(self, event: ev.TrialStarted) -> Iterator[hk.TrialStart]:
        trial = self._state.trials.get(event.trial)
        was = trial.state if trial is not None else ""
        step(self._state, event)
        if trial is None or was != "queued" or trial.state == "queued" or trial.attempt != event.attempt:
            return
        yield hk.TrialStart(
            id=self._id(),
            at=event.at,
            trial_id=trial_id(trial.number),
            number=trial.number,
            attempt=trial.attempt,
            config=trial.config,
            node=trial.node,
        )

    def _reports(self, event: ev.TrialReported) -> Iterator[hk.Report]:
        trial = self._state.trials.get(event.trial)
        config = trial.config if trial is not None else {}
        taken = take_reports(self._state, event)
        for index, row in enumerate(taken.rows):
            reported = dict(zip(event.keys, row, strict=True))
            metrics = self._own(reported)
            if END in reported and self._is_training and metrics == self._reported:
                self._left_out += 1
                continue  # a training's end, without a result of its own
            self._reported = metrics
            yield hk.Report(
                id=self._id(),
                at=event.at,
                trial_id=trial_id(event.trial),
                number=event.trial,
                attempt=event.attempt,
                config=config,
                iteration=taken.first + index,
                metrics=metrics,
                counts=index < taken.counted,
            )

    def _checkpoint(self, event: ev.CheckpointCommitted) -> Iterator[hk.CheckpointSaved]:
        trial = self._state.trials.get(event.trial)
        if trial is None:
            step(self._state, event)
            return
        before, start = trial.results.saved, trial.results.attempt_iteration
        step(self._state, event)
        if trial.results.saved == before:
            return
        yield hk.CheckpointSaved(
            id=self._id(),
            at=event.at,
            trial_id=trial_id(trial.number),
            number=trial.number,
            attempt=event.attempt,
            config=trial.config,
            checkpoint=event.number,
            iteration=start + event.report + 1,
            uri=to_uri(self._folder.uri, event.uri),
            size_bytes=event.size_bytes,
        )

    def _ends(self, event: ev.Event) -> Iterator[hk.TrialEnd]:
        """The trials that ended; mostly the one that the event is about, else all are looked at."""
        state = self._state
        number = getattr(event, "trial", None)
        trial = state.trials.get(number) if isinstance(number, int) else None
        if trial is not None and trial.state in FINAL and trial.number not in self._ended:
            yield self._trial_end(trial, event.at)
        final = Counts(state.line.counts).ended
        if final == len(self._ended) and not isinstance(event, ev.ControllerStarted | ev.SpecChanged):
            return
        # Others have ended with it, or continue after their end.
        self._ended = {number for number in self._ended if state.trials[number].state in FINAL}
        for each in list(state.trials.values()):
            if each.state in FINAL and each.number not in self._ended:
                yield self._trial_end(each, event.at)

    def _trial_end(self, trial: Trial, at: float) -> hk.TrialEnd:
        self._ended.add(trial.number)
        self._failed += trial.state == "failed"
        failure = trial.attempts[-1].failure if trial.state == "failed" and trial.attempts else None
        return hk.TrialEnd(
            id=self._id(),
            at=trial.ended_at if trial.ended_at is not None else at,
            trial_id=trial_id(trial.number),
            number=trial.number,
            attempt=trial.attempt,
            config=trial.config,
            state=cast(hk.EndState, trial.state),
            score=score_of(self._state, trial),
            metrics=dict(self._reported if self._is_training else trial.results.last),
            reports=trial.results.reports - trial.results.overrun - self._left_out,
            started_at=trial.started_at,
            failed=self._failed,
            error=one_line(f"{failure.type}: {failure.message}", MAX_ERROR_CHARS)
            if failure is not None
            else "",
        )

    def _notices(self, event: ev.Event, *, had_room: bool) -> Iterator[hk.Notice]:
        state = self._state
        if had_room and state.room.no_room_since is not None and state.phase == "running":
            text = f"no room at present: {state.room.no_room_problem}"
            yield hk.Notice(id=self._id(), at=event.at, kind="stalled", text=text)
        if isinstance(event, ev.DemandStuck):
            yield hk.Notice(id=self._id(), at=event.at, kind="stalled", text=event.problem)
        if isinstance(event, ev.TrialReturned | ev.TrialStopped | ev.TrialFailed):
            yield from self._deadline(event.at)

    def _deadline(self, at: float) -> Iterator[hk.Notice]:
        """A notice if, at the pace up to now, the deadline cuts the sweep: once for each deadline."""
        state = self._state
        deadline, ended = state.clock.deadline_at, len(self._ended)
        if (
            deadline is None
            or deadline == self._warned_deadline
            or ended < MIN_ENDED
            or state.phase != "running"
        ):
            return
        total = num_trials(state)
        if total is None or total <= ended:
            return
        left_s = state.controller.active_s(at) / ended * (total - ended)
        if at + left_s <= deadline:
            return
        self._warned_deadline = deadline
        late_s = at + left_s - deadline
        done = f"{ended} of {total} trials have ended, {late_s:.0f} s more are needed"
        text = f"at this pace the deadline cuts the sweep: {done}"
        yield hk.Notice(id=self._id(), at=at, kind="deadline", text=text)

    def _sweep_end(self, at: float) -> hk.SweepEnd:
        state = self._state
        best = best_shown(state)
        return hk.SweepEnd(
            id=self._id(),
            at=at,
            sweep_id=self._folder.sweep_id,
            name=state.spec.name,
            uri=self._folder.uri,
            status=state.end.status or "",
            why=explain(state),
            counts=Counts.of(state.line.counts),
            best_trial=trial_id(best.number) if best is not None else None,
            best_score=score_of(state, best) if best is not None else None,
            best_config=dict(best.config) if best is not None else {},
        )
