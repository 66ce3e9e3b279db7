"""What an event costs the core as the number of slots grows, with every timeout on.

    python -m benchmarks.core_slots

The sweep has a silence timeout, a time limit for each trial, a deadline, a time budget, a budget of CPU-hours
and a placement timeout. Its trials report in turn; in between one stores a checkpoint, one returns, one fails
and waits out its backoff, a timer fires. Virtual time goes as much slower as there are more slots, so that a
trial takes as long with 4 of them as with 4,000. Figures are seconds of processor time within `step`.

| phase | |
|---|---|
| running | configs come without end |
| settling | no config is left: what returns leaves its slot idle, and that is closed |
| exhausted | no config is left, and what runs only reports |
"""

from __future__ import annotations

import gc
import json
from collections.abc import Callable
from time import thread_time
from typing import Any, Final

from raysweep.core import SweepState, step
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.specs import SweepSpec

SLOTS: Final = (4, 64, 1_000, 4_000)
EVENTS: Final = 8_000
# Seconds in which each slot's trial has reported once.
ROUND_S: Final = 40.0
RAISED: Final = Failure(origin="exception", type="ValueError", message="boom", bases=("ValueError",))


def run(slots: tuple[int, ...] = SLOTS, events: int = EVENTS) -> dict[str, Any]:
    """Microseconds an event by phase and number of slots, and how much the largest costs beside the least."""
    figures: dict[str, Any] = {}
    for phase, drive in PHASES.items():
        by_slots = {str(count): round(_best_us(drive, count, events), 3) for count in slots}
        growth = by_slots[str(slots[-1])] / by_slots[str(slots[0])]
        figures[phase] = {"us_per_event": by_slots, "cost_growth": round(growth, 3)}
    return figures


