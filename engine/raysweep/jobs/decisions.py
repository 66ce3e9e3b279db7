"""The decision about a sweep on a cluster, as a pure function: submit, attach, or hand on what there is.

`decide` looks at the newest job of a sweep and at whether the sweep has an outcome:

| newest job          | outcome | do                                                                  |
|---------------------|---------|---------------------------------------------------------------------|
| any, or none        | yes     | return it; submit nothing                                           |
| PENDING, RUNNING    | reopens | attach                                                              |
| any other, or none  | reopens | submit the next number                                              |
| none                | no      | submit number 1                                                     |
| PENDING, RUNNING    | no      | attach                                                              |
| SUCCEEDED           | no      | refuse: the storage is wrong or not shared; where nothing here tells |
|                     |         | of that job, as FAILED: the run's folder was removed, or the driver  |
|                     |         | finds there what this side cannot see                               |
| FAILED, GONE        | no      | submit the next number: it resumes from the journal                 |
| STOPPED             | no      | refuse: a person stopped it; with `resume_cancelled` as FAILED     |

An outcome *reopens* where the sweep is to continue: see `runs.ownership.reopening.reopens`.

GONE is a job that once was submitted and that the cluster does not know (any more): its head was restarted.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

NewestStatus = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED", "GONE"]
Do = Literal["return", "submit", "attach", "refuse_stopped", "refuse_storage"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Newest:
    """The newest job of a sweep: its number, from 1, and what became of it."""

    number: int
    status: NewestStatus
    is_noted: bool = True
    """True if the storage tells of a job of this run at all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Decision:
    """The decision, and its job number (0: none)."""

    do: Do
    number: int = 0


def decide(
    newest: Newest | None,
    *,
    has_outcome: bool,
    resume_cancelled: bool = False,
    is_reopening: bool = False,
) -> Decision:
    """The row of the first table that fits."""
    number = newest.number if newest is not None else 0
    if has_outcome and is_reopening:
        is_running = newest is not None and newest.status in ("PENDING", "RUNNING")
        return (
            Decision(do="attach", number=number) if is_running else Decision(do="submit", number=number + 1)
        )
    if has_outcome:
        return Decision(do="return", number=number)
    if newest is None:
        return Decision(do="submit", number=1)
    if newest.status in ("PENDING", "RUNNING"):
        return Decision(do="attach", number=number)
    if newest.status == "SUCCEEDED" and newest.is_noted:
        return Decision(do="refuse_storage", number=number)
    if newest.status == "STOPPED" and not resume_cancelled:
        return Decision(do="refuse_stopped", number=number)
    return Decision(do="submit", number=number + 1)
