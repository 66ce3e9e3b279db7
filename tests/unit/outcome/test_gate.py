"""What a gate found is a field: approvals and rollbacks word it anew, whatever it says."""

from __future__ import annotations

from raysweep.outcome import Approval, Decision, GateOutcome

FINDING = "promoted: 0.5 (a metric of this name) is better"


def test_a_decision_words_what_was_found_and_cuts_nothing_off() -> None:
    approval = Approval(name="flights", until=0.0)
    verdict = GateOutcome(promoted=True, finding=FINDING, why=f"promoted: {FINDING}", approval=approval)
    waits = verdict.told(None)
    assert waits.why.startswith(f"passed: {FINDING}; waits for approval until ")
    for approved, head in ((True, "promoted"), (False, "not promoted")):
        told = waits.told(Decision(approved=approved, by="ann", at=0.0))
        assert told.promoted is approved
        assert told.why.startswith(f"{head}: {FINDING}; {'approved' if approved else 'rejected'} by ann")
        assert told.why.count("waits") == 0
