"""One play of the rest of a sweep: the real core under a clock of its own, on slots that run drawn trials.

The core decides all that it decides in the real sweep: who is stopped, paused, resumed, retried, when slots
close and what a deadline cuts. Cluster and trials are the least that answers it. The fleet, the workers'
machine and the journal of `simulate/` are left out: they decide nothing about when a sweep ends, and a play
that starts in the middle of a sweep could not take their state over.
"""

from __future__ import annotations

import heapq
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import count
from math import ceil, inf
from random import Random
from typing import Any

from pydantic import JsonValue

from raysweep.core.handlers.sweep_end import usage
from raysweep.core.machine import step
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.documents.json_numbers import Counts
from raysweep.estimates.model import NO_END, Course, Model
from raysweep.estimates.rows import Rows, own_step_s, rungs_of

Call = Callable[[], None]
START_S = 5.0
"""The seconds that a worker takes to start where that is not known."""
LOOK_EVERY = 64
"""After so many things that happened, the CPU time is looked at."""
NOTE_EVERY = 16
MAX_IN_VAIN = 4_000
"""The number of events without an end of a trial that lead nowhere: attempts that fail for ever."""
MAX_ROWS = 1_000
URI = "play"


@dataclass(frozen=True, slots=True, kw_only=True)
class Played:
    """The end of a play. `is_extended`: it was cut short, and its pace counts from there."""

    end_at: float
    trials: float
    cost: float
    completed: bool
    is_extended: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class _Job:
    """One attempt on a slot."""

    trial: int
    attempt: int
    iteration: int
    config: Mapping[str, Any]
    next_checkpoint: int
    reports: int = 0
    step_s: float = 1.0
    length: int = NO_END
    course: Course | None = None
    begun_at: float = 0.0
    stops: bool = False
    wants_checkpoint: bool = False


@dataclass(slots=True, eq=False, kw_only=True)
class _Slot:
    node: str
    is_open: bool = False
    queue: deque[_Job] = field(default_factory=deque)
    job: _Job | None = None
    begins: bool = False


