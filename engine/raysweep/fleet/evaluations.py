"""Evaluations apart from training: a report counts once the evaluation of its checkpoint is in.

This stands between the rest of the fleet and the core, and the events of each slot pass through it in order.
A report that waits for an evaluation holds back all that its slot says after it, the trial's end included.
When the metrics are there, they become part of that report. So the core decides, and the journal is written,
as if each evaluation had taken no time, and the trial had run later. Nothing of it is stored: what a lost
controller held back is lost, and its trials resume from the last checkpoint that the journal has.

| the evaluation | the report |
|---|---|
| has given metrics | counts, with its own metrics and these |
| has failed `tries` times | counts with its own metrics; a note says why |
| is not wanted (`every`), or its checkpoint could not be stored | counts with its own metrics |
| is open, and a verdict ends the trial | counts for nothing, as others past a verdict |
| is open, and the sweep ends or the controller leaves | is dropped, with all after it |
| cannot begin, as the process died before its checkpoint was stored | is dropped, with all after it |

A trial that continues makes reports again that were dropped.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Final, Literal

from pydantic import JsonValue

from raysweep.core.views.scores import as_number
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.stop_reasons import STOPS
from raysweep.fleet.actions import Action, CancelEvaluation, StartEvaluation
from raysweep.messages import Judged, Validation

_ENDS: Final = (ev.TrialReturned, ev.TrialStopped, ev.TrialFailed)
_OF_SLOT: Final = (ev.SlotOpened, ev.SlotDelayed, ev.SlotFailed, ev.SlotLost, ev.TrialsRecalled)
_OF_ATTEMPT: Final = (
    ev.TrialStarted,
    ev.TrialReported,
    ev.TrialBusy,
    ev.CheckpointCommitted,
    ev.CheckpointFailed,
    ev.CheckpointDamaged,
    ev.TrialNoted,
    *_ENDS,
)
_DROPPED: Final = (ev.TrialReported, ev.CheckpointCommitted, ev.CheckpointFailed)
"""Events of an attempt that are dropped once its reports count no more."""
_COUNTED: Final = "training_iteration"

MarkState = Literal["unstored", "open", "in", "void", "gone"]
"""The state of a checkpoint's evaluation: not stored yet, open, or in; or the report has to do without:
because there is none (`void`), or because the report itself is to be made again (`gone`)."""


@dataclass(slots=True, kw_only=True, eq=False)
class Mark:
    """A report that comes with a checkpoint."""

    report: int
    """Its number in its attempt, from 0."""
    is_wanted: bool
    """True if its checkpoint is to be evaluated."""
    validation: Validation | None = None
    """The evaluation, where its trial has given one."""
    state: MarkState = "unstored"
    """The state of that evaluation."""
    is_settled: bool = False
    """True if its worker has said that it is stored, or could not be."""
    number: int = -1
    """The number of the evaluation."""
    uri: str = ""
    """The address of the stored checkpoint."""
    tries: int = 0
    """The number of times that it was begun."""
    metrics: dict[str, JsonValue] = field(default_factory=dict)
    """The metrics that it gave; once the report has passed, with that report's own."""
    note: str = ""
    """The reason why it gave nothing."""

    @property
    def is_pending(self) -> bool:
        """True if its report waits."""
        return self.state in ("unstored", "open")


@dataclass(slots=True, kw_only=True, eq=False)
class Watched:
    """One attempt."""

    start: cmd.StartTrial
    """The command that started it."""
    marks: dict[int, Mark] = field(default_factory=dict)
    """Its reports with checkpoints, by their number, until their checkpoint has passed."""
    said: int = 0
    """The number of reports with checkpoints that it has made."""
    has_begun: bool = False
    """True if user code has begun to run."""
    waits_for_none: bool = False
    """True if no report of it waits any more, as none counts."""
    is_leaving: bool = False
    """True if it ends now, and continues, if at all, from what the journal has."""
    is_cut: bool = False
    """True if all that it still reports is dropped."""

    @property
    def slot(self) -> int:
        """The slot that has it."""
        return self.start.slot


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationRules:
    """The spec's rules for evaluations."""

    every: int
    """Each so-manyth checkpoint of a trial is evaluated."""
    tries: int
    """The number of tries of one."""
    metric: str
    """The metric that ranks."""
    ranks_by: str
    """The metric that ranks checkpoints, where that is another."""
    is_by_trainer: bool = False
    """True if trials choose the checkpoints to evaluate, and the evaluation; they receive its result."""


