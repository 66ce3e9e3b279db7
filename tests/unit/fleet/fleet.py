"""A fleet driven by hand: a clock, and short ways to say what Ray, workers and the core do."""

from __future__ import annotations

from typing import Any

from msgspec import to_builtins

from raysweep import fleet as fl
from raysweep import messages as msg
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet.invariants import check
from raysweep.space.amounts import Needs

DIED = Failure(origin="process", type="WorkerDied", message="killed by signal 9")
NODE_DIED = Failure(origin="process", type="NodeDied", message="gone", node_state="dead")
RAISED = msg.FailureFacts(origin="exception", type="ValueError", message="boom", bases=("ValueError",))


def began(trial: int, attempt: int) -> msg.TrialStarted:
    return msg.TrialStarted(trial=trial, attempt=attempt)


def returned(trial: int, attempt: int) -> msg.TrialReturned:
    return msg.TrialReturned(trial=trial, attempt=attempt)


def spent(trial: int, attempt: int) -> msg.Spent:
    return msg.Spent(trial=trial, attempt=attempt, leftover="a broken context of CUDA")


def stopped(trial: int, attempt: int, *, was_killed: bool = False) -> msg.TrialStopped:
    return msg.TrialStopped(trial=trial, attempt=attempt, was_killed=was_killed)


def failed(trial: int, attempt: int, failure: msg.FailureFacts) -> msg.TrialFailed:
    return msg.TrialFailed(trial=trial, attempt=attempt, failure=failure)


class Driven:
    """Each method is one input; `actions` and `events` hold what came of it."""

    def __init__(self, isolation: str = "worker", *, can_spare: bool = True, **fields: Any) -> None:
        policy: dict[str, Any] = {
            "start_timeout_s": 60.0,
            "placement_timeout_s": 30.0,
            "memory_limit_factor": None,
            "memory_bytes": 0.0,
        }
        self.fleet = fl.Fleet(fl.FleetPolicy(isolation=isolation, can_spare=can_spare, **policy | fields))
        self.at = 100.0
        self.actions: list[fl.Action] = []
        self.events: list[ev.Event] = []

    def done(self) -> Driven:
        """Take out what came of the last input."""
        self.fleet.flush()
        self.actions, self.events = list(self.fleet.actions), list(self.fleet.events)
        self.fleet.actions.clear()
        self.fleet.events.clear()
        check(self.fleet)
        return self

    def open(self, slot: int, memory_bytes: int | None = None, size: str = "") -> Driven:
        self.fleet.open(cmd.OpenSlot(slot=slot, needs=Needs(memory_bytes=memory_bytes, size=size)), self.at)
        return self.done()

    def close(self, slot: int) -> Driven:
        self.fleet.close(cmd.CloseSlot(slot=slot))
        return self.done()

    def hand(self, slot: int, trial: int, attempt: int = 1) -> Driven:
        self.fleet.start_trial(cmd.StartTrial(slot=slot, trial=trial, attempt=attempt, config={}, seed=1))
        return self.done()

    def stop(self, slot: int, trial: int, attempt: int = 1, grace_s: float = 10.0) -> Driven:
        self.fleet.stop_trial(
            cmd.StopTrial(slot=slot, trial=trial, attempt=attempt, reason="limit", grace_s=grace_s), self.at
        )
        return self.done()

    def recall(self, slot: int, *trials: int) -> Driven:
        self.fleet.recall(cmd.RecallTrials(slot=slot, trials=trials), self.at)
        return self.done()

    def say(self, worker: int, *messages: msg.FromWorker) -> Driven:
        self.fleet.take(worker, [*messages], self.at)
        return self.done()

    def up(self, worker: int, node: str = "n") -> Driven:
        """It connects and loads."""
        self.fleet.connected(worker, self.at)
        return self.say(worker, msg.Ready(node=node, pid=1))

    def ended(self, worker: int, failure: Failure = DIED) -> Driven:
        self.fleet.worker_ended(worker, failure, self.at)
        return self.done()

    def link_closed(self, worker: int) -> Driven:
        self.fleet.link_closed(worker, self.at)
        return self.done()

    def later(self, seconds: float) -> Driven:
        self.at += seconds
        self.fleet.tick(self.at)
        return self.done()

    def sent(self) -> list[Any]:
        """What went to workers: the worker's number, what is said, and the first two fields of that."""
        sends = [action for action in self.actions if isinstance(action, fl.Send)]
        return [(send.worker, *to_builtins(message)[:3]) for send in sends for message in send.messages]

    def did(self, kind: type[fl.Action]) -> list[Any]:
        return [action for action in self.actions if isinstance(action, kind)]

    def running(self, *trials: int, slot: int = 0, worker: int = 0) -> Driven:
        """A slot that is open, was handed these trials, and runs the first of them."""
        self.open(slot).up(worker)
        for trial in trials:
            self.hand(slot, trial)
        return self.say(worker, began(trials[0], 1))


def end_of(event: ev.Event) -> tuple[Any, ...]:
    """What an event says, in short."""
    fields = [getattr(event, name) for name in ("slot", "trial", "trials") if hasattr(event, name)]
    return (type(event).__name__, *fields)


def told(driven: Driven) -> list[tuple[Any, ...]]:
    return [end_of(event) for event in driven.events]
