"""All that is stored of one sweep, read in one pass over its journal: for reports. Needs no Ray.

The journal gives what the outcome leaves out: the curves of the trials, the slots that they ran on, the
checkpoints. A sweep that has ended can be read without it; one that has not cannot.
"""

from __future__ import annotations

import time
from array import array
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import isfinite
from typing import Any, Final

from raysweep.core import SweepState, decode, step
from raysweep.core.state.trial import Trial
from raysweep.core.views.result import trial_outcome
from raysweep.core.vocabulary import events as ev
from raysweep.documents.json_numbers import without_names
from raysweep.errors import RaysweepError, SweepNotFoundError
from raysweep.estimates import Past
from raysweep.estimates.seen import MAX_TRIALS as MAX_SEEN
from raysweep.outcome import Standing, SweepOutcome, SweepProgress, TrialOutcome
from raysweep.outcome.ended import status_of_outcome
from raysweep.outcome.estimate import NOTHING
from raysweep.outcome.record import without_collector
from raysweep.outcome.training_metrics import END
from raysweep.outcome.trials import Trials
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import HolderWatch
from raysweep.runs.ownership.replay import damaged_record
from raysweep.runs.reading.estimating import Estimating
from raysweep.runs.reading.past_nights import past_nights
from raysweep.runs.reading.reader import with_verdict
from raysweep.runs.reading.running import is_starting, unread_status
from raysweep.runs.reading.state_status import status_of_state
from raysweep.schedulers import load_scheduler
from raysweep.specs import SweepSpec

MAX_METRICS: Final = 8
"""Of this many metrics the curves are kept: those that rank the trials, then the first that came up."""
TOLD_EVERY: Final = 2000
"""The records of the journal that are read between two calls of `on_progress`."""
OnProgress = Callable[[str, int, int], None]
"""Told what is done, how much of it is done, and how much there is; 0: not known."""
_NAN: Final = float("nan")
_SMALLEST: Final = 1.2e-38
_LARGEST: Final = 3.4e38
"""Of the floats of 32 bits."""


@dataclass(slots=True)
class Curve:
    """The reports of one trial that count, without those that a later attempt made again."""

    iterations: array[float] = field(default_factory=lambda: array("f"))
    """The place of each report in the trial, from 1."""
    values: dict[str, array[float]] = field(default_factory=dict)
    """By metric, a value for each report; NaN where it has none."""

    def cut(self, iteration: int) -> None:
        """Drop what came at this iteration or later."""
        while self.iterations and self.iterations[-1] >= iteration:
            self.iterations.pop()
            for column in self.values.values():
                column.pop()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotRun:
    """One attempt on a slot. Times are UTC seconds.

    `slot` counts the slots that are open at once, from 0; None where that is not known.
    """

    trial: int
    attempt: int
    slot: int | None
    node: str
    started_at: float
    ended_at: float | None
    end: str


@dataclass(slots=True, kw_only=True)
class CheckpointCounts:
    """The checkpoints of all trials together."""

    stored: int = 0
    failed: int = 0
    size_bytes: int = 0
    trials: set[int] = field(default_factory=set)


@dataclass(frozen=True, slots=True, kw_only=True)
class WholeSweep:
    """One sweep, ended or not."""

    folder: SweepFolder
    record: SweepRecord
    spec: SweepSpec
    """As it was last changed."""
    status: Standing
    outcome: SweepOutcome | None
    trials: Sequence[TrialOutcome]
    """Trial i is number i."""
    curves: Mapping[int, Curve]
    runs: tuple[SlotRun, ...]
    checkpoints: CheckpointCounts
    problem: str = ""
    """The reason why there are no curves: the journal could not be read."""


def read_whole(folder: SweepFolder, on_progress: OnProgress | None = None) -> WholeSweep:
    """Read everything of a sweep.

    Args:
        folder: The sweep.
        on_progress: Is told how many records of the journal are read.

    Raises:
        SweepNotFoundError: There is no such sweep.
        SpecError: It has not ended, and its scheduler is a class that cannot be imported here.
        StorageError, SweepDamagedError, JournalDamagedError: It cannot be read. A damaged journal of a sweep
            that has ended is told in `problem` instead.
    """
    return WholeReader(folder, on_progress=on_progress).read()


