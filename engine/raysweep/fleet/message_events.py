"""Messages of workers as events of the core. A message that is an event by itself has its name."""

from __future__ import annotations

from msgspec.structs import asdict

from raysweep import messages as msg
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure

_Rare = (
    msg.TrialStopped
    | msg.TrialBusy
    | msg.CheckpointCommitted
    | msg.CheckpointFailed
    | msg.CheckpointDamaged
    | msg.TrialNoted
)


def failure_of(facts: msg.FailureFacts) -> Failure:
    """The failure that these facts are."""
    fields = asdict(facts)
    del fields["is_of_program"]
    return Failure(**fields)


def event_of(message: msg.FromWorker, at: float) -> ev.Event | None:
    """The event that a message is by itself; None: it is more than that, or about the worker."""
    if isinstance(message, msg.TrialReported):
        return ev.TrialReported(
            at=at,
            trial=message.trial,
            attempt=message.attempt,
            first=message.first,
            keys=message.keys,
            rows=tuple(message.rows),
            is_waiting=message.is_waiting,
        )
    if isinstance(message, msg.TrialStarted):
        return ev.TrialStarted(at=at, trial=message.trial, attempt=message.attempt)
    if isinstance(message, msg.TrialReturned):
        return ev.TrialReturned(at=at, trial=message.trial, attempt=message.attempt)
    return _rare_event(message, at) if isinstance(message, _Rare) else None


def _rare_event(message: _Rare, at: float) -> ev.Event:
    """These have the fields of their events."""
    match message:
        case msg.TrialStopped():
            return ev.TrialStopped(at=at, **asdict(message))
        case msg.TrialBusy():
            return ev.TrialBusy(at=at, **asdict(message))
        case msg.CheckpointCommitted():
            return ev.CheckpointCommitted(at=at, **asdict(message))
        case msg.CheckpointFailed():
            return ev.CheckpointFailed(at=at, **asdict(message))
        case msg.CheckpointDamaged():
            return ev.CheckpointDamaged(at=at, **asdict(message))
        case msg.TrialNoted():
            return ev.TrialNoted(at=at, **asdict(message))
