"""A night's candidate that needs approval, as a step after gate or judge finds it: by the brief it gets."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raysweep.errors import SpecError, one_line
from raysweep.outcome import Approval, Decision, GateOutcome
from raysweep.outcome.judgement import Judgement
from raysweep.pages.evidence import evidence_page
from raysweep.pipeline.judging import find_night
from raysweep.pipeline.night import handed_on, with_gate
from raysweep.pipeline.registering import find_record
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Line, Night
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.releases import as_it_stands
from raysweep.runs.across_runs.verdicts import read_verdict
from raysweep.step.brief import MAX_BYTES, brief, size_bytes, stored_outcome
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

_TEXT: Final = 400
_OF_JUDGEMENT: Final = {
    "verdict",
    "reasons",
    "metric",
    "mode",
    "new",
    "released",
    "improvement",
    "min_improvement",
    "at_least",
    "test",
    "pairs",
    "p_value",
    "lower_bound",
    "judge_id",
    "sweep_id",
}
"""The fields of a judgement that the brief of a night has; rows and slices are in the evidence."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Candidate:
    """A config that passed its gate, or a model that passed its judgement, where approval is required."""

    store: Store
    line: Line
    sweep_id: str
    gate_id: str
    key: str
    approval: Approval
    """The time at which silence decides, and the decision."""
    is_judged: bool = False
    """True for the model."""

    def decide(self, asked: Decision | None = None) -> Decision | None:
        """The decision that counts: an earlier one, that of silence, else `asked`; None: it waits.

        Raises: StorageError.
        """
        told = decide_night(self.store, self.line, self.sweep_id, self.gate_id, asked)
        return None if told is None else told.decision

    def told(self, given: Mapping[str, Any]) -> dict[str, Any]:
        """The brief that it came with, with what was decided since. Raises: SpecError, StorageError."""
        return as_stored(given, is_judged=self.is_judged)

    @property
    def page(self) -> str:
        """The evidence of what is to be approved, and the history, in Markdown. Raises: StorageError."""
        chain = read_chain(self.store, self.line)
        kind = "judgement" if self.is_judged else "gate"
        ours = [
            each
            for each in chain.entries
            if (each.kind, each.sweep_id, each.gate) == (kind, self.sweep_id, self.gate_id)
        ]
        return evidence_page(self.line, chain, ours[-1:])

    @property
    def night(self) -> str:
        """The night, as `raysweep approve` takes it: `flights@2026-11-25`."""
        return f"{self.line.name}@{self.key or self.sweep_id}"

    @property
    def question(self) -> str:
        """`Promote flights@2026-11-25?`"""
        return f"Release the model of {self.night}?" if self.is_judged else f"Promote {self.night}?"


def find_candidate(given: Any, *, is_judged: bool | None = None) -> Candidate | None:
    """The candidate of this brief that needs approval, or has it; None where it needs none.

    The brief only names the night: whether it needs approval is in the line of champions.

    Args:
        given: The brief of the sweep's outcome, with the verdict of its gate, or with a judgement.
        is_judged: Whether the model is to be approved, which has a judgement; default: as the brief has one.

    Raises:
        SpecError: It is not what a gate or a judge handed on; or its line of champions does not know the
            night, or no judgement of it.
        StorageError: The line cannot be read.
    """
    store, line, night = _stored_night(given)
    is_judged = _has_judgement(given) if is_judged is None else is_judged
    if is_judged:
        _check_judged(night)
    approval = _approval_of(line, night) if is_judged else _approval_before(line, night)
    if approval is None:
        return None
    return Candidate(
        store=store,
        line=line,
        sweep_id=night.sweep_id,
        gate_id=night.gate,
        key=night.key,
        approval=approval,
        is_judged=is_judged,
    )


def as_stored(given: Mapping[str, Any], *, is_judged: bool | None = None) -> dict[str, Any]:
    """The brief with what the storage has of its night; arguments and errors as `find_candidate`."""
    if _has_judgement(given) if is_judged is None else is_judged:
        return {**given, **judged_brief(given)}
    store, line, night = _stored_night(given)
    verdict = read_verdict(store, night.sweep_id, night.gate)
    if verdict is None:
        return dict(given)
    return _with_verdict(given, as_it_stands(store, line, night.sweep_id, verdict))


