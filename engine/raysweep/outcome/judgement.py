"""The outcome of a judgement: whether a model may be released, and the evidence."""

from __future__ import annotations

from typing import Final, Literal

from pydantic import Field

from raysweep.documents.json_numbers import Number
from raysweep.outcome.predicted import Predicted
from raysweep.outcome.record import Record
from raysweep.specs.carried import CarriedConfig

Verdict = Literal["passed", "failed", "undecided"]
Reason = Literal[
    "first",
    "better",
    "not_better",
    "not_sure",
    "too_few",
    "at_least",
    "worst_slice",
    "no_figures",
    "unlike_figures",
    "no_slice",
    "cut_training",
    "no_model",
    "changed_data",
    "changed_model",
    "changed_released",
    "cut_judgement",
    "outdated",
]
"""The reasons for a verdict. `first` and `better` pass; of the others each one keeps a model from it."""
FAILING: Final[frozenset[Reason]] = frozenset(
    ("not_better", "at_least", "worst_slice", "cut_training", "no_model", "changed_data")
)
"""The reasons that are against the model itself; any other one leaves the question open."""
REPEATED: Final[frozenset[Reason]] = frozenset(
    ("no_figures", "cut_judgement", "changed_model", "changed_released", "outdated")
)
"""The reasons that the next run of the judge may find gone."""
MAX_DIFFERENCES: Final = 200


class JudgedModel(Record):
    """A model as it was judged."""

    uri: str
    """The folder of its files."""
    digest: str = ""
    """BLAKE3 of its files with their names; empty where they could not be read."""
    run_id: str = ""
    """The training that made it."""
    sweep_id: str = ""
    """The sweep that its config comes from."""
    key: str = ""
    """The key of that sweep: the night."""
    carried: CarriedConfig | None = Field(default=None, exclude_if=lambda given: given is None)
    """The way its config came from that of the sweep's trial; None: it was trained as it was."""
    predicted: Predicted | None = Field(default=None, exclude_if=lambda given: given is None)
    """The score that a law predicted of its training, beside the one that came."""


class SliceFigures(Record):
    """One slice of the data."""

    name: str
    new: Number
    released: Number | None = None
    improvement: Number | None = None
    """Of the new model over the released one; positive is better."""


class Judgement(Record):
    """The verdict on releasing the model of a training."""

    verdict: Verdict
    reasons: tuple[Reason, ...]
    why: str
    """`passed: auc 0.7512 is 0.0100 better than the released model's 0.7412 (night of 2026-11-24)`"""
    metric: str
    mode: str
    new: Number | None = None
    """The figure of the new model; None where there is none."""
    released: Number | None = None
    """That of the released one; None where no model was released, or it has no figure."""
    improvement: Number | None = None
    """Of the new model over the released one; positive is better."""
    min_improvement: Number = 0.0
    at_least: Number | None = None
    test: str = ""
    """`permutation` or `paired t`; empty where one figure of each was compared, without a test."""
    pairs: int = 0
    """The number of rows or folds of which both models have a figure."""
    p_value: Number | None = None
    """The probability that chance alone gives such an improvement."""
    lower_bound: Number | None = None
    """The improvement is above this with 90 % confidence."""
    upper_bound: Number | None = None
    """The improvement is below this with 90 % confidence."""
    differences: tuple[Number, ...] = ()
    """By row or fold, in their order; of more than 200 the quantiles."""
    slices: tuple[SliceFigures, ...] = ()
    model: JudgedModel
    """The one that was judged."""
    against: JudgedModel | None = None
    """The one that was released then; None: none was."""
    judge_id: str = ""
    """The id of this judgement among those of the night."""
    sweep_id: str = ""
    """The sweep that evaluated both; empty where nothing was evaluated."""
    at: float = 0.0
    """The time of the decision, in UTC seconds."""
    format_version: int = 1

    @property
    def is_repeated(self) -> bool:
        """True if the next run of the judge judges again."""
        return any(reason in REPEATED for reason in self.reasons)

    @property
    def is_passed(self) -> bool:
        """True if the model may be released."""
        return self.verdict == "passed"
