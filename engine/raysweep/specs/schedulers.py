"""Which trials are stopped, paused or changed while they run: the schedulers by name, and their options."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Annotated, Any, ClassVar, Final, Literal, Self

from pydantic import (
    AfterValidator,
    BeforeValidator,
    Field,
    PlainSerializer,
    SerializerFunctionWrapHandler,
    model_serializer,
    model_validator,
)

from raysweep.documents.base import SpecModel
from raysweep.documents.kinds import KindSpec, PluginOptions
from raysweep.documents.mode import Mode
from raysweep.documents.validation import Problem
from raysweep.space.perturbation import bounded_leaves, mutable_leaves
from raysweep.specs.brackets import milestones, rungs_of_brackets

TimeAttr = Annotated[str, Field(min_length=1)]
TRAINING_ITERATION: Final = "training_iteration"
Metrics = Literal["none", "one", "any", "several"]
"""By how many metrics a policy goes: `any` is as many as the sweep has; `several` is two or more."""


def _whole(given: float) -> float:
    """1.0 as 1: one spelling makes equal specs equal."""
    return int(given) if given == int(given) else given


Grace = Annotated[float, Field(gt=0), AfterValidator(_whole), PlainSerializer(_whole, return_type=Any)]


@dataclass(frozen=True, slots=True, kw_only=True)
class RungTimes:
    """At which times a scheduler decides about a trial, as far as that follows from its options."""

    attr: str = TRAINING_ITERATION
    """The reported value that counts as time, in units of which all times are."""
    times: tuple[float, ...] = ()
    """The times of rungs; those from `max_t` on do not count."""
    interval: float = 0.0
    """It decides at each multiple of this, too; 0: at no other times."""
    max_t: float | None = None
    """The time at which a trial is complete; None: there is no such time."""


class SchedulerOptions(SpecModel):
    """What the engine asks of a scheduler's options before there is a scheduler."""

    metrics: ClassVar[Metrics] = "one"
    """By how many metrics of the sweep it compares trials."""
    with_one_metric: ClassVar[str] = ""
    """Where `metrics` is `several`: what to use in a sweep of one metric."""
    decides: ClassVar[bool] = True
    """Whether it decides anything about trials."""
    is_population: ClassVar[bool] = False
    """Whether all trials are one population, of `num_samples`, whose configs it changes itself."""
    needs_search: ClassVar[str | None] = None
    """The only search that it works with; None: it works with any."""

    @property
    def comparing(self) -> tuple[tuple[str, ...], ComparingOptions] | None:
        """The options that name the one metric by which trials are compared, and their path below these."""
        return None

    @property
    def pauses_by(self) -> tuple[str, str] | None:
        """The option that makes it pause trials, and the value with which it pauses none; None: as it is."""
        return None

    @property
    def can_wait(self) -> bool:
        """Whether trials that are compared may run one after the other."""
        return True

    @property
    def resizes_by(self) -> str | None:
        """The parameter that it changes for a trial to take other resources, by its dotted name."""
        return None

    def rung_times(self) -> RungTimes:
        """When it decides about a trial; without times and interval where each report may decide."""
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
    """What is common to those that compare trials by one metric.

    What a later version added is written only where it is set: old digests stay.
    """

    written_if_set: ClassVar[tuple[str, ...]] = ()

    metric: Annotated[str, Field(min_length=1)] | None = None
    """The reported value by which trials are compared; default: the sweep's metric."""
    mode: Mode | None = None
    """Whether less or more of it is better; default: as the sweep says of that metric."""

    @property
    def comparing(self) -> tuple[tuple[str, ...], ComparingOptions] | None:
        """These options."""
        return (), self

    @model_serializer(mode="wrap")
    def _leave_defaults_out(self, handler: SerializerFunctionWrapHandler) -> dict[str, Any]:
        fields: dict[str, Any] = handler(self)
        for name in ("metric", "mode", *self.written_if_set):
            if getattr(self, name) == type(self).model_fields[name].default:
                del fields[name]
        return fields


class FifoOptions(SchedulerOptions):
    """Trials run in order and to their end: no options."""

    metrics = "none"
    decides = False