class WholeReader:
    """Reads a sweep again and again: of the journal, only what is new.

    Args:
        folder: The sweep.
        is_strict: A journal that cannot be read raises where there is no outcome; else the heartbeat is used.
        on_progress: As for `read_whole`.
    """

    def __init__(
        self,
        folder: SweepFolder,
        *,
        is_strict: bool = True,
        on_progress: OnProgress | None = None,
    ) -> None:
        self._folder, self._on_progress = folder, on_progress
        self._is_strict = is_strict
        self._watch = HolderWatch()
        self._collector: _Collector | None = None
        self._estimating = Estimating(self._past)

    def read(self) -> WholeSweep:
        """As `read_whole`; the curves of the result grow with the next call."""
        folder = self._folder
        record = folder.read_spec()
        if record is None:
            raise SweepNotFoundError(folder.sweep_id, folder.store.url)
        # The heartbeat first: what it knows is in the journal by then.
        heartbeat = folder.read_progress()
        outcome = folder.read_outcome()
        if outcome is not None:
            # All of it is looked at several times: a stored trial would be read anew each time.
            outcome = outcome.model_copy(update={"trials": Trials(tuple(outcome.trials))})
        found, problem = _Collected(), ""
        try:
            with without_collector():
                found = self._collect(record)
        except RaysweepError as error:
            if outcome is None and self._is_strict:
                raise
            problem = str(error)
        state = found.state
        if outcome is not None:
            status = with_verdict(status_of_outcome(outcome, uri=folder.uri, now=time.time()), folder)
            trials: Sequence[TrialOutcome] = outcome.trials
        else:
            status = self._unfinished(record, heartbeat, found, problem)
            trials = (
                tuple(trial_outcome(state, trial, folder.uri) for trial in state.trials.values())
                if state is not None
                else ()
            )
        return WholeSweep(
            folder=folder,
            record=record,
            spec=state.spec if state is not None else SweepSpec.from_any(dict(record.spec)),
            status=status,
            outcome=outcome,
            trials=trials,
            curves=found.curves,
            runs=_runs(trials, found.slots, status.read_at),
            checkpoints=found.checkpoints,
            problem=problem,
        )

    def _unfinished(
        self, record: SweepRecord, heartbeat: SweepProgress | None, found: _Collected, problem: str
    ) -> Standing:
        """The status of a sweep without an outcome; of one whose journal cannot be read, the heartbeat's."""
        folder, state, now = self._folder, found.state, time.time()
        held = self._watch.judge(heartbeat, None)
        if state is None:
            return unread_status(
                record, heartbeat, folder.uri, f"the journal cannot be read: {problem}", held
            )
        expected = NOTHING
        if is_starting(folder, state, heartbeat, now):
            heartbeat, held = None, "alive"
        elif held == "alive":
            expected = self._estimating.of(state, heartbeat, _main_curves(found), now)
        return status_of_state(
            state, heartbeat, uri=folder.uri, key=record.key, now=now, held=held, expected=expected
        )

    def _past(self) -> Sequence[Past]:
        record = self._folder.read_spec()
        name = str(record.spec.get("name", "")) if record is not None else ""
        return past_nights(self._folder.store, name, but=self._folder.sweep_id)

    def _collect(self, record: SweepRecord) -> _Collected:
        collector, self._collector = self._collector, None
        if collector is None or collector.record != record:
            collector = _Collector(record, self._folder)
        found = collector.read(self._on_progress)
        self._collector = collector
        return found


@dataclass(slots=True, kw_only=True)
class _Collected:
    """The content of a journal; empty where it could not be read."""

    state: SweepState | None = None
    curves: dict[int, Curve] = field(default_factory=dict)
    slots: dict[tuple[int, int], tuple[int | None, str]] = field(default_factory=dict)
    checkpoints: CheckpointCounts = field(default_factory=CheckpointCounts)


