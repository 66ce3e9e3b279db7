"""status.json: how a sweep ended, beside its outcome, in one small object whatever the number of trials.

`raysweep status`, `best` and `trials --top` read it alone. It names the size of the outcome that it was made
of: where the two differ, a later run wrote the outcome, and the status counts as absent.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any, Final

import orjson

from raysweep.documents.stored_paths import to_reference, to_uri
from raysweep.outcome import SweepOutcome
from raysweep.outcome.places import error_with, gate_with, trial_with
from raysweep.outcome.tupled import with_tuples_in
from raysweep.runs.reading.status import RunStatus, status_of_outcome
from raysweep.storage.objects.sealed import seal, unseal

STATUS: Final = "status.json"
FORMAT: Final = 1
_LISTS: Final = ("top", "failures")
_TRIALS: Final = ("best", "first_failure")


def sealed_status(outcome: SweepOutcome, outcome_bytes: int, base: str) -> bytes:
    """The status as it lies beside an outcome of this size; what it names below `base` is relative to it."""
    status = _with(status_of_outcome(outcome, now=0.0), partial(to_reference, base))
    fields = {"format": FORMAT, "outcome_bytes": outcome_bytes, "tuples": outcome.tuples}
    return seal(orjson.dumps(fields | {"status": status.model_dump(mode="json")}))


def decode_status(data: bytes, outcome_bytes: int, base: str) -> RunStatus | None:
    """The status of the outcome of this size; None: of another one, of another version, or damaged."""
    whole = unseal(data)
    try:
        fields = orjson.loads(whole) if whole is not None else {}
        if fields["format"] != FORMAT or fields["outcome_bytes"] != outcome_bytes:
            return None
        status = RunStatus.model_validate(fields["status"])
    except (ValueError, KeyError, TypeError):
        return None
    status = _with(status, partial(to_uri, base))
    update: dict[str, Any] = {"read_at": time.time(), "uri": base}
    if fields["tuples"]:
        update |= {name: with_tuples_in(getattr(status, name), fields["tuples"]) for name in _LISTS + _TRIALS}
    return status.model_copy(update=update)


def _with(status: RunStatus, change: Callable[[str], str]) -> RunStatus:
    """The status with each URI in it changed."""
    update: dict[str, Any] = {"uri": change(status.uri), "error": error_with(status.error, change)}
    for name in _LISTS:
        update[name] = tuple(trial_with(trial, change) for trial in getattr(status, name))
    for name in _TRIALS:
        trial = getattr(status, name)
        update[name] = trial_with(trial, change) if trial is not None else None
    if status.gate is not None:
        update["gate"] = gate_with(status.gate, change)
    return status.model_copy(update=update)
