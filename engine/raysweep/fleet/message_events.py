"""What a worker says of its trials, as the core's events. `raysweep.messages` lists the messages."""

from __future__ import annotations

from msgspec.structs import asdict

from raysweep import messages as msg
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure

_Rare = msg.Stopped | msg.Busy | msg.Saved | msg.Unsaved | msg.Damaged | msg.Noted


def failure_of(facts: msg.FailureFacts) -> Failure:
    """The failure that these facts are."""
    fields = asdict(facts)
    del fields["is_of_program"]
    return Failure(**fields)


def event_of(message: msg.FromWorker, at: float) -> ev.Event | None:
    """The event that a message is by itself; None: it is more than that, or about the worker."""
    if isinstance(message, msg.Rows):
        return ev.TrialReported(
            at=at,
            trial=message.trial,
            attempt=message.attempt,
            first=message.first,
            keys=message.keys,
            rows=tuple(message.rows),
            is_waiting=message.is_waiting,
        )
    if isinstance(message, msg.Began):
        return ev.TrialStarted(at=at, trial=message.trial, attempt=message.attempt)
    if isinstance(message, msg.Returned):
        return ev.TrialReturned(at=at, trial=message.trial, attempt=message.attempt)
    return _rare_event(message, at) if isinstance(message, _Rare) else None


def _rare_event(message: _Rare, at: float) -> ev.Event:
    """These have the fields of their events."""
    match message:
        case msg.Stopped():
            return ev.TrialStopped(at=at, **asdict(message))
        case msg.Busy():
            return ev.TrialBusy(at=at, **asdict(message))
        case msg.Saved():
            return ev.CheckpointCommitted(at=at, **asdict(message))
        case msg.Unsaved():
            return ev.CheckpointFailed(at=at, **asdict(message))
        case msg.Damaged():
            return ev.CheckpointDamaged(at=at, **asdict(message))
        case msg.Noted():
            return ev.TrialNoted(at=at, **asdict(message))
