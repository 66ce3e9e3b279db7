"""Whether what is stored is what is asked for, and is to go on: its limit was moved, or the caller asks."""

from __future__ import annotations

from typing import Final

from raysweep.errors import SpecChangedError
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.spec import Changes, SweepSpec, changes

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


def check_same(
    folder: SweepFolder, spec: SweepSpec, outcome: SweepOutcome | None, *, resume_cancelled: bool = False
) -> bool:
    """Is the stored sweep what `spec` asks for? Returns whether it goes on although it has an outcome.

    A sweep that has ended takes no change, not even a safe one, but those that let it go on.

    Raises:
        SpecChangedError: With one line for each difference.
    """
    record, diff = folder.read_spec(), Changes()
    ran = outcome.spec_digest if outcome is not None else ""
    if record is not None and spec.digest() not in (record.digest, ran):
        diff = changes(SweepSpec.from_any(dict(record.spec)), spec, record.scheduled_at)
    lines = diff.unsafe
    if outcome is not None:
        rule = outcome.ended_by.rule if outcome.ended_by else ""
        if reopens(outcome.status, rule, diff, resume_cancelled=resume_cancelled):
            return True
        lines = (*diff.unsafe, *diff.safe)
    if lines:
        raise SpecChangedError(folder.sweep_id, lines)
    return False
