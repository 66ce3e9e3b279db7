"""When a trial ends by comparison with the best one, or by a function of the user's own."""

from __future__ import annotations

from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field

from raysweep.documents.base import SpecModel
from raysweep.documents.trainable import PYTHON_ONLY, check_reference, trainable_ref
from raysweep.documents.validation import Problem

FUNCTION_EXAMPLE: Final = "package.module:function"


class TrialWilcoxon(SpecModel):
    """A trial is worse than the best one, report by report (Optuna's WilcoxonPruner; Wilcoxon, 1945)."""

    p_threshold: float = Field(default=0.1, ge=0, le=1)
    """The trial is stopped when it is worse with a p-value below this; 0: never."""
    n_startup_steps: int = Field(default=2, ge=0)
    """It is not stopped before so many of its reports can be compared; two at least."""


def _function_path(given: Any) -> str:
    """The import path of a function; one that has none could not be found again by a resume."""
    if isinstance(given, str) and not given.startswith(PYTHON_ONLY):
        checked = check_reference(given)
        assert isinstance(checked, str), "of text, it gives text"
        return checked
    path = trainable_ref(check_reference(given))
    if path.startswith(PYTHON_ONLY):
        name = path.removeprefix(PYTHON_ONLY).strip().split("#")[0]
        raise Problem(
            f"the function {name!r} has no import path, by which a resume could find it",
            f'move it into a module, and name it "{FUNCTION_EXAMPLE}"',
        )
    return path


FunctionPath = Annotated[str, BeforeValidator(_function_path)]