class Evaluations:
    """Holds back what slots say until it can count. `act` takes what the evaluators are to do, `tell` what a
    slot's worker is to hear.

    `events` are those that the core is to have now, in order.
    """

    def __init__(
        self, rules: EvaluationRules, act: Callable[[Action], None], tell: Callable[[int, Judged], None]
    ) -> None:
        self.events: deque[ev.Event] = deque()
        self._rules = rules
        self._act = act
        self._tell = tell
        self._next = 0
        self._attempts: dict[int, Watched] = {}
        self._lanes: dict[int, deque[ev.Event]] = {}
        """By slot: what is held back, in order; the first waits for an evaluation."""
        self._open: dict[int, tuple[Watched, Mark]] = {}
        self._is_told: set[int] = set()
        """The slots of which the core knows that their trial cannot be heard."""

    @property
    def is_idle(self) -> bool:
        """True if nothing is held back."""
        return not self._lanes and not self.events

    # -- commands of the core ----------------------------------------------------------------------

    def begin(self, command: cmd.StartTrial) -> None:
        """A trial is handed over."""
        before = self._attempts.get(command.trial)
        if before is not None:
            self._cancel(before)
        self._attempts[command.trial] = Watched(start=command)

    def stop(self, command: cmd.StopTrial, at: float) -> None:
        """A trial is asked to end: what waits for an evaluation may not be of use any more."""
        watched = self._find(command.trial, command.attempt)
        if watched is None:
            return
        if command.reason in ("sweep", "interrupt") or (STOPS[command.reason].counts and not command.grace_s):
            watched.is_leaving = True
        elif not STOPS[command.reason].counts:
            watched.waits_for_none = True
        else:
            return
        self._settle(watched)
        self._pump(command.slot, at)

    def close(self, command: cmd.CloseSlot) -> None:
        """The core has forgotten the slot."""
        self._lanes.pop(command.slot, None)
        self._is_told.discard(command.slot)

    # -- from the workers --------------------------------------------------------------------------

    def expect(self, trial: int, attempt: int, report: int, validation: Validation | None = None) -> None:
        """This report of the attempt comes with a checkpoint; `validation`: what its trial says of it."""
        watched = self._find(trial, attempt)
        if watched is None:
            return
        watched.said += 1
        is_wanted = (watched.start.saved + watched.said) % self._rules.every == 0
        if self._rules.is_by_trainer:
            is_wanted = validation is not None
        mark = watched.marks[report] = Mark(report=report, is_wanted=is_wanted, validation=validation)
        if not mark.is_wanted:
            mark.state = "void"
        self._settle(watched)

    def expect_none(self, trial: int, attempt: int, report: int, at: float) -> None:
        """This report of the attempt comes without a checkpoint after all: it could not be handed over."""
        watched = self._find(trial, attempt)
        mark = watched.marks.get(report) if watched is not None else None
        if watched is None or mark is None or mark.is_settled:
            return
        mark.is_settled = True
        watched.said -= 1
        if mark.state == "unstored":
            mark.state = "void"
            self._pump(watched.slot, at)

    def take(self, event: ev.Event) -> None:
        """An event of the fleet."""
        slot = self._slot_of(event)
        if slot is None:
            self.events.append(event)
            return
        self._look(event)
        lane = self._lanes.get(slot)
        if lane is None:
            if self._waits_for(event) is None:
                self._pass(event, slot)
                return
            lane = self._lanes[slot] = deque()
        lane.append(event)
        self._pump(slot, event.at)

    # -- from the evaluators -----------------------------------------------------------------------

    def done(self, number: int, metrics: dict[str, JsonValue], at: float) -> None:
        """An evaluation gave these metrics; one that is no longer waited for is ignored."""
        watched, mark = self._open.pop(number, (None, None))
        if watched is not None and mark is not None:
            mark.state, mark.metrics = "in", metrics
            self._tell_trial(watched, mark, "")
            self._pump(watched.slot, at)

    def failed(self, number: int, problem: str, at: float) -> None:
        """A try of an evaluation failed, or its process died: it is tried again, or given up."""
        watched, mark = self._open.get(number, (None, None))
        if watched is None or mark is None:
            return
        if mark.tries < self._rules.tries:
            self._start(watched, mark)
            return
        del self._open[number]
        times = "once" if mark.tries == 1 else f"{mark.tries} times"
        mark.state, mark.note = "void", f"failed {times}, the last time with {problem}"
        self._tell_trial(watched, mark, problem)
        self._pump(watched.slot, at)

    # -- how it is done ----------------------------------------------------------------------------

    def _tell_trial(self, watched: Watched, mark: Mark, problem: str) -> None:
        if self._rules.is_by_trainer:
            start = watched.start
            judged = Judged(start.trial, start.attempt, mark.report, metrics=mark.metrics, problem=problem)
            self._tell(watched.slot, judged)

    def _find(self, trial: int, attempt: int) -> Watched | None:
        watched = self._attempts.get(trial)
        return watched if watched is not None and watched.start.attempt == attempt else None

    def _slot_of(self, event: ev.Event) -> int | None:
        if isinstance(event, _OF_SLOT):
            return event.slot
        watched = self._of(event)
        return watched.slot if watched is not None else None

    def _of(self, event: ev.Event) -> Watched | None:
        return self._find(event.trial, event.attempt) if isinstance(event, _OF_ATTEMPT) else None

    def _look(self, event: ev.Event) -> None:
        """Note the meaning of an event for evaluations, as soon as it is there."""
        watched = self._of(event)
        if isinstance(event, ev.SlotLost | ev.SlotFailed):
            for each in self._attempts.values():
                if each.slot == event.slot:
                    self._store_no_more(each, "gone")
        if watched is None:
            return
        match event:
            case ev.TrialStarted():
                watched.has_begun = True
            case ev.CheckpointCommitted(report=report, uri=uri):
                mark = watched.marks.get(report)
                if mark is not None:
                    mark.is_settled, mark.uri = True, uri
                    if mark.state == "unstored":
                        self._start(watched, mark)
            case ev.CheckpointFailed():
                self._take_unstored(watched)
            case ev.TrialReturned():
                self._store_no_more(watched, "void")
            case ev.TrialStopped() | ev.TrialFailed():
                self._store_no_more(watched, "gone")
            case _:
                pass

    def _take_unstored(self, watched: Watched) -> None:
        """Checkpoints are stored, or not, in the order of their reports."""
        mark = next((mark for mark in watched.marks.values() if not mark.is_settled), None)
        if mark is None:
            return
        mark.is_settled = True
        watched.said -= 1
        if mark.state == "unstored":
            mark.state = "void"

    def _store_no_more(self, watched: Watched, state: MarkState) -> None:
        for mark in watched.marks.values():
            if mark.state == "unstored":
                mark.state = state

    def _settle(self, watched: Watched) -> None:
        """No report of an attempt that was told to end waits any more."""
        if not (watched.is_leaving or watched.waits_for_none):
            return
        for mark in watched.marks.values():
            if mark.is_pending:
                self._drop(mark)
                mark.state = "gone" if watched.is_leaving else "void"

    def _cancel(self, watched: Watched) -> None:
        for mark in watched.marks.values():
            self._drop(mark)

    def _drop(self, mark: Mark) -> None:
        if self._open.pop(mark.number, None) is not None:
            self._act(CancelEvaluation(evaluation=mark.number))

    def _start(self, watched: Watched, mark: Mark) -> None:
        if mark.number < 0:
            mark.number, self._next = self._next, self._next + 1
        mark.state, mark.tries = "open", mark.tries + 1
        self._open[mark.number] = watched, mark
        start = watched.start
        self._act(
            StartEvaluation(
                evaluation=mark.number,
                tried=mark.tries,
                trial=start.trial,
                attempt=start.attempt,
                iteration=start.iteration + mark.report + 1,
                seed=start.seed,
                config=start.config,
                uri=mark.uri,
                validation=mark.validation,
            )
        )

    def _mark_of(self, event: ev.Event, watched: Watched | None) -> Mark | None:
        """The mark of a report: one with a checkpoint comes alone."""
        if watched is None or not isinstance(event, ev.TrialReported) or not event.rows:
            return None
        return watched.marks.get(event.first + len(event.rows) - 1)

    def _waits_for(self, event: ev.Event) -> Mark | None:
        watched = self._of(event)
        if watched is None or watched.is_cut:
            return None
        mark = self._mark_of(event, watched)
        return mark if mark is not None and mark.is_pending else None

    def _pump(self, slot: int, at: float) -> None:
        """Let go what does not wait any more; what still waits, the core is told to have patience with."""
        lane = self._lanes.get(slot)
        if lane is None:
            return
        while lane and self._waits_for(lane[0]) is None:
            self._pass(self._late(lane.popleft(), at), slot)
            self._is_told.discard(slot)
        if not lane:
            del self._lanes[slot]
        elif slot not in self._is_told:
            watched = self._of(lane[0])
            assert watched is not None, "what waits is a report"
            self._is_told.add(slot)
            self.events.append(ev.TrialBusy(at=at, trial=watched.start.trial, attempt=watched.start.attempt))

    def _late(self, event: ev.Event, at: float) -> ev.Event:
        """The event as of now. A worker that died idle, after its trial, is charged to none."""
        if isinstance(event, ev.SlotLost):
            slot = event.slot
            was_handed = any(each.slot == slot and each.has_begun for each in self._attempts.values())
            return replace(event, at=at, was_handed=event.was_handed and was_handed)
        return replace(event, at=at)

    def _pass(self, event: ev.Event, slot: int) -> None:
        """Pass an event to the core now, unless it is dropped."""
        watched = self._of(event)
        if watched is None:
            if isinstance(event, ev.SlotLost | ev.SlotFailed):
                self._forget_slot(slot)
            self.events.append(event)
            return
        mark = self._mark_of(event, watched)
        watched.is_cut |= mark is not None and mark.state == "gone"
        if watched.is_cut and isinstance(event, _DROPPED):
            return
        if isinstance(event, _ENDS):
            self._cancel(watched)
            del self._attempts[watched.start.trial]
            if watched.is_cut and isinstance(event, ev.TrialReturned):
                # It has returned, and what it has done is not all taken: it is not complete.
                event = ev.TrialStopped(at=event.at, trial=event.trial, attempt=event.attempt)
        elif isinstance(event, ev.CheckpointCommitted):
            event = self._ranked(event, watched.marks.pop(event.report, None))
        elif mark is not None and isinstance(event, ev.TrialReported):
            event = _merged(event, mark)
            stored = self._take_stored(slot, watched, mark.report)
            if stored is not None:
                # Right behind its report, and in one batch of the journal: none of the two is made again.
                self.events.append(replace(event, is_waiting=False))
                self.events.append(replace(self._ranked(stored, mark), at=event.at))
                event = replace(event, first=event.first + len(event.rows), rows=())
        if not isinstance(event, ev.TrialReported) or event.rows or event.is_waiting:
            self.events.append(event)
        if mark is not None and mark.note:
            iteration = watched.start.iteration + mark.report + 1
            text = f"the evaluation after report {iteration} {mark.note}: the report counts without it"
            start = watched.start
            self.events.append(
                ev.TrialNoted(at=event.at, trial=start.trial, attempt=start.attempt, text=text)
            )

    def _take_stored(self, slot: int, watched: Watched, report: int) -> ev.CheckpointCommitted | None:
        """Take the checkpoint of a report out of what is held back.

        A trial that has said that it is storing is heard of again where it said that this is done.
        """
        lane, is_busy = self._lanes.get(slot, deque()), False
        for index, event in enumerate(lane):
            if self._of(event) is not watched:
                continue
            if isinstance(event, ev.TrialBusy):
                is_busy = not event.is_over
            elif isinstance(event, ev.CheckpointCommitted) and event.report == report:
                del lane[index], watched.marks[report]
                if is_busy:
                    start = watched.start
                    over = ev.TrialBusy(at=event.at, trial=start.trial, attempt=start.attempt, is_over=True)
                    lane.insert(index, over)
                return event
        return None

    def _forget_slot(self, slot: int) -> None:
        for watched in [each for each in self._attempts.values() if each.slot == slot]:
            self._cancel(watched)
            del self._attempts[watched.start.trial]

    def _ranked(self, event: ev.CheckpointCommitted, mark: Mark | None) -> ev.CheckpointCommitted:
        """A checkpoint is ranked by the whole report that it came with."""
        if mark is None or mark.state != "in":
            return event
        rules = self._rules
        rank = as_number(mark.metrics.get(rules.ranks_by)) if rules.ranks_by else None
        return replace(event, score=as_number(mark.metrics.get(rules.metric)), rank=rank)


def _merged(event: ev.TrialReported, mark: Mark) -> ev.TrialReported:
    """The report with the metrics of its evaluation."""
    if mark.state != "in":
        return event
    twice = next((name for name in mark.metrics if name in event.keys or name == _COUNTED), None)
    if twice is not None:
        mark.state = "void"
        mark.note = f"gave {twice!r}, which the report has already"
        return event
    row = [*event.rows[-1], *mark.metrics.values()]
    keys = (*event.keys, *mark.metrics)
    mark.metrics = dict(zip(keys, row, strict=True))
    return replace(event, keys=keys, rows=(row,))
