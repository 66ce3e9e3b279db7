"""The spec of a judgement: the full model beside the released one, before it is released."""

from __future__ import annotations

from collections import Counter
from typing import Annotated, Any, ClassVar, Final

from pydantic import BeforeValidator, Field, model_validator

from raysweep.documents.base import SpecModel
from raysweep.documents.mode import Mode
from raysweep.documents.validation import Problem, show
from raysweep.specs.document import Trainable
from raysweep.specs.policies import Deadline
from raysweep.specs.trial.bundles import ProcessResources

Text = Annotated[str, Field(min_length=1)]


def _as_tuple(given: Any) -> Any:
    return tuple(given) if isinstance(given, list) else given


WHOLE: Final = "all"
"""The name under which `evaluate` may return the figures of all data, beside those of its slices."""


class JudgeSpec(SpecModel):
    """The requirements for releasing the model of a training."""

    renamed_fields: ClassVar[dict[str, str]] = {
        "function": "evaluate",
        "trainable": "evaluate",
        "threshold": "at_least",
        "max_failures": "retries",
    }

    evaluate: Trainable
    """A function `evaluate(model, data)`, by `package.module:function`.

    `model` is the `Path` of a folder with a copy of the model's files, `data` is the `data` of this spec. It
    returns one number, a list of numbers (of rows or folds, in the same order for every model), or a mapping
    of slices to either. `all` in such a mapping has the numbers of the whole; default: those of all slices.
    """
    data: Text | None = None
    """The data on which both models are measured: passed to `evaluate` as it is."""
    metric: Text
    """The name of the figure."""
    mode: Mode
    """The direction that is better: `min` or `max`."""
    min_improvement: float = Field(default=0.0, ge=0, allow_inf_nan=False)
    """The least improvement of the new model over the released one, at the mean."""
    at_least: Annotated[float, Field(allow_inf_nan=False)] | None = None
    """The figure that the new model has to reach; with mode: min, that it may not exceed. All that counts
    where no model is released yet."""
    worst_slice: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """The most that a slice may be worse than with the released model; default: slices are only shown."""
    slices: Annotated[tuple[Text, ...], BeforeValidator(_as_tuple)] = ()
    """The slices that `evaluate` has to return; default: those that it returns."""
    resources: ProcessResources = ProcessResources()
    """The resources for the evaluation of one model."""
    retries: int = Field(default=1, ge=0)
    """The number of times that an evaluation is retried after a failure."""
    deadline: Deadline = None
    """The judgement's end, as a pipeline's; one that is cut releases nothing. Default: the pipeline's."""
    allow_changed_data: bool = False
    """Let a model be released although its training's data changed while it trained."""

    @model_validator(mode="after")
    def _check(self) -> JudgeSpec:
        twice = [name for name, count in Counter(self.slices).items() if count > 1]
        if twice:
            raise Problem(f"has {show(twice[0])} twice", "name each slice once", ("slices",))
        if WHOLE in self.slices:
            raise Problem(f"{show(WHOLE)} is the whole, not a slice", "leave it out", ("slices",))
        return self

    @property
    def sign(self) -> float:
        """1 where more is better, else -1."""
        return 1.0 if self.mode == "max" else -1.0
