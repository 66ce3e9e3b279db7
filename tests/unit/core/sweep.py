"""A sweep driven event by event: a state, a clock, and the commands that are expected most."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from raysweep.core import SweepState, step
from raysweep.core.handlers.assignment import CHECKPOINTS_AN_ATTEMPT
from raysweep.core.seeds import trial_seed
from raysweep.core.state.invariants import check
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.toys import METRIC, RAISED, make_spec

ASHA = {"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2}}
Commands = list[cmd.Command]


class Sweep:
    """A state and a clock; each method is one event, and returns its commands."""

    def __init__(self, **fields: Any) -> None:
        self.state = SweepState.create(make_spec(**fields), 7)
        self.at = 100.0
        self.is_checked = True

    def send(self, make: Callable[..., ev.Event], **fields: Any) -> Commands:
        commands = step(self.state, make(at=self.at, **fields))
        if self.is_checked:
            check(self.state)
        return commands

    def start(self, generation: int = 1) -> Commands:
        return self.send(ev.ControllerStarted, generation=generation)

    def suggest(self, count: int, *, first: int | None = None, is_exhausted: bool = True) -> Commands:
        first = self.state.search.suggested if first is None else first
        configs = tuple({"x": number / 10} for number in range(first, first + count))
        return self.send(ev.ConfigsSuggested, first=first, configs=configs, is_exhausted=is_exhausted)

    def began(self, trial: int, attempt: int = 1) -> Commands:
        return self.send(ev.TrialStarted, trial=trial, attempt=attempt)

    def report(self, trial: int, *values: Any, attempt: int = 1, **fields: Any) -> Commands:
        first = fields.pop("first", self.state.trials[trial].results.attempt_reports)
        key = fields.pop("key", METRIC)
        rows = tuple([value] for value in values)
        fields |= {"trial": trial, "attempt": attempt, "first": first, "keys": (key,), "rows": rows}
        return self.send(ev.TrialReported, **fields)

    def saved(self, trial: int, number: int, report: int, attempt: int = 1) -> Commands:
        fields = {"number": number, "report": report, "uri": f"mem://{trial}/{number}"}
        return self.send(ev.CheckpointCommitted, trial=trial, attempt=attempt, **fields)

    def returned(self, trial: int, attempt: int = 1) -> Commands:
        return self.send(ev.TrialReturned, trial=trial, attempt=attempt)

    def stopped(self, trial: int, attempt: int = 1) -> Commands:
        return self.send(ev.TrialStopped, trial=trial, attempt=attempt)

    def failed(self, trial: int, failure: Failure = RAISED, attempt: int = 1) -> Commands:
        return self.send(ev.TrialFailed, trial=trial, attempt=attempt, failure=failure)

    def timer(self, at: float) -> Commands:
        self.at = at
        return self.send(ev.TimerFired)

    def trial_state(self, trial: int) -> str:
        return self.state.trials[trial].state


def running(slots: int, trials: int | None = None, **fields: Any) -> Sweep:
    """A sweep whose first trials run, one on each slot."""
    trials = slots if trials is None else trials
    sweep = Sweep(num_samples=trials, **fields)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=slots)
    while sweep.state.search.suggested < trials and not sweep.state.search.is_exhausted:
        sweep.suggest(trials)
    for slot in range(slots):
        sweep.send(ev.SlotOpened, slot=slot, node=f"node{slot}")
    for trial in range(min(slots, trials)):
        sweep.began(trial)
    return sweep


def asha_with_a_loser() -> Sweep:
    """Two trials; one has reported 0.1 at the first rung, which the other will not reach."""
    sweep = running(2, scheduler=ASHA)
    assert sweep.report(0, 0.1) == []
    return sweep


def start_trial(slot: int, trial: int, attempt: int = 1, **fields: Any) -> cmd.StartTrial:
    fields.setdefault("next_checkpoint", (attempt - 1) * CHECKPOINTS_AN_ATTEMPT)
    config = {"x": trial / 10}
    seed = trial_seed(7, trial)
    return cmd.StartTrial(slot=slot, trial=trial, attempt=attempt, config=config, seed=seed, **fields)


def stop_trial(slot: int, trial: int, reason: str, attempt: int = 1) -> cmd.StopTrial:
    return cmd.StopTrial(slot=slot, trial=trial, attempt=attempt, reason=reason, grace_s=10.0)


def tell(trial: int, value: float | None, end: cmd.ToldEnd) -> cmd.TellSearch:
    return cmd.TellSearch(trial=trial, value=value, end=end)