def _stored_night(given: Any) -> tuple[Store, Line, Night]:
    fix = "give what the gate handed on: outcome=gate.output"
    if not isinstance(given, Mapping) or not given.get("uri"):
        raise SpecError("outcome", "does not say where the sweep is stored", fix)
    gate = given.get("gate")
    if not isinstance(gate, Mapping) or not gate.get("gate_id"):
        raise SpecError("outcome", "has no verdict of a gate", fix)
    storage, _, sweep_id = str(given["uri"]).rpartition("/")
    store, gate_id = open_store(storage), str(gate["gate_id"])
    record = find_record(store, str(given.get("name") or ""), sweep_id, gate_id)
    night = record.night(sweep_id, gate_id) if record is not None else None
    if record is None or record.line is None or night is None:
        problem = f"the champions at {store.url} do not know the gate of {sweep_id}"
        raise SpecError("outcome", problem, "check the storage, or run the gate again")
    return store, record.line, night


def _has_judgement(given: Any) -> bool:
    return isinstance(given, Mapping) and isinstance(given.get("judgement"), Mapping)


def _check_judged(night: Night) -> Judgement:
    if night.judgement is None:
        raise SpecError("outcome", "its model has no judgement", "run the judge")
    return night.judgement


def judged_brief(given: Mapping[str, Any]) -> dict[str, Any]:
    """The brief of a night whose model was judged: with `judgement`, and whether it was `released`.

    Args:
        given: The brief that the gate handed on, or this one.

    Raises: SpecError, SweepNotFoundError, StorageError: The night cannot be read, or has no judgement.
    """
    outcome = stored_outcome(given)
    store, line, night = find_night(given, outcome)
    verdict, judgement = read_verdict(store, outcome.sweep_id, night.gate), _check_judged(night)
    approval = _approval_of(line, night)
    why = one_line("; ".join([judgement.why, *([str(approval)] if approval is not None else [])]), _TEXT)
    told: dict[str, Any] = {
        "judgement": judgement.model_dump(mode="json", include=_OF_JUDGEMENT)
        | {"why": why, "approval": approval.model_dump(mode="json") if approval is not None else None},
        "model_uri": judgement.model.uri,
        "released": night.has_released,
    }
    if verdict is not None:
        outcome = with_gate(outcome, as_it_stands(store, line, outcome.sweep_id, verdict))
    whole = handed_on(outcome)
    whole = whole.model_copy(update={"why": f"{whole.why}; {why}"})
    return brief(whole, top_k=1, max_bytes=MAX_BYTES - size_bytes(told)) | told


def _approval_of(line: Line, night: Night) -> Approval | None:
    """The approval that stands after the judgement."""
    return _approval(line, night) if _is_of_model(night) else None


def _approval_before(line: Line, night: Night) -> Approval | None:
    """The approval that stands behind the gate."""
    return None if _is_of_model(night) else _approval(line, night)


def _is_of_model(night: Night) -> bool:
    """True where the model is what was approved last, or waits: its judgement came before the decision."""
    judgement, decision = night.judgement, night.decision
    if judgement is None or not judgement.is_passed:
        return False
    return decision is None or decision.at >= judgement.at


def _approval(line: Line, night: Night) -> Approval | None:
    waiting = night.waiting
    if waiting is None:
        return None
    return Approval(
        name=line.name, until=waiting.until, on_silence=waiting.on_silence, decision=night.decision
    )


def _with_verdict(given: Mapping[str, Any], verdict: GateOutcome) -> dict[str, Any]:
    gate = dict(given["gate"])
    gate |= {"promoted": verdict.promoted, "why": verdict.why}
    if verdict.approval is not None:
        gate["approval"] = verdict.approval.model_dump(mode="json")
    why = "; ".join(part for part in (given.get("own_why"), verdict.why) if part)
    return {**given, "promoted": verdict.promoted, "gate": gate, "why": why}
