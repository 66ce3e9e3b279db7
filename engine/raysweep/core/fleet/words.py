"""What a worker says of its trials, as the core's events. `worker/wire.py` lists the words."""

from __future__ import annotations

from typing import cast

from pydantic import JsonValue

from raysweep.core import events as ev
from raysweep.core.fleet.actions import Message


def event_of(message: Message, at: float) -> ev.Event | None:
    """The event that a word is by itself; None: it is more than that, or about the worker."""
    match message[0]:
        case "rows":
            _, trial, attempt, first, keys, rows, is_waiting = message
            return ev.TrialReported(
                at=at,
                trial=trial,  # type: ignore[arg-type]
                attempt=attempt,  # type: ignore[arg-type]
                first=first,  # type: ignore[arg-type]
                keys=tuple(keys),  # type: ignore[arg-type]
                rows=tuple(rows),  # type: ignore[arg-type]
                is_waiting=is_waiting,  # type: ignore[arg-type]
            )
        case "began":
            return ev.TrialStarted(at=at, trial=message[1], attempt=message[2])  # type: ignore[arg-type]
        case "returned":
            return ev.TrialReturned(at=at, trial=message[1], attempt=message[2])  # type: ignore[arg-type]
        case _:
            return _rare_event(message, at)


def _rare_event(message: Message, at: float) -> ev.Event | None:
    fields = cast(tuple[JsonValue, ...], tuple(message[1:]))
    match message[0]:
        case "stopped":
            trial, attempt, was_killed, where = cast(tuple[int, int, bool, str], fields)
            return ev.TrialStopped(at=at, trial=trial, attempt=attempt, was_killed=was_killed, where=where)
        case "busy":
            trial, attempt, is_over = cast(tuple[int, int, bool], fields)
            return ev.TrialBusy(at=at, trial=trial, attempt=attempt, is_over=is_over)
        case "saved":
            trial, attempt, number, report, uri, size = cast(tuple[int, int, int, int, str, int], fields)
            return ev.CheckpointCommitted(
                at=at, trial=trial, attempt=attempt, number=number, report=report, uri=uri, size_bytes=size
            )
        case "unsaved":
            trial, attempt, number, problem = cast(tuple[int, int, int, str], fields)
            return ev.CheckpointFailed(at=at, trial=trial, attempt=attempt, number=number, problem=problem)
    return None
