"""Whether a sweep that has ended is to go on: its limit has been moved, or somebody wants it back."""

from __future__ import annotations

from typing import Final

from raysweep.outcome import SweepOutcome
from raysweep.spec import Changes

# What had ended sweeps of old, whose outcomes do not name the rule.
_LIMITS: Final = {"deadline": "stop.deadline", "budget": "stop.time_budget_s"}


def reopens(status: str | None, rule: str, diff: Changes, *, resume_cancelled: bool) -> bool:
    """Whether a sweep that ended with `status` goes on under the changes of `diff`.

    One that a deadline or a budget ended does when that limit (`rule`, a field of the spec) has been moved;
    one that was cancelled, when `resume_cancelled` is asked for. Never where a change would mix two searches.
    """
    if diff.unsafe:
        return False
    if status == "cancelled":
        return resume_cancelled
    return status in _LIMITS and any(line.startswith(f"{rule or _LIMITS[status]}: ") for line in diff.safe)


def outcome_reopens(outcome: SweepOutcome, diff: Changes, *, resume_cancelled: bool) -> bool:
    """The same for an outcome."""
    rule = outcome.ended_by.rule if outcome.ended_by else ""
    return reopens(outcome.status, rule, diff, resume_cancelled=resume_cancelled)
