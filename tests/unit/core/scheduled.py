"""A sweep whose scheduler decides what the test says."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raysweep.core import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.schedulers import NOTHING, Decisions, Exploit, Pause, Scheduler, Verdict
from tests.unit.core.sweep import Commands, Sweep, running, stop_trial

LATE = {"asha": {"max_t": 1000, "grace_period": 999}}
OTHER = {"x": 0.5}


class Scripted(Scheduler):
    """Decides what the test has put into `says`, once, and `on_idle`; notes what it is told."""

    moves = frozenset({"stop", "pause", "exploit"})

    def __init__(self) -> None:
        self.says: Decisions = NOTHING
        self.on_idle: Decisions = NOTHING
        self.told: list[tuple[Any, ...]] = []

    def report(self, trial: int, time: float, value: float) -> Decisions:
        self.told.append((trial, time, value))
        said, self.says = self.says, NOTHING
        return said

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        said, self.says = self.says, NOTHING
        return said

    def remove(self, trial: int) -> Decisions:
        return self.end(trial, None, None)

    def idle(self, paused: Sequence[int]) -> Decisions:
        self.told.append(("idle", *paused))
        return self.on_idle


class Scheduled:
    """A sweep whose scheduler says what the test wants, at a report of a trial."""

    def __init__(self, slots: int, trials: int | None = None, **fields: Any) -> None:
        self.sweep = running(slots, trials, scheduler=LATE, **fields)
        self.state = self.sweep.state
        self.scheduler = self.state.scheduler = Scripted()

    def decide(self, reporter: int, *decisions: tuple[int, Verdict], **fields: Any) -> Commands:
        self.scheduler.says = decisions
        return self.sweep.report(reporter, 0.5, **fields)

    def pause(self, trial: int) -> Commands:
        """Pause a running trial, after one report."""
        attempt = self.state.trials[trial].attempt
        self.decide(trial, (trial, Pause()), attempt=attempt)
        return self.sweep.stopped(trial, attempt)

    def complete(self, trial: int) -> Commands:
        self.sweep.report(trial, 0.5)
        return self.sweep.returned(trial)

    def of(self, trial: int) -> Any:
        return self.state.trials[trial]


def deleted(commands: Commands) -> list[str]:
    return [command.uri for command in commands if isinstance(command, cmd.DeleteCheckpoint)]


def started(commands: Commands) -> list[cmd.StartTrial]:
    return [command for command in commands if isinstance(command, cmd.StartTrial)]


def exploiting(**fields: Any) -> Scheduled:
    """Trial 1 has been sent to the checkpoint of trial 0, and has not come off its slot yet."""
    it = Scheduled(2, **fields)
    for trial in (0, 1):
        it.sweep.report(trial, 0.9)
        it.sweep.saved(trial, 0, report=0)
    assert it.decide(1, (1, Exploit(0, OTHER))) == [stop_trial(1, 1, "exploit")]
    return it


def asha_of(plain: Any) -> Any:
    return SweepState.create(Sweep(scheduler=LATE).state.spec, 7).scheduler.to_json()