class _Collector:
    """Replays a journal and keeps what a report shows of it."""

    def __init__(self, record: SweepRecord, folder: SweepFolder) -> None:
        self.record = record
        self._journal = folder.journal()
        spec = SweepSpec.from_any(dict(record.spec))
        load_scheduler(spec)
        self.state = SweepState.create(spec, record.seed)
        self.found = _Collected(state=self.state)
        self._lanes: dict[int, int] = {}
        self._free: list[int] = []
        self._metrics: dict[str, None] = {name: None for name in (spec.metric, *spec.others) if name}

    def read(self, on_progress: OnProgress | None) -> _Collected:
        """Take what came since the last call."""
        for number, line in enumerate(self._journal.read(), start=1):
            if on_progress is not None and number % TOLD_EVERY == 0:
                on_progress("reading the journal", number, 0)
            try:
                event = decode(line)
            except ValueError as error:
                raise damaged_record(number, error) from error
            self._take(event)
        return self.found

    def _take(self, event: ev.Event) -> None:
        state = self.state
        if isinstance(event, ev.TrialReported):
            trial = state.trials.get(event.trial)
            before = _reported(trial) if trial is not None else (0, 0, 0)
            step(state, event)
            if trial is not None:
                self._take_rows(trial, event, before)
            return
        if isinstance(event, ev.TrialStarted):
            # Its slot is known while it runs only.
            trial = state.trials.get(event.trial)
            slot = state.slots.get(trial.slot) if trial is not None and trial.slot is not None else None
            if slot is not None:
                self.found.slots[event.trial, event.attempt] = (self._lane_of(slot.number), slot.node)
        elif isinstance(event, ev.CheckpointCommitted):
            self.found.checkpoints.stored += 1
            self.found.checkpoints.size_bytes += event.size_bytes
            self.found.checkpoints.trials.add(event.trial)
        elif isinstance(event, ev.CheckpointFailed):
            self.found.checkpoints.failed += 1
        step(state, event)

    def _lane_of(self, number: int) -> int:
        """The place of a slot beside the others. One that opened in the stead of another has its place."""
        lanes, slots = self._lanes, self.state.slots
        if number not in lanes:
            if len(lanes) >= len(slots):  # then some of them are gone
                lanes = self._lanes = {each: lane for each, lane in lanes.items() if each in slots}
                self._free = sorted(set(range(len(slots))).difference(lanes.values()), reverse=True)
            lanes[number] = self._free.pop() if self._free else 1 + max(lanes.values(), default=-1)
        return lanes[number]

    def _take_rows(self, trial: Trial, event: ev.TrialReported, before: tuple[int, int, int]) -> None:
        reports, overrun, start = before
        if END in event.keys and self.record.train is not None:
            return  # no report of its own
        # As in `history`: a batch may have been journaled twice, and what came after a stop does not count.
        taken = trial.results.attempt_reports - reports
        if taken <= 0:
            return
        skipped = len(event.rows) - taken
        rows = event.rows[skipped : len(event.rows) - (trial.results.overrun - overrun)]
        if not rows:
            return
        first = start + event.first + skipped + 1
        curve = self.found.curves.get(trial.number)
        if curve is None:
            curve = self.found.curves[trial.number] = Curve()
        elif curve.iterations and curve.iterations[-1] >= first:
            curve.cut(first)
        known = len(curve.iterations)
        curve.iterations.extend(range(first, first + len(rows)))
        columns = [(place, key) for place, key in enumerate(event.keys) if self._keeps(key, rows[0][place])]
        for place, key in columns:
            column = curve.values.get(key)
            if column is None:
                column = curve.values[key] = array("f", [_NAN]) * known
            values = [number_of(row[place]) for row in rows]
            if column.typecode == "f" and not fit_32_bits(values):
                column = curve.values[key] = array("d", column)
            column.extend(values)
        if len(columns) < len(curve.values):
            for column in curve.values.values():
                column.extend([_NAN] * (known + len(rows) - len(column)))

    def _keeps(self, key: str, value: Any) -> bool:
        if key in self._metrics:
            return True
        if len(self._metrics) >= MAX_METRICS or value is None or number_of(value) != number_of(value):
            return False
        self._metrics[key] = None
        return True


def _main_curves(found: _Collected) -> dict[int, array[float]]:
    """The curves of the newest trials, by the sweep's metric."""
    metric = found.state.spec.metric if found.state is not None else ""
    newest = list(found.curves.items())[-MAX_SEEN:]
    return {number: curve.values[metric] for number, curve in newest if metric in curve.values}


def number_of(value: Any) -> float:
    """A number as a float, all else as NaN."""
    if type(value) is float:
        return value
    if isinstance(value, str):
        value = without_names(value)
    if isinstance(value, bool) or not isinstance(value, int | float):
        return _NAN
    try:
        return float(value)
    except OverflowError:
        return float("inf") if value > 0 else float("-inf")


def fit_32_bits(values: Sequence[float]) -> bool:
    """True if none of them would be infinite, zero or coarse as a float of 32 bits."""
    # Most are positive: two calls tell. A NaN that is first fails both comparisons.
    if not values or (min(values) > _SMALLEST and max(values) < _LARGEST):
        return True
    return not any(map(_needs_64_bits, values))


def _needs_64_bits(value: float) -> bool:
    return value != 0.0 and not _SMALLEST < abs(value) < _LARGEST and isfinite(value)


def _reported(trial: Trial) -> tuple[int, int, int]:
    results = trial.results
    return results.attempt_reports, results.overrun, results.attempt_iteration


def _runs(
    trials: Sequence[TrialOutcome], slots: Mapping[tuple[int, int], tuple[int | None, str]], now: float
) -> tuple[SlotRun, ...]:
    """Every attempt with its slot, one that still runs included."""
    found = []
    for trial in trials:
        last = 0
        for attempt in trial.attempts:
            last = attempt.attempt
            slot, node = slots.get((trial.number, last), (None, ""))
            found.append(
                SlotRun(
                    trial=trial.number,
                    attempt=last,
                    slot=slot,
                    node=attempt.node or node,
                    started_at=attempt.started_at,
                    ended_at=attempt.ended_at,
                    end=attempt.end,
                )
            )
        running = (trial.number, last + 1)
        if trial.state == "running" and trial.started_at is not None:
            slot, node = slots.get(running, (None, ""))
            at = trial.attempts[-1].ended_at if trial.attempts else trial.started_at
            found.append(
                SlotRun(
                    trial=trial.number,
                    attempt=last + 1,
                    slot=slot,
                    node=node,
                    started_at=at if at is not None else now,
                    ended_at=None,
                    end="running",
                )
            )
    return tuple(found)
