"""The options of schedulers: the questions that the engine asks of them, and parts that several have."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

from pydantic import AfterValidator, Field, PlainSerializer

from raysweep.documents.base import SpecModel
from raysweep.documents.kinds import PluginOptions
from raysweep.documents.mode import Mode
from raysweep.documents.validation import Problem
from raysweep.schedulers.base import TRAINING_ITERATION, PolicySetup, Scheduler

TimeAttr = Annotated[str, Field(min_length=1)]
Metrics = Literal["none", "one", "any", "several"]
"""The metrics that a policy uses: `any` is as many as the sweep has; `several` is two or more."""


def _whole(given: float) -> float:
    """1.0 as 1: one spelling makes equal specs equal."""
    return int(given) if given == int(given) else given


Grace = Annotated[float, Field(gt=0), AfterValidator(_whole), PlainSerializer(_whole, return_type=Any)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RungTimes:
    """The times at which a scheduler decides about a trial, as far as they follow from its options."""

    attr: str = TRAINING_ITERATION
    """The reported value that counts as time, in units of which all times are."""
    times: tuple[float, ...] = ()
    """The times of rungs; those from `max_t` on do not count."""
    interval: float = 0.0
    """It decides at each multiple of this, too; 0: at no other times."""
    max_t: float | None = None
    """The time at which a trial is complete; None: there is no such time."""


class SchedulerOptions(SpecModel):
    """The facts about a scheduler that the engine needs before there is a scheduler."""

    metrics: ClassVar[Metrics] = "one"
    """The metrics of the sweep by which it compares trials."""
    with_one_metric: ClassVar[str] = ""
    """The fix for a sweep of one metric, if `metrics` is `several`."""
    decides: ClassVar[bool] = True
    """True if it decides anything about trials."""
    is_population: ClassVar[bool] = False
    """True if all trials are one population, of `num_samples`, whose configs it changes itself."""

    @property
    def comparing(self) -> tuple[tuple[str, ...], ComparingOptions] | None:
        """The options that name the one metric by which trials are compared, and their path below these."""
        return None

    @property
    def pauses_by(self) -> tuple[str, str] | None:
        """The option that makes it pause trials, and its value without pauses; None: no option does."""
        return None

    @property
    def can_wait(self) -> bool:
        """True if trials that are compared may run one after the other."""
        return True

    @property
    def resizes_by(self) -> str | None:
        """The parameter that it changes for a trial to take other resources, by its dotted name."""
        return None

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler with these options, without any trial. Imports what only the algorithm needs.

        Raises:
            SpecError: the options do not fit each other.
        """
        raise NotImplementedError

    def rung_times(self) -> RungTimes:
        """Times at which it decides about a trial; no times and no interval where each report may decide."""
        return RungTimes()

    def check_space(self, space: Mapping[str, Any]) -> None:
        """See that the search space has what the scheduler works with. Raises Problem."""


class SchedulerPluginOptions(SchedulerOptions, PluginOptions):
    """Options of a scheduler of the user's own, which checks them itself when it is imported."""

    def rung_times(self) -> RungTimes:
        """Without rungs, which are not known; with `time_attr` and `max_t` where the class takes these."""
        given = self.model_extra or {}
        attr, max_t = given.get("time_attr", TRAINING_ITERATION), given.get("max_t")
        is_number = isinstance(max_t, int | float) and not isinstance(max_t, bool)
        return RungTimes(attr=str(attr), max_t=max_t if is_number else None)


class ComparingOptions(SchedulerOptions):
    """Options of the schedulers that compare trials by one metric."""

    metric: Annotated[str, Field(min_length=1)] | None = None
    """The reported value by which trials are compared; default: the sweep's metric."""
    mode: Mode | None = None
    """The direction that is better: `min` or `max`; default: as the sweep says of that metric."""

    @property
    def comparing(self) -> tuple[tuple[str, ...], ComparingOptions] | None:
        """These options."""
        return (), self


def check_grace(grace_period: float, max_t: float, time_attr: str) -> None:
    """See that a grace period is below `max_t`, and whole where reports are counted. Raises Problem."""
    if time_attr == TRAINING_ITERATION and grace_period != int(grace_period):
        raise Problem(
            f"{grace_period} is not a number of reports, which {TRAINING_ITERATION} counts",
            f"write {math.ceil(grace_period)}, or set time_attr to a metric with fractions, such as epochs",
            ("grace_period",),
        )
    if grace_period > max_t:
        raise Problem(
            f"{grace_period} is above max_t {max_t}",
            f"set grace_period to {max_t} or less, or raise max_t",
            ("grace_period",),
        )


def as_tuple(given: object) -> object:
    """A list as a tuple, for a field that is one."""
    return tuple(given) if isinstance(given, list) else given
