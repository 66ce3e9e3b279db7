"""W3C trace context: the trace that a sweep belongs to, from the DAG run or flow run that asked for it."""

from __future__ import annotations

import hashlib
import os
import re
from typing import Final, NamedTuple

from raysweep.threads import loaded_module

VARIABLE: Final = "TRACEPARENT"
_FORM: Final = re.compile(r"00-(?!0{32})([0-9a-f]{32})-([0-9a-f]{16})-[0-9a-f]{2}")


class Trace(NamedTuple):
    """A trace, and the span in it that the sweep's span is below; `parent` may be empty. Both in hex."""

    trace_id: str
    parent: str


def current_traceparent() -> str:
    """That of the span this process is in, or of the variable TRACEPARENT; empty: there is none."""
    trace = loaded_module("opentelemetry.trace")
    if trace is not None:
        span = trace.get_current_span().get_span_context()
        if span.is_valid:
            return f"00-{span.trace_id:032x}-{span.span_id:016x}-{int(span.trace_flags):02x}"
    found = os.environ.get(VARIABLE, "").strip().lower()
    return found if _FORM.fullmatch(found) else ""


def trace_of(traceparent: str, sweep_id: str, begun_at: float) -> Trace:
    """The trace that a traceparent names; where it names none, one of the sweep's own."""
    found = _FORM.fullmatch(traceparent)
    if found is None:
        return Trace(digest(16, sweep_id, begun_at), "")
    return Trace(found[1], found[2])


def sweep_span(sweep_id: str, begun_at: float) -> str:
    """The id of a sweep's span."""
    return digest(8, "sweep", sweep_id, begun_at)


def trial_span(sweep_id: str, begun_at: float, trial: str) -> str:
    """The id of a trial's span. `trial`: its number with eight digits, or what stands for it."""
    return digest(4, "trial", sweep_id, begun_at) + trial


def digest(num_bytes: int, *parts: object) -> str:
    """Hex digits that are the same in each process."""
    return hashlib.sha256(" ".join(map(str, parts)).encode()).hexdigest()[: 2 * num_bytes]