class Driven:
    """A sweep, driven by events; `took_s` is what `step` took since it was last set to 0."""

    def __init__(self, slots: int, trials: int, *, is_endless: bool) -> None:
        self.slots = slots
        self.at = 1000.0
        self.tick_s = ROUND_S / slots
        self.took_s = 0.0
        self.events = 0
        self.is_endless = is_endless
        self.state = SweepState.create(_spec(), 1)
        self.send(ev.ControllerStarted(at=self.at, generation=1))
        self.send(ev.CapacityChanged(at=self.at, slots=slots))
        while self.state.search.suggested < trials:
            self._suggest(trials - self.state.search.suggested)
        for slot in list(self.state.slots):
            self.send(ev.SlotOpened(at=self.at, slot=slot, node=f"node{slot % 8}"))
        self.took_s = self.events = 0

    def send(self, event: ev.Event) -> None:
        """One event, and at once what answers its commands."""
        slot = self._slot_of(event)
        before = thread_time()
        commands = step(self.state, event)
        self.took_s += thread_time() - before
        self.events += 1
        if slot is not None:
            self._begin_next(slot)
        for command in commands:
            match command:
                case cmd.SuggestConfigs() if self.is_endless:
                    self._suggest(command.count)
                case cmd.OpenSlot():
                    self.send(ev.SlotOpened(at=self.at, slot=command.slot, node="node0"))
                case cmd.StartTrial():
                    self._begin_next(command.slot)
                case cmd.RecallTrials():
                    self.send(ev.TrialsRecalled(at=self.at, slot=command.slot, trials=command.trials))
                case _:
                    pass

    def _slot_of(self, event: ev.Event) -> int | None:
        """The slot that an event leaves to the next trial of its queue."""
        match event:
            case ev.TrialReturned() | ev.TrialFailed():
                return self.state.trials[event.trial].slot
            case _:
                return None

    def _begin_next(self, number: int) -> None:
        """A worker begins its trials one after the other."""
        slot = self.state.slots.get(number)
        trial = self.state.trials[slot.queue[0]] if slot is not None and slot.queue else None
        if trial is not None and trial.state == "queued":
            self.send(ev.TrialStarted(at=self.at, trial=trial.number, attempt=trial.attempt))

    def _suggest(self, count: int) -> None:
        first = self.state.search.suggested
        configs = tuple({"lr": number * 1e-6} for number in range(first, first + count))
        is_exhausted = not self.is_endless
        self.send(ev.ConfigsSuggested(at=self.at, first=first, configs=configs, is_exhausted=is_exhausted))

    def tick(self) -> None:
        """Time continues; the timer fires when it is due."""
        self.at += self.tick_s
        if self.state.clock.timer_at is not None and self.at >= self.state.clock.timer_at:
            self.send(ev.TimerFired(at=self.at))

    def running(self, turn: int) -> dict[str, int] | None:
        """The trial whose turn it is."""
        slot = self.state.slots.get((turn + turn // 64) % self.slots)
        if slot is None or not slot.queue:
            return None
        trial = self.state.trials[slot.queue[0]]
        return {"trial": trial.number, "attempt": trial.attempt}

    def report(self, who: dict[str, int]) -> None:
        """One report of one row."""
        first = self.state.trials[who["trial"]].results.attempt_reports
        row: list[Any] = [(who["trial"] * 7919 + first) % 10_007 / 10_007]
        self.send(ev.TrialReported(at=self.at, first=first, keys=("loss",), rows=(row,), **who))


def drive_running(slots: int, events: int) -> Driven:
    """A sweep whose configs never end."""
    driven = Driven(slots, slots, is_endless=True)
    for turn in range(events):
        driven.tick()
        who = driven.running(turn)
        if who is not None:
            _KINDS.get(turn % 64 * (turn % 8 == 1), Driven.report)(driven, who)
    return driven


def drive_settling(slots: int, events: int) -> Driven:
    """A sweep without configs: half of its trials return, one after the other."""
    driven = Driven(slots, slots + 2, is_endless=False)
    for turn in range(slots // 2):
        driven.tick()
        for who in (driven.running(turn), driven.running(slots - 1 - turn // 2)):
            if who is not None:
                driven.report(who)
        who = driven.running(turn)
        if who is not None:
            driven.send(ev.TrialReturned(at=driven.at, **who))
    return driven


def drive_exhausted(slots: int, events: int) -> Driven:
    """A sweep without configs: what runs reports."""
    driven = Driven(slots, slots, is_endless=False)
    for turn in range(events):
        driven.tick()
        who = driven.running(turn)
        if who is not None:
            driven.report(who)
    return driven


def _save(driven: Driven, who: dict[str, int]) -> None:
    driven.send(ev.TrialBusy(at=driven.at, **who))
    trial = driven.state.trials[who["trial"]]
    if trial.results.attempt_reports:
        fields = {"number": trial.results.next_checkpoint, "report": trial.results.attempt_reports - 1}
        driven.send(ev.CheckpointCommitted(at=driven.at, uri="memory://c", **fields, **who))


def _fail(driven: Driven, who: dict[str, int]) -> None:
    driven.send(ev.TrialFailed(at=driven.at, failure=RAISED, **who))


def _return(driven: Driven, who: dict[str, int]) -> None:
    driven.report(who)
    driven.send(ev.TrialReturned(at=driven.at, **who))


def _fire(driven: Driven, who: dict[str, int]) -> None:
    driven.send(ev.TimerFired(at=driven.at))


_KINDS: Final[dict[int, Callable[[Driven, dict[str, int]], None]]] = {
    1: _save,
    9: _return,
    17: _fail,
    25: _return,
    33: _fire,
    41: _return,
    49: _save,
}
Drive = Callable[[int, int], Driven]
PHASES: Final[dict[str, Drive]] = {
    "running": drive_running,
    "settling": drive_settling,
    "exhausted": drive_exhausted,
}


def _best_us(drive: Drive, slots: int, events: int) -> float:
    """Microseconds an event, best of three; sweeps that are over soon are driven as often as needed."""
    best = float("inf")
    for _ in range(3):
        gc.collect()
        gc.freeze()
        took_s, seen = 0.0, 0
        while seen < events // 4:
            driven = drive(slots, events)
            took_s, seen = took_s + driven.took_s, seen + driven.events
        best = min(best, took_s / seen)
        gc.unfreeze()
    return best * 1e6


def _spec() -> SweepSpec:
    plain = {
        "name": "slots",
        "trainable": "benchmarks.core_slots:run",
        "param_space": {"lr": {"loguniform": [1e-5, 1e-1]}},
        "metric": "loss",
        "mode": "min",
        "search": "random",
        "num_samples": 10**9,
        "stop": {
            "deadline": "2100-01-01T00:00:00+00:00",
            "time_budget_s": 1e9,
            "budget": {"cpu_hours": 1e9},
            "trial_time_s": 1e7,
        },
        "failure": {
            "report_timeout_s": 10 * ROUND_S,
            "placement_timeout_s": 300.0,
            "max_failures": 10**6,
            "breaker_trials": 0,
        },
    }
    return SweepSpec.model_validate(plain)


if __name__ == "__main__":
    print(json.dumps(run(), indent=2))