class Play:
    """Plays on from `state`, which it changes, at `now` in the events' time.

    Args:
        state: A fork of the sweep's state, or a new one.
        model: What trials do.
        random: For all chance but the model's.
        now: From when on.
        total: How many trials there will be; None: not known.
        may_go_on: Whether there is CPU time left.
    """

    def __init__(
        self,
        state: SweepState,
        model: Model,
        random: Random,
        *,
        now: float,
        total: int | None,
        may_go_on: Callable[[], bool],
    ) -> None:
        self.state = state
        self.now = now
        self._model = model
        self._random = random
        self._total = total
        self._may_go_on = may_go_on
        self._began_at = now
        self._due: list[tuple[float, int, Call]] = []
        self._counter = count()
        self._events: deque[ev.Event] = deque()
        self._is_stepping = False
        self._timer = 0
        self._ended: cmd.EndSweep | None = None
        self._left = False
        self._slots: dict[int, _Slot] = {}
        self._courses: dict[int, tuple[int, Course]] = {}
        self._steps: dict[int, tuple[Mapping[str, Any], float]] = {}
        self._configs = [trial.config for trial in list(state.trials.values())[-50:]]
        self._paces: list[tuple[float, int]] = []
        self._rows = Rows(state)
        self._rungs = rungs_of(state)
        nodes = [slot.node for slot in state.slots.values() if slot.node]
        self._nodes = nodes or [""]
        start_s = model.samples.start_s
        self._start_s = START_S if start_s is None else start_s

    # -- the two ways to begin

    def begin_new(self, slots: int, deadline: str) -> None:
        """A sweep that has not begun, on a cluster with so many slots."""
        self._emit(ev.ControllerStarted(at=self.now, generation=1, deadline=deadline))
        self._emit(ev.CapacityChanged(at=self.now, slots=slots))

    def take_up(self, own: Mapping[int, Sequence[float]]) -> None:
        """A sweep in the middle: its slots as they are; `own`: the values that trials have reported."""
        state = self.state
        for number, slot in list(state.slots.items()):
            mine = self._slots[number] = _Slot(node=slot.node, is_open=slot.is_open)
            if not slot.is_open:
                self._after(self._start_s * self._random.random(), partial(self._open, number))
            for place, each in enumerate(slot.queue):
                trial = state.trials[each]
                job = _Job(
                    trial=each,
                    attempt=trial.attempt,
                    iteration=trial.results.iteration,
                    config=trial.config,
                    next_checkpoint=trial.results.next_checkpoint,
                    reports=trial.results.attempt_reports,
                )
                if place == 0 and trial.state in ("running", "stopping"):
                    mine.job = job
                    self._go_on_in_the_middle(mine, job, own.get(each, ()), slot.heard_at)
                else:
                    mine.queue.append(job)
            self._begin_next(mine)
            asked = tuple(each for each, _ in slot.recalling if each in slot.queue)
            if asked:
                self._recall(cmd.RecallTrials(slot=number, trials=asked))
        if state.search.asked > state.search.suggested:
            missing = state.search.asked - state.search.suggested
            self._suggest(cmd.SuggestConfigs(first=state.search.suggested, count=missing))
        self._set_timer(state.clock.timer_at)

    def _go_on_in_the_middle(self, slot: _Slot, job: _Job, own: Sequence[float], heard_at: float) -> None:
        trial = self.state.trials[job.trial]
        begun_at = trial.attempt_started_at if trial.attempt_started_at is not None else self.now
        last_at = max(heard_at, begun_at)
        silent_s = max(0.0, self.now - last_at)
        drawn = self._model.step_s(slot.node, longer_than=silent_s)
        if job.reports:
            seen = (last_at - begun_at) / job.reports
            weight = job.reports / (job.reports + 2.0)
            drawn = weight * seen + (1.0 - weight) * drawn
        job.step_s, job.begun_at = drawn, begun_at
        self._steps[job.trial] = job.config, drawn
        job.length = self._model.length(job.iteration)
        job.course = self._model.values.course(self._random, own)
        self._courses[job.trial] = (job.length, job.course)
        if trial.state == "stopping":
            self._after(min(job.step_s, 1.0), lambda: self._end(slot, job, "stopped"))
            return
        first_at = last_at + drawn
        if first_at <= self.now:
            first_at = self.now + self._random.random() * max(drawn, silent_s) * 0.5
        self._draw_failure(slot, job, self.now - begun_at)
        self._next_report(slot, job, first_s=max(0.0, first_at - self.now))

    # -- to the end

    def run(self) -> Played | None:
        """Play to the end; None where it came to none."""
        done = ended_at = 0
        self._paces.append((self.now, self._count_ended()))
        while self._ended is None and not self._left:
            if not self._due:
                return None
            self.now, _, call = heapq.heappop(self._due)
            call()
            done += 1
            if done % NOTE_EVERY == 0 and (ended := self._count_ended()) > self._paces[-1][1]:
                self._paces.append((self.now, ended))
                ended_at = done
            if done - ended_at > MAX_IN_VAIN * max(1, len(self._slots)):
                return None
            if done % LOOK_EVERY == 0 and not self._may_go_on():
                return self._extended()
        if self._ended is None:
            return None
        return Played(
            end_at=self.now,
            trials=self._count_ended(),
            cost=usage(self.state, self.now)["cost"],
            completed=self._ended.status == "completed",
        )

    def _count_ended(self) -> int:
        counts = Counts.of(self.state.line.counts)
        return counts.finished + counts.failed

    def _extended(self) -> Played | None:
        """By the pace of the second half of what was played."""
        ended = self._count_ended()
        if self._total is None or len(self._paces) < 2:
            return None
        middle = self._paces[len(self._paces) // 2]
        first = middle if middle[1] < ended else self._paces[0]
        if ended <= first[1] or self.now <= first[0]:
            return None
        pace_s = (self.now - first[0]) / (ended - first[1])
        end_at = self.now + pace_s * max(0, self._total - ended)
        trials, completed = float(self._total), True
        clock = self.state.clock
        if clock.deadline_at is not None and end_at > clock.deadline_at - clock.ahead_s:
            completed, end_at = False, max(self.now, clock.deadline_at - clock.ahead_s)
            trials = min(float(self._total), ended + (end_at - self.now) / pace_s)
        cost = usage(self.state, end_at)["cost"]
        return Played(end_at=end_at, trials=trials, cost=cost, completed=completed, is_extended=True)

    # -- events and commands

    def _after(self, seconds: float, call: Call) -> int:
        number = next(self._counter)
        heapq.heappush(self._due, (self.now + max(0.0, seconds), number, call))
        return number

    def _emit(self, event: ev.Event) -> None:
        self._events.append(event)
        if self._is_stepping:
            return
        self._is_stepping = True
        try:
            while self._events:
                for command in step(self.state, self._events.popleft()):
                    self._carry(command)
        finally:
            self._is_stepping = False

    def _carry(self, command: cmd.Command) -> None:
        match command:
            case cmd.StartTrial():
                self._start(command)
            case cmd.StopTrial():
                self._stop(command)
            case cmd.SuggestConfigs():
                self._suggest(command)
            case cmd.OpenSlot():
                self._slots[command.slot] = _Slot(node=self._random.choice(self._nodes))
                self._after(self._start_s, lambda: self._open(command.slot))
            case cmd.CloseSlot():
                self._slots.pop(command.slot, None)
            case cmd.RecallTrials():
                self._recall(command)
            case cmd.SetTimer():
                self._set_timer(command.at)
            case cmd.EndSweep():
                self._ended = command
            case cmd.LeaveSweep():
                self._left = True
            case _:
                pass

    def _open(self, number: int) -> None:
        slot = self._slots.get(number)
        if slot is not None:
            slot.is_open = True
            self._emit(ev.SlotOpened(at=self.now, slot=number, node=slot.node))
            self._begin_next(slot)

    def _suggest(self, command: cmd.SuggestConfigs) -> None:
        left = command.count if self._total is None else min(command.count, self._total - command.first)
        configs = tuple(self._config() for _ in range(max(0, left)))
        is_over = self._total is not None and command.first + len(configs) >= self._total
        event = ev.ConfigsSuggested(at=self.now, first=command.first, configs=configs, is_exhausted=is_over)
        self._emit(event)

    def _config(self) -> dict[str, JsonValue]:
        """Another trial's: what a config is changes nothing here but a size that depends on it."""
        if not self._configs:
            self._configs = [self.state.spec.space.sample(Random(number)) for number in range(16)]
        return dict(self._random.choice(self._configs))

    def _recall(self, command: cmd.RecallTrials) -> None:
        slot = self._slots.get(command.slot)
        if slot is None:
            return
        back = tuple(job.trial for job in slot.queue if job.trial in command.trials)
        slot.queue = deque(job for job in slot.queue if job.trial not in back)
        self._emit(ev.TrialsRecalled(at=self.now, slot=command.slot, trials=back))

    def _set_timer(self, at: float | None) -> None:
        self._timer += 1
        timer = self._timer
        if at is not None:
            fire = partial(self._fire, timer)
            self._after(at - self.now, fire)

    def _fire(self, timer: int) -> None:
        if timer == self._timer:
            self._emit(ev.TimerFired(at=self.now))

    # -- trials

    def _start(self, command: cmd.StartTrial) -> None:
        slot = self._slots[command.slot]
        slot.queue.append(
            _Job(
                trial=command.trial,
                attempt=command.attempt,
                iteration=command.iteration,
                config=command.config,
                next_checkpoint=command.next_checkpoint,
            )
        )
        self._begin_next(slot)

    def _begin_next(self, slot: _Slot) -> None:
        if slot.job is None and slot.queue and slot.is_open and not slot.begins:
            slot.begins = True
            self._after(self._model.samples.gap_s, lambda: self._begin(slot))

    def _begin(self, slot: _Slot) -> None:
        slot.begins = False
        if slot.job is not None or not slot.queue:
            return
        job = slot.job = slot.queue.popleft()
        job.begun_at = self.now
        known = self._courses.get(job.trial)
        if known is None or known[0] <= job.iteration:
            known = (self._model.length(job.iteration), self._model.values.course(self._random))
            self._courses[job.trial] = known
        job.length, job.course = known
        job.step_s = self._step_s(slot, job)
        self._draw_failure(slot, job, 0.0)
        self._next_report(slot, job)
        self._emit(ev.TrialStarted(at=self.now, trial=job.trial, attempt=job.attempt))

    def _step_s(self, slot: _Slot, job: _Job) -> float:
        """As before where the trial has reported with this config."""
        config, known = self._steps.get(job.trial, (None, 0.0))
        if config != job.config:
            known = own_step_s(self.state.trials[job.trial]) or self._model.step_s(slot.node)
        self._steps[job.trial] = job.config, known
        return known

    def _draw_failure(self, slot: _Slot, job: _Job, since_s: float) -> None:
        drawn = self._model.failure()
        if drawn is not None and drawn[1] >= since_s:
            self._after(drawn[1] - since_s, lambda: self._fail(slot, job, drawn[0]))

    def _next_report(self, slot: _Slot, job: _Job, first_s: float | None = None) -> None:
        left = job.length - job.iteration
        rows = min(self._rows_to_next(job), left)
        wait_s = job.step_s if first_s is None else first_s
        if rows <= 0:
            # Of a trial that never reports, a step is all of it.
            wait_s = wait_s if not job.length else 0.0
            self._after(wait_s, lambda: self._move(slot, job, 0))
        else:
            wait_s += (rows - 1) * job.step_s
            self._after(wait_s, lambda: self._move(slot, job, rows))

    def _rows_to_next(self, job: _Job) -> int:
        """The number of reports until something may be decided about the trial."""
        if self._rungs is None:
            return 1
        place = next((time for time in self._rungs if time > job.iteration), inf)
        if self.state.trials[job.trial].continued.max_t is not None or min(place, job.length) >= NO_END:
            return 1
        return int(min(ceil(min(place, job.length)) - job.iteration, MAX_ROWS))

    def _move(self, slot: _Slot, job: _Job, rows: int) -> None:
        if slot.job is not job:
            return
        if job.stops:
            self._end(slot, job, "stopped")
            return
        if not rows:
            self._end(slot, job, "returned")
            return
        self._report(slot, job, rows)

    def _report(self, slot: _Slot, job: _Job, rows: int) -> None:
        assert job.course is not None
        first, before = job.reports, job.iteration
        made = [self._rows.make(before + place, job.course.value(before + place)) for place in range(rows)]
        job.reports += rows
        job.iteration += rows
        self._emit(
            ev.TrialReported(
                at=self.now,
                trial=job.trial,
                attempt=job.attempt,
                first=first,
                keys=self._rows.keys,
                rows=tuple(made),
            )
        )
        every = self._model.samples.save_every
        is_due = every and job.iteration // every > before // every
        if is_due or job.wants_checkpoint:
            self._save(job)
        if slot.job is not job:
            return
        if job.stops:
            self._end(slot, job, "stopped")
        elif job.iteration >= job.length:
            self._end(slot, job, "returned")
        else:
            self._next_report(slot, job)

    def _save(self, job: _Job) -> None:
        number = job.next_checkpoint
        job.next_checkpoint += 1
        self._emit(
            ev.CheckpointCommitted(
                at=self.now,
                trial=job.trial,
                attempt=job.attempt,
                number=number,
                report=job.reports - 1,
                uri=f"{URI}/{job.trial}/{number}",
            )
        )

    def _stop(self, command: cmd.StopTrial) -> None:
        slot = self._slots.get(command.slot)
        job = slot.job if slot is not None else None
        if slot is None or job is None or (job.trial, job.attempt) != (command.trial, command.attempt):
            return
        job.stops, job.wants_checkpoint = True, command.wants_checkpoint
        # One that has just reported ends there; another at its next report, or by force.
        wait_s = min(job.step_s * self._random.random(), command.grace_s)
        self._after(wait_s, lambda: self._end(slot, job, "stopped"))

    def _end(self, slot: _Slot, job: _Job, how: str) -> None:
        if slot.job is not job:
            return
        slot.job = None
        if how == "stopped" and job.wants_checkpoint and job.reports:
            self._save(job)
        who = {"at": self.now, "trial": job.trial, "attempt": job.attempt}
        self._emit(ev.TrialStopped(**who) if how == "stopped" else ev.TrialReturned(**who))  # type: ignore[arg-type]
        self._begin_next(slot)

    def _fail(self, slot: _Slot, job: _Job, failure: Failure) -> None:
        if slot.job is not job:
            return
        slot.job = None
        number = next((number for number, each in self._slots.items() if each is slot), None)
        takes_worker = failure.origin == "process" and self.state.spec.effective_isolation == "worker"
        if takes_worker and number is not None:
            del self._slots[number]
            self._emit(ev.SlotLost(at=self.now, slot=number, failure=failure))
            return
        event = ev.TrialFailed(at=self.now, trial=job.trial, attempt=job.attempt, failure=failure)
        self._emit(event)
        self._begin_next(slot)
