"""The life of a trial, as a literal table.

A trial is *pending* until a slot takes it, *queued* at that slot until its user code begins, *running* until
it ends, *stopping* from the moment the core wants it to end, *waiting* while a failed attempt backs off, and
*paused* while its scheduler keeps it back: it has no slot, and its newest checkpoint stays. The other four
states are final, and are left again only where a person wants more of a sweep: what an end had *cancelled* is
brought back, what *failed* is retried, what was *completed* or *stopped* is extended. What may happen in
which state, and where it leads, stands in `TABLE`; anything else is ignored by the core as late or doubled (a
stop that crosses a return on the wire, a second delivery).
`transitions.move` is the only place that moves a trial; a test forbids any other.

| from | to | when |
|---|---|---|
| pending | queued | assigned |
| pending | cancelled | cut |
| pending | failed | gave_up |
| pending | paused | paused |
| pending | stopped | halted |
| pending | pending | exploited |
| pending | completed | fell_back |
| queued | running | began |
| queued | pending | recalled, lost |
| running | stopping | asked |
| running | completed | returned, fell_back |
| running | waiting | retried |
| running | failed | gave_up |
| running | pending | lost |
| running | cancelled | cut |
| stopping | completed | returned, reached, fell_back |
| stopping | stopped | halted |
| stopping | failed | gave_up |
| stopping | waiting | retried |
| stopping | cancelled | cut |
| stopping | pending | kept, moved, resumed, exploited, went_back, lost |
| stopping | paused | paused |
| waiting | pending | due, exploited |
| waiting | cancelled | cut |
| waiting | paused | paused |
| waiting | stopped | halted |
| paused | pending | resumed, exploited |
| paused | stopped | halted |
| paused | cancelled | cut |
| cancelled | pending | brought |
| failed | pending | again |
| completed | pending | extended |
| stopped | pending | extended |
"""

from __future__ import annotations

from typing import Final, Literal

TrialEnd = Literal["completed", "stopped", "failed"]
"""Ends of a trial that its searcher receives."""
ToldEnd = TrialEnd | Literal["paused", "infeasible"]
"""The end that its searcher receives: a trial that pauses may continue; one that failed by its config is
`infeasible`.
"""
TrialState = Literal[
    "pending",
    "queued",
    "running",
    "stopping",
    "waiting",
    "paused",
    "completed",
    "stopped",
    "failed",
    "cancelled",
]
Cause = Literal[
    "assigned",  # a slot took the trial
    "began",  # user code runs
    "recalled",  # the slot gave it back unbegun
    "lost",  # slot, node or controller went away; costs the trial nothing
    "asked",  # the core wants it to end
    "returned",  # user code ended by itself
    "halted",  # ended early, as a scheduler asked
    "reached",  # ended at its own limit (max_t, a per-trial limit): all its work is done
    "cut",  # ended with the sweep
    "kept",  # ended with the controller; runs again when the sweep is resumed
    "moved",  # ended because its node is about to go; runs again on another
    "paused",  # gave its slot back, as a scheduler asked
    "resumed",  # continues after a pause, with its own config or another
    "exploited",  # gives up its own progress, and continues from another's checkpoint with another config
    "went_back",  # its newest checkpoint is damaged: continues from an older one
    "retried",  # failed, within its budget
    "gave_up",  # failed for good
    "due",  # the backoff is over
    "brought",  # the limit that had cut it was moved
    "again",  # it had failed, and a person wants it run again
    "extended",  # it is to go further than its end
    "fell_back",  # failed for good where it was to go further: what it had stands
]

TABLE: Final[dict[tuple[TrialState, Cause], TrialState]] = {
    ("pending", "assigned"): "queued",
    ("pending", "cut"): "cancelled",
    ("pending", "gave_up"): "failed",
    ("pending", "paused"): "paused",
    ("pending", "halted"): "stopped",
    ("pending", "exploited"): "pending",
    ("pending", "fell_back"): "completed",
    ("queued", "began"): "running",
    ("queued", "recalled"): "pending",
    ("queued", "lost"): "pending",
    ("running", "asked"): "stopping",
    ("running", "returned"): "completed",
    ("running", "fell_back"): "completed",
    ("running", "retried"): "waiting",
    ("running", "gave_up"): "failed",
    ("running", "lost"): "pending",
    ("running", "cut"): "cancelled",
    ("stopping", "returned"): "completed",
    ("stopping", "reached"): "completed",
    ("stopping", "fell_back"): "completed",
    ("stopping", "halted"): "stopped",
    ("stopping", "gave_up"): "failed",
    ("stopping", "retried"): "waiting",
    ("stopping", "cut"): "cancelled",
    ("stopping", "kept"): "pending",
    ("stopping", "moved"): "pending",
    ("stopping", "resumed"): "pending",
    ("stopping", "exploited"): "pending",
    ("stopping", "went_back"): "pending",
    ("stopping", "lost"): "pending",
    ("stopping", "paused"): "paused",
    ("waiting", "due"): "pending",
    ("waiting", "exploited"): "pending",
    ("waiting", "cut"): "cancelled",
    ("waiting", "paused"): "paused",
    ("waiting", "halted"): "stopped",
    ("paused", "resumed"): "pending",
    ("paused", "exploited"): "pending",
    ("paused", "halted"): "stopped",
    ("paused", "cut"): "cancelled",
    ("cancelled", "brought"): "pending",
    ("failed", "again"): "pending",
    ("completed", "extended"): "pending",
    ("stopped", "extended"): "pending",
}

FINAL: Final[frozenset[TrialState]] = frozenset({"completed", "stopped", "failed", "cancelled"})
ON_SLOT: Final[frozenset[TrialState]] = frozenset({"queued", "running", "stopping"})


def advance(state: TrialState, cause: Cause) -> TrialState:
    """The state that `cause` leads to.

    Raises:
        KeyError: the table has no such row; callers check before they call, so this is a fault of the core.
    """
    return TABLE[state, cause]
