"""The outcome of a gate: its verdict, and the configs that it ran."""

from __future__ import annotations

import time
from typing import Any, Literal

from raysweep.documents.json_numbers import Number
from raysweep.outcome.false_promotions import BudgetUse
from raysweep.outcome.record import Record


class Confirmed(Record):
    """One config as a gate ran it: with several seeds, at full budget."""

    config: dict[str, Any]
    trial_id: str = ""
    """The trial of the sweep that it comes from; empty for a champion."""
    sweep_id: str = ""
    """The sweep that found it."""
    key: str = ""
    """The key of that sweep: the night."""
    scores: tuple[Number | None, ...] = ()
    """By seed; None where that trial failed."""
    mean: Number | None = None
    spread: Number | None = None
    """The standard deviation over the seeds; 0 for one."""
    n: int = 0
    """The number of seeds that gave a score."""
    violated: tuple[str, ...] = ()
    """The constraints that it did not satisfy under some seed: it is not promoted."""
    checkpoint_uri: str | None = None

    def trial_in(self, sweep_id: str) -> str:
        """Its trial, as that sweep names it; one that another sweep found, with the id of that."""
        is_ours = not self.trial_id or self.sweep_id in ("", sweep_id)
        return self.trial_id if is_ours else f"{self.sweep_id}/{self.trial_id}"


class Decision(Record):
    """A decision about a candidate that passed its gate, made once."""

    approved: bool
    by: str
    """The person that decided; `silence` where no one did in time."""
    at: float
    """In UTC seconds."""
    note: str = ""

    def __str__(self) -> str:
        head = "approved" if self.approved else "rejected"
        note = f": {self.note}" if self.note else ""
        return f"{head} by {self.by} ({show_time(self.at)}){note}"


class Undone(Record):
    """The rollback after which a night's champion is not champion any more."""

    by: str
    at: float
    """In UTC seconds."""
    why: str = ""

    def __str__(self) -> str:
        why = f": {self.why}" if self.why else ""
        return f"rolled back by {self.by} ({show_time(self.at)}){why}"


class Approval(Record):
    """The approval that a candidate which passed its gate waits for, or has."""

    name: str
    """The champion's name: that of `raysweep approve`."""
    until: float
    """The time at which silence decides, in UTC seconds."""
    on_silence: Literal["reject", "promote"] = "reject"
    decision: Decision | None = None
    """None: it waits."""

    def __str__(self) -> str:
        if self.decision is not None:
            return str(self.decision)
        end = "rejects" if self.on_silence == "reject" else "promotes"
        return f"waits for approval until {show_time(self.until)}, when silence {end} it"


def show_time(at: float) -> str:
    """`2026-11-27 04:00 UTC`."""
    return time.strftime("%Y-%m-%d %H:%M UTC", time.gmtime(at))


class GateOutcome(Record):
    """The verdict on a night's best config for the full-scale training, and the evidence."""

    promoted: bool
    why: str
    """`not promoted: auc 0.7389 (trial 00003) is 0.0003 better than the champion's 0.7386 (night of
    2026-11-24); 0.0010 is required`"""
    finding: str = ""
    """`why` without whether it is promoted, and without what was decided since; empty in one of before."""
    candidates: tuple[Confirmed, ...] = ()
    """The best of the night, run again; the best first."""
    champion: Confirmed | None = None
    """The champion of earlier nights, run beside them; None where there was none."""
    improvement: Number | None = None
    """Of the best candidate over the champion; positive is better."""
    min_improvement: Number = 0.0
    test: str = "paired"
    standard_error: Number | None = None
    """Of the improvement, in a paired test."""
    lower_bound: Number | None = None
    """The improvement is above this with 90 % confidence, in a paired test, all candidates considered."""
    common_seeds: int | None = None
    """The number of seeds that the improvement comes from; 0: from means over different ones."""
    notes: tuple[str, ...] = ()
    """Other facts that a person should know: a champion that does not run any more."""
    gate_id: str = ""
    """The id of this gate among those of the sweep."""
    sweep_id: str = ""
    """The sweep that ran them again."""
    at: float = 0.0
    """The time of the decision, in UTC seconds."""
    approval: Approval | None = None
    """Of a candidate that passed where the pipeline requires approval: it is promoted once that is given."""
    budget: BudgetUse | None = None
    """With a budget of false promotions: what the gate used of it."""
    undone: Undone | None = None
    """Of a champion that a rollback took away since: it is not promoted any more."""
    format_version: int = 1

    @property
    def best(self) -> Confirmed | None:
        """The best candidate."""
        return self.candidates[0] if self.candidates else None

    @property
    def is_waiting(self) -> bool:
        """True if a candidate passed, and no one has decided yet."""
        return self.approval is not None and self.approval.decision is None

    def told(self, decision: Decision | None) -> GateOutcome:
        """The verdict as it is stored, with what was decided since, if anything was."""
        if self.approval is None:
            return self
        approval = self.approval.model_copy(update={"decision": decision})
        is_promoted = decision is not None and decision.approved
        head = "promoted: " if is_promoted else "passed: " if decision is None else "not promoted: "
        update = {
            "approval": approval,
            "promoted": is_promoted,
            "why": f"{head}{self.finding or self.why}; {approval}",
        }
        return self.model_copy(update=update)

    def after(self, undone: Undone | None) -> GateOutcome:
        """The verdict after a rollback that took its champion away, if there was one."""
        if undone is None or not self.promoted:
            return self
        parts = [
            self.finding or self.why,
            *([] if self.approval is None else [str(self.approval)]),
            str(undone),
        ]
        why = f"not promoted: {'; '.join(parts)}"
        return self.model_copy(update={"promoted": False, "undone": undone, "why": why})
