"""A night's candidate that needs approval, as a step after the gate finds it: by the brief of the outcome."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from raysweep.errors import SpecError
from raysweep.outcome import Approval, Decision, GateOutcome
from raysweep.pages.evidence import evidence_page
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Line, list_records
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.releases import as_it_stands
from raysweep.runs.across_runs.verdicts import read_verdict
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A candidate that passed its gate, where approval is required."""

    store: Store
    line: Line
    sweep_id: str
    gate_id: str
    key: str
    approval: Approval
    """When silence decides, and how."""

    def decide(self, asked: Decision | None = None) -> Decision | None:
        """The decision that counts: an earlier one, that of silence, else `asked`; None: it waits.

        Raises: StorageError.
        """
        told = decide_night(self.store, self.line, self.sweep_id, self.gate_id, asked)
        return None if told is None else told.decision

    def told(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The brief that it came with, with what was decided since. Raises: StorageError."""
        verdict = read_verdict(self.store, self.sweep_id, self.gate_id)
        assert verdict is not None, "a gate whose candidate waits has a verdict"
        return _with_verdict(given, as_it_stands(self.store, self.line, self.sweep_id, verdict))

    @property
    def page(self) -> str:
        """The evidence of the gate, and the history of its champions, in Markdown. Raises: StorageError."""
        chain = read_chain(self.store, self.line)
        ours = [each for each in chain.entries if (each.sweep_id, each.gate) == (self.sweep_id, self.gate_id)]
        return evidence_page(self.line, chain, ours[:1])

    @property
    def night(self) -> str:
        """The night, as `raysweep approve` takes it: `flights@2026-11-25`."""
        return f"{self.line.name}@{self.key or self.sweep_id}"


def find_candidate(given: Any) -> Candidate | None:
    """The candidate of a gate that waits for approval by this brief; None where nothing of it does.

    Args:
        given: The brief of the sweep's outcome, with the verdict of its gate.

    Raises:
        SpecError: It is not what a gate handed on; or its line of champions does not know the night.
        StorageError: The line cannot be read.
    """
    fix = "give what the gate handed on: outcome=gate.output"
    if not isinstance(given, Mapping) or not given.get("uri"):
        raise SpecError("outcome", "does not say where the sweep is stored", fix)
    gate = given.get("gate")
    if not isinstance(gate, Mapping):
        raise SpecError("outcome", "has no verdict of a gate", fix)
    approval = Approval.model_validate(gate["approval"]) if gate.get("approval") is not None else None
    if approval is None or approval.decision is not None:
        return None
    gate_id = str(gate["gate_id"])
    storage, _, sweep_id = str(given["uri"]).rpartition("/")
    store = open_store(storage)
    where: dict[str, Any] = {"store": store, "sweep_id": sweep_id, "gate_id": gate_id, "approval": approval}
    for record in list_records(store, approval.name):
        night = record.night(sweep_id, gate_id)
        if night is not None and night.waiting is not None:
            return Candidate(line=night.waiting.proposed.line, key=night.key, **where)
    problem = f"the champions of {approval.name!r} do not know the gate of {sweep_id}"
    raise SpecError("outcome", problem, "check the storage, or run the gate again")


def _with_verdict(given: Mapping[str, Any], verdict: GateOutcome) -> dict[str, Any]:
    gate = dict(given["gate"])
    approval = verdict.approval.model_dump(mode="json") if verdict.approval is not None else None
    gate |= {"promoted": verdict.promoted, "why": verdict.why, "approval": approval}
    why = "; ".join(part for part in (given.get("own_why"), verdict.why) if part)
    return {**given, "promoted": verdict.promoted, "gate": gate, "why": why}
