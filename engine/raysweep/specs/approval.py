"""The spec of an approval: between gate and training, or after the judgement of the model."""

from __future__ import annotations

import re
from typing import Annotated, Any, Final, Literal

from pydantic import BeforeValidator, Field

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem, show
from raysweep.errors import SpecError

_DURATION: Final = re.compile(r"(\d+(?:\.\d+)?)\s*(s|min|h|d)")
_UNITS_S: Final = {"s": 1.0, "min": 60.0, "h": 3_600.0, "d": 86_400.0}


def _seconds(given: Any) -> Any:
    """Seconds of `4h`, `90min`, or of a number of seconds. Raises Problem."""
    if not isinstance(given, str):
        return given
    found = _DURATION.fullmatch(given.strip())
    if found is None:
        raise Problem(f"{show(given)} is not a duration", "write one such as 4h, 90min or 2d, or seconds")
    return float(found[1]) * _UNITS_S[found[2]]


class ApprovalSpec(SpecModel):
    """Approval by a person: a candidate that passes the gate is promoted, and trained, only after it."""

    timeout: Annotated[float, BeforeValidator(_seconds), Field(gt=0, allow_inf_nan=False)] = 12 * 3_600.0
    """The longest wait, from the verdict on: `4h`, `90min`, or seconds."""
    on_silence: Literal["reject", "promote"] = "reject"
    """The decision if no one has decided by then."""
    after: Literal["gate", "judge"] = "gate"
    """The object of approval: the config that passed the gate, or the model that passed its judgement."""


def approval_of(given: Any) -> Any:
    """The fields of an approval; `required` is one with all defaults."""
    if isinstance(given, str):
        if given != "required":
            fix = "write required, or {timeout: 4h, on_silence: reject}"
            raise Problem(f"{show(given)} is not an approval", fix)
        return {}
    return given


def read_approval(given: Any, *, has_judge: bool = False) -> ApprovalSpec | None:
    """An approval by itself, as a step of a DAG has it: `required`, its fields, or a spec; empty: None.

    Args:
        given: The approval.
        has_judge: Whether a judge follows, whose verdict can be approved.

    Raises: SpecError, which names `approval`.
    """
    if not given:
        return None
    try:
        approval = ApprovalSpec.model_validate(approval_of(given))
        check_approval(approval, gate=given, judge=given if has_judge else None)
        return approval
    except Problem as problem:
        [issue] = problem.issues
        raise SpecError(".".join(map(str, issue.path)) or "approval", issue.problem, issue.fix) from None
    except SpecError as error:
        raise SpecError(f"approval.{error.field}", error.problem, error.fix) from None


def check_approval(approval: ApprovalSpec | None, gate: object, judge: object = None) -> None:
    """See that there is a verdict that can be approved. Raises: Problem."""
    if approval is not None and gate is None:
        raise Problem("requires a gate", "add gate, or leave approval out", ("approval",))
    if approval is not None and approval.after == "judge" and judge is None:
        raise Problem("requires a judge", "add judge, or write after: gate", ("approval", "after"))