class AshaOptions(ComparingOptions):
    """Asynchronous successive halving (Li et al., 2018): the defaults are Ray Tune's."""

    written_if_set = ("type", "delayed")

    max_t: int = Field(default=100, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time before which no trial is stopped."""
    reduction_factor: float = Field(default=4.0, gt=1)
    """The top 1/reduction_factor of each rung goes on."""
    brackets: int = Field(default=1, ge=1)
    """How many brackets, each with a later first rung than the one before."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""
    type: Literal["stopping", "promotion"] = "stopping"
    """What happens at a rung: who is not among the best stops, or all pause, and the best go on."""
    delayed: bool = False
    """Whether no more go on from a rung than 1/reduction_factor of those that came there (D-ASHA, Li et al.,
    "Hyper-Tune", 2022); with `type: promotion`."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_grace(self.grace_period, self.max_t, self.time_attr)
        if self.delayed and self.type == "stopping":
            raise Problem(
                "is for type: promotion, where trials wait at rungs",
                "write type: promotion beside it, or leave it out",
                ("delayed",),
            )
        return self

    @property
    def pauses_by(self) -> tuple[str, str] | None:
        """By promotion all trials pause at their rungs."""
        return ("type", "stopping") if self.type == "promotion" else None

    def rung_times(self) -> RungTimes:
        """The rungs of the first bracket, which has those of all others."""
        times = milestones(self.grace_period, self.max_t, self.reduction_factor, 0)
        return RungTimes(attr=self.time_attr, times=tuple(times), max_t=self.max_t)


class PashaOptions(ComparingOptions):
    """PASHA (Bohdal et al., 2023): ASHA by promotion, with rungs added only while rankings change."""

    written_if_set = ("delayed",)

    max_t: int = Field(default=100, ge=1)
    """The most time that a trial may ever get, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time of the first rung."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """The top 1/reduction_factor of each rung goes on."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""
    delayed: bool = False
    """Whether no more go on from a rung than 1/reduction_factor of those that came there (D-ASHA)."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_grace(self.grace_period, self.max_t, self.time_attr)
        return self

    def rung_times(self) -> RungTimes:
        """The rungs that there may be."""
        times = milestones(self.grace_period, self.max_t, self.reduction_factor, 0)
        return RungTimes(attr=self.time_attr, times=tuple(times), max_t=self.max_t)


class MoashaOptions(SchedulerOptions):
    """ASHA of several metrics (Schmucker et al., 2021): rungs are sorted by Pareto fronts, as Syne Tune's."""

    metrics = "several"
    with_one_metric = "asha"

    max_t: int = Field(default=100, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time before which no trial is stopped."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """The first 1/reduction_factor of each rung go on."""
    brackets: int = Field(default=1, ge=1)
    """How many brackets, each with a later first rung than the one before."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_grace(self.grace_period, self.max_t, self.time_attr)
        return self

    def rung_times(self) -> RungTimes:
        """The rungs of the first bracket, which has those of all others."""
        times = milestones(self.grace_period, self.max_t, self.reduction_factor, 0)
        return RungTimes(attr=self.time_attr, times=tuple(times), max_t=self.max_t)


class MedianStoppingOptions(ComparingOptions):
    """Median stopping (Golovin et al., "Google Vizier", 2017), with the decisions of Ray Tune's rule."""

    grace_period: float = Field(default=1, ge=0)
    """The time before which no trial is stopped, and from which on means are taken."""
    min_samples_required: int = Field(default=3, ge=1)
    """How many other trials must have come as far before one is stopped."""
    hard_stop: bool = True
    """Whether a trial below the median is stopped for good; else it is paused until no other runs."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    @property
    def pauses_by(self) -> tuple[str, str] | None:
        """Without a hard stop, a trial below the median pauses."""
        return None if self.hard_stop else ("hard_stop", "true")

    def rung_times(self) -> RungTimes:
        """Without rungs: each report may decide."""
        return RungTimes(attr=self.time_attr)


class HyperbandOptions(ComparingOptions):
    """HyperBand (Li et al., 2018): brackets of synchronous successive halving, by pausing."""

    max_t: int = Field(default=81, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """The top 1/reduction_factor of a bracket goes on at each rung."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    def rung_times(self) -> RungTimes:
        """The rungs of all brackets."""
        times = rungs_of_brackets(self.max_t, self.reduction_factor)
        return RungTimes(attr=self.time_attr, times=times, max_t=self.max_t)


class DehbOptions(SchedulerOptions):
    """DEHB (Awad et al., 2021), with `search: dehb`: each trial gets the time of one rung, and ends there."""

    metrics = "none"
    needs_search = "dehb"

    max_t: int = Field(default=81, ge=1)
    """The time of the highest rung, in units of `time_attr`."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """Each rung has so many times the time of the rung below, and 1/reduction_factor of its trials."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    def rung_times(self) -> RungTimes:
        """The rungs of all brackets."""
        times = rungs_of_brackets(self.max_t, self.reduction_factor)
        return RungTimes(attr=self.time_attr, times=times, max_t=self.max_t)


class FreezeThawOptions(ComparingOptions):
    """Freeze-thaw (Swersky et al., 2014): a model of the learning curves says which trial goes on."""

    max_t: int = Field(default=81, ge=1)
    """The most time that a trial gets, in units of `time_attr`."""
    grace_period: Grace = 1
    """The time before which no trial is paused."""
    interval: float = Field(default=1, gt=0)
    """So much time a trial runs until it is decided about again; it needs a checkpoint there."""
    basket: int = Field(default=10, ge=1)
    """How many trials are kept, running or paused; for a new one the least promising ends."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        _check_grace(self.grace_period, self.max_t, self.time_attr)
        return self

    def rung_times(self) -> RungTimes:
        """It decides at each interval."""
        return RungTimes(attr=self.time_attr, interval=self.interval, max_t=self.max_t)


def _as_tuple(given: object) -> object:
    return tuple(given) if isinstance(given, list) else given


class PbtOptions(ComparingOptions):
    """Population based training (Jaderberg et al., 2017): all trials are the population."""

    is_population = True

    perturbation_interval: float = Field(default=5, gt=0)
    """Every so much time a trial is compared with the others; it needs a checkpoint there."""
    burn_in_period: float = Field(default=0, ge=0)
    """The time before which no trial is replaced."""
    hyperparam_mutations: Annotated[tuple[str, ...] | None, BeforeValidator(_as_tuple)] = None
    """The parameters that are explored, by their dotted names; default: all that have a domain."""
    quantile_fraction: float = Field(default=0.25, ge=0, le=0.5)
    """This part of the population, the worst, goes on from trials of the same part, the best."""
    resample_probability: float = Field(default=0.25, ge=0, le=1)
    """How likely a parameter is drawn anew; else it is perturbed."""
    perturbation_factors: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(_as_tuple), Field(min_length=1)
    ] = (1.2, 0.8)
    """What a number is multiplied by when it is perturbed: one of these. A choice moves to a neighbour."""
    synch: bool = False
    """Whether all trials wait for each other at each interval, paused; then they need no slot each."""
    max_t: Annotated[int, Field(ge=1)] | None = None
    """The most time that a trial gets; default: until its own code ends."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    @property
    def can_wait(self) -> bool:
        """See `synch`."""
        return self.synch

    def rung_times(self) -> RungTimes:
        """It decides at each interval."""
        return RungTimes(attr=self.time_attr, interval=self.perturbation_interval, max_t=self.max_t)

    def check_space(self, space: Mapping[str, Any]) -> None:
        """See that the parameters to explore are there. Raises Problem."""
        _check_explored(space, self.hyperparam_mutations)


class Pb2Options(ComparingOptions):
    """Population based bandits (Parker-Holder et al., 2020): PBT with a Gaussian process that explores."""

    is_population = True

    perturbation_interval: float = Field(default=5, gt=0)
    """Every so much time a trial is compared with the others; it needs a checkpoint there."""
    hyperparam_bounds: Annotated[tuple[str, ...] | None, BeforeValidator(_as_tuple)] = None
    """The parameters that are explored, by their dotted names; default: all numbers within bounds."""
    quantile_fraction: float = Field(default=0.25, ge=0, le=0.5)
    """This part of the population, the worst, goes on from trials of the same part, the best."""
    synch: bool = False
    """Whether all trials wait for each other at each interval, paused; then they need no slot each."""
    max_t: Annotated[int, Field(ge=1)] | None = None
    """The most time that a trial gets; default: until its own code ends."""
    time_attr: TimeAttr = "training_iteration"
    """Which reported value is the time; `training_iteration` counts the reports."""

    @property
    def can_wait(self) -> bool:
        """See `synch`."""
        return self.synch

    def rung_times(self) -> RungTimes:
        """It decides at each interval."""
        return RungTimes(attr=self.time_attr, interval=self.perturbation_interval, max_t=self.max_t)

    def check_space(self, space: Mapping[str, Any]) -> None:
        """See that the parameters to explore are there. Raises Problem."""
        _check_bounded(space, self.hyperparam_bounds)


class StoppingSpec(KindSpec):
    """Which trials stop: `fifo` (none), `asha` or `median_stopping`, with its options."""

    kinds: ClassVar[Mapping[str, type[SchedulerOptions]]] = {
        "fifo": FifoOptions,
        "asha": AshaOptions,
        "median_stopping": MedianStoppingOptions,
    }
    plugin_options = SchedulerPluginOptions

    kind: str = "fifo"
    """The scheduling algorithm."""
    options: SchedulerOptions = FifoOptions()
    """Its options."""

    @model_validator(mode="after")
    def _check(self) -> Self:
        if self.is_plugin:
            raise Problem("a class cannot be the base", "take fifo, asha or median_stopping")
        if (pauses := self.options.pauses_by) is not None:
            option, value = pauses
            where = (self.kind, option)
            raise Problem("pauses trials, whose share nobody has", f"set {option}: {value}", where)
        return self


class ResourceChangingOptions(SchedulerOptions):
    """Trials go on from a checkpoint with another share of the cluster, as others end."""

    param: Annotated[str, Field(min_length=1)]
    """The parameter of which `by_config` makes what a trial takes, by its dotted name; a number."""
    total: float = Field(gt=0)
    """How much of it there is for all trials that have not ended: they share it evenly, in whole parts."""
    most: Annotated[float, Field(gt=0)] | None = None
    """No trial gets more, such as what one node has; default: the last one gets all."""
    interval: float = Field(default=5, gt=0)
    """How much time lies between two changes of a trial; it needs a checkpoint there."""
    base: StoppingSpec = StoppingSpec()
    """Who decides which trials stop: `fifo`, `asha` or `median_stopping`."""

    @property
    def comparing(self) -> tuple[tuple[str, ...], ComparingOptions] | None:
        """Those of the base."""
        found = self.base.options.comparing
        return None if found is None else (("base", self.base.kind, *found[0]), found[1])

    @property
    def resizes_by(self) -> str | None:
        """See `param`."""
        return self.param

    def rung_times(self) -> RungTimes:
        """Those of the base, and each interval."""
        return replace(self.base.options.rung_times(), interval=self.interval)


class SchedulerSpec(KindSpec):
    """What becomes of trials that run: `fifo` (nothing), `asha`, … or `module:Class`, with its options."""

    kinds: ClassVar[Mapping[str, type[SchedulerOptions]]] = {
        "fifo": FifoOptions,
        "asha": AshaOptions,
        "pasha": PashaOptions,
        "moasha": MoashaOptions,
        "median_stopping": MedianStoppingOptions,
        "hyperband": HyperbandOptions,
        "dehb": DehbOptions,
        "freeze_thaw": FreezeThawOptions,
        "pbt": PbtOptions,
        "pb2": Pb2Options,
        "resource_changing": ResourceChangingOptions,
    }
    plugin_options = SchedulerPluginOptions

    kind: str = "fifo"
    """The scheduling algorithm."""
    options: SchedulerOptions = FifoOptions()
    """Its options."""

    @property
    def comparing(self) -> tuple[str, ComparingOptions] | None:
        """The options that name the metric by which trials are compared, and their path in `scheduler`."""
        found = self.options.comparing
        return None if found is None else (".".join((self.kind, *found[0])), found[1])


def _check_grace(grace_period: float, max_t: float, time_attr: str) -> None:
    if time_attr == TRAINING_ITERATION and grace_period != int(grace_period):
        raise Problem(
            f"{grace_period} is no number of reports, which {TRAINING_ITERATION} counts",
            f"write {math.ceil(grace_period)}, or set time_attr to a metric with fractions, such as epochs",
            ("grace_period",),
        )
    if grace_period > max_t:
        raise Problem(
            f"{grace_period} is above max_t {max_t}",
            f"set grace_period to {max_t} or less, or raise max_t",
            ("grace_period",),
        )


def check_scheduler(
    scheduler: SchedulerSpec, space: Mapping[str, Any], num_samples: int | None, max_concurrent: int | None
) -> None:
    """See that a scheduler has something to work with. Imports nothing. Raises Problem."""
    scheduler.options.check_space(space)
    if scheduler.options.can_wait or max_concurrent is None or num_samples is None:
        return
    if max_concurrent < num_samples:
        kind = scheduler.kind
        raise Problem(
            f"{kind} compares trials that run at once, and of {num_samples} only {max_concurrent} may",
            f"set max_concurrent_trials to {num_samples}, or scheduler.{kind}.synch to true",
            ("max_concurrent_trials",),
        )


def _check_explored(space: Mapping[str, Any], names: tuple[str, ...] | None) -> None:
    try:
        leaves = mutable_leaves(space, names)
    except KeyError as error:
        raise Problem(
            f"{error.args[0]!r} is no parameter that param_space has a domain for",
            "name one by its dotted path, or leave it out: all are explored",
            ("scheduler", "pbt", "hyperparam_mutations"),
        ) from None
    if not leaves:
        raise Problem(
            "pbt has nothing to explore in it",
            'give a domain, as {"lr": {"uniform": [0, 1]}}',
            ("param_space",),
        )


def _check_bounded(space: Mapping[str, Any], names: tuple[str, ...] | None) -> None:
    try:
        leaves = bounded_leaves(space, names)
    except KeyError as error:
        raise Problem(
            f"{error.args[0]!r} is no number within bounds that every config has",
            "name one by its dotted path, or leave it out: all are explored",
            ("scheduler", "pb2", "hyperparam_bounds"),
        ) from None
    if not leaves:
        raise Problem(
            "pb2 has nothing to explore in it: it explores numbers within bounds",
            'give a domain, as {"lr": {"uniform": [0, 1]}}, or use pbt',
            ("param_space",),
        )
