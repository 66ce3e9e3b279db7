"""Continuing a sweep that exists: resume it, retry its failed trials, extend its best ones."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from raysweep.documents.base import SpecModel
from raysweep.documents.validation import Problem
from raysweep.errors import SpecError

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec


def _as_tuple(given: object) -> object:
    return tuple(given) if isinstance(given, list) else given


Numbers = Annotated[tuple[Annotated[int, Field(ge=0)], ...], BeforeValidator(_as_tuple)]
Retry = Literal["failed"] | Numbers
"""The failed trials that run again: all of them, or these numbers."""


class Extension(SpecModel):
    """Trials that go further than their own end, each from its newest checkpoint."""

    max_t: float = Field(gt=0)
    """The new limit, in the scheduler's unit of time; that scheduler is not asked about them any more."""
    top: int | None = Field(default=None, ge=1)
    """The so many best, of those that have a checkpoint."""
    trials: Numbers = ()
    """Or these, by their numbers."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if (self.top is None) == (not self.trials):
            raise Problem("requires top or trials", "give either top or trials", ("top",))
        return self


class Continue(SpecModel):
    """Options to continue the stored sweep of a run's name and key.

    With the defaults an ended sweep returns its outcome, and one that was interrupted resumes.
    """

    resume_cancelled: bool = False
    """Resume a sweep that was cancelled; otherwise its outcome comes back."""
    retry: Retry | None = None
    """Retry failed trials of an ended sweep from their checkpoints, with a new budget of failures."""
    extend: Extension | None = None
    """Extend trials of a completed sweep from their checkpoints; a running sweep completes first."""

    @property
    def continuing(self) -> Continue:
        """These three fields alone, of a model that has others too."""
        return Continue(resume_cancelled=self.resume_cancelled, retry=self.retry, extend=self.extend)

    def check_for(self, spec: SweepSpec) -> None:
        """Check that the sweep supports it.

        Raises:
            SpecError: The sweep cannot be extended.
        """
        if self.extend is not None and spec.repeat is not None:
            problem = "with repeat, trials are repeats of a config, and longer ones would enter its mean"
            raise SpecError("extend", problem, "run a new sweep whose trials are longer, or without repeat")
        if self.extend is not None and not spec.is_ranked and not self.extend.trials:
            problem = "without a metric, no trials are the best ones"
            raise SpecError("extend", problem, "name them: extend.trials: [0, 4]")
        if self.extend is not None and spec.is_open_ended and not _may_end_for_good(spec):
            problem = "with num_samples: null the sweep runs until its limit, and never completes"
            fix = "set num_samples to a number, or end the search by stop.plateau or stop.target"
            raise SpecError("extend", problem, fix)


def _may_end_for_good(spec: SweepSpec) -> bool:
    return spec.stop.plateau is not None or spec.stop.target is not None
