"""An error as one line of a job's log: how the driver's error reaches the process that waits for the job.

The line is `raysweep-error: {"class": …, "message": …, "retryable": …, "fields": {…}}`; the last one counts.
A driver that has stored an outcome prints `raysweep-outcome: <status>`.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, Final

import orjson

from raysweep import errors
from raysweep.errors import JobFailedError, RaysweepError, SweepInterrupted

PREFIX: Final = "raysweep-error: "
OUTCOME_PREFIX: Final = "raysweep-outcome: "


def encode_error(error: BaseException) -> str:
    """The line for an error; of what is not a RaysweepError, its type and text. Never raises."""
    fields = {name: value for name, value in vars(error).items() if not name.startswith("_")}
    if not isinstance(error, RaysweepError):
        fields = {}
    record = {
        "class": type(error).__name__,
        "message": errors.one_line(str(error)),
        "retryable": bool(getattr(error, "retryable", False)),
        "fields": fields,
    }
    return PREFIX + orjson.dumps(record, default=_shown, option=orjson.OPT_NON_STR_KEYS).decode()


def has_outcome(log: str) -> bool:
    """True if a driver says in its log that it has stored an outcome, or found one."""
    return any(OUTCOME_PREFIX in line for line in log.splitlines()[-20:])


def find_error(log: str) -> dict[str, Any] | None:
    """The record of the last error line in a log; None without one."""
    for line in reversed(log.splitlines()):
        _, found, text = line.partition(PREFIX)
        if not found:
            continue
        try:
            record = orjson.loads(text)
        except orjson.JSONDecodeError:
            continue
        if isinstance(record, dict) and "class" in record:
            return record
    return None


def decode_error(record: Mapping[str, Any], job_id: str) -> RaysweepError:
    """The error again, of its own class where that can be built; else a JobFailedError that names it.

    An interrupted driver is no Ctrl-C here: it comes back as the retryable `ClusterLostError`.
    """
    name, message = str(record["class"]), str(record.get("message", ""))
    found = getattr(errors, name, None)
    if found is SweepInterrupted:
        return errors.ClusterLostError(
            "", f"job {job_id!r} was interrupted: {message}", "run it again to resume"
        )
    if isinstance(found, type) and issubclass(found, RaysweepError) and found is not RaysweepError:
        built = _build(found, record.get("fields") or {})
        if built is not None:
            return built
    if record.get("retryable"):
        return errors.ClusterLostError("", f"job {job_id!r} failed with {name}: {message}", "run it again")
    return JobFailedError(job_id, f"{name}: {message}")


def _build(cls: type[RaysweepError], fields: Mapping[str, Any]) -> RaysweepError | None:
    """The error from the fields that its constructor names."""
    given = {name: tuple(value) if isinstance(value, list) else value for name, value in fields.items()}
    if "outcome" in given:
        return None  # such errors carry a whole outcome, which is read from the storage
    parameters = inspect.signature(cls).parameters.values()
    named = {each.name: given[each.name] for each in parameters if each.name in given}
    try:
        error = cls(**named)
    except TypeError:
        return None
    if isinstance(given.get("others"), tuple) and hasattr(error, "others"):
        error.others = given["others"]
    return error


def _shown(value: object) -> Any:
    dump = getattr(value, "model_dump", None)
    return dump(mode="json") if callable(dump) else str(value)
