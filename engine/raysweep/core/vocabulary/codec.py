"""Events as JSON: `{"e": "TrialStarted", "at": 1.5, …}`, one object an event, its fields by name.

Fields are added with defaults, never renamed or removed: `tests/golden` holds journals and replays them.
A journal whose controllers followed other rules than these (`events.BEHAVIOUR`) is refused.
"""

from __future__ import annotations

from typing import Final, get_args

import orjson
from pydantic import JsonValue, TypeAdapter, ValidationError

from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.events import BEHAVIOUR
from raysweep.core.vocabulary.failures import Failure

_CLASSES: Final[dict[str, type[ev.Event]]] = {cls.__name__: cls for cls in get_args(ev.Event)}
_HEADS: Final = {cls: b'{"e":"%s",' % name.encode() for name, cls in _CLASSES.items()}
_ADAPTERS: Final[dict[str, TypeAdapter[ev.Event]]] = {}
# Replaying a long journal is mostly these; they are built without validation, their lines being checksummed.
_PLAIN: Final = frozenset(
    {"TrialStarted", "TrialReturned", "TrialStopped", "CheckpointCommitted", "SlotOpened"}
)
_NO_OTHERS: Final = b',"others":[]}'
_NONE_BEYOND: Final = b',"beyond":[]}'
_NO_NOTE: Final = b',"note":""}'


class OtherBehaviourError(ValueError):
    """The controller that wrote the event followed other rules than this version's."""


def encode(event: ev.Event) -> bytes:
    """One event as a line of JSON (no newline)."""
    body = orjson.dumps(event)[1:]
    if type(event) is ev.SlotOpened:
        body = body.removesuffix(_NO_OTHERS) + b"}" * (not event.others)
    elif type(event) is ev.CapacityChanged and not event.note:
        body = body.removesuffix(_NO_NOTE) + b"}"
        body = body.removesuffix(_NONE_BEYOND) + b"}" * (not event.beyond)
    return _HEADS[type(event)] + body


def decode(line: bytes) -> ev.Event:
    """The event that `encode` wrote.

    Raises:
        OtherBehaviourError: It is of a controller that followed other rules.
        ValueError: The line is no event of this format; the message says why.
    """
    record = orjson.loads(line)
    if not isinstance(record, dict):
        raise ValueError(f"an event is a JSON object, not a {type(record).__name__}")
    name = record.pop("e", None)
    cls = _CLASSES.get(name) if isinstance(name, str) else None
    if cls is None:
        raise ValueError(f"{name!r} is not an event known to this version of raysweep")
    rules = record.get("behaviour") if cls is ev.ControllerStarted else BEHAVIOUR
    if rules != BEHAVIOUR:
        raise OtherBehaviourError(f"has behaviour {rules!r}; this version of raysweep reads {BEHAVIOUR}")
    try:
        if cls is ev.SlotOpened and "others" in record:
            record["others"] = tuple(record["others"])
        if name in _PLAIN:
            return cls(**record)
        if cls is ev.TrialReported:
            return _decode_reported(record)
        return _adapter(name).validate_python(record)
    except (TypeError, KeyError, ValidationError) as error:
        raise ValueError(f"event {name} does not fit: {error}") from error


def _decode_reported(record: dict[str, JsonValue]) -> ev.TrialReported:
    keys, rows = record.pop("keys"), record.pop("rows")
    if not isinstance(keys, list) or not isinstance(rows, list):
        raise TypeError("keys and rows are lists")
    return ev.TrialReported(keys=tuple(keys), rows=tuple(rows), **record)  # type: ignore[arg-type]


def _adapter(name: str) -> TypeAdapter[ev.Event]:
    adapter = _ADAPTERS.get(name)
    if adapter is None:
        adapter = _ADAPTERS[name] = TypeAdapter(_CLASSES[name])
    return adapter


__all__ = ["Failure", "OtherBehaviourError", "decode", "encode"]
