"""Trials continue from a checkpoint with another share of the cluster, as others end.

The counterpart of Ray Tune's `ResourceChangingScheduler` with `DistributeResources`: what there is, is shared
out evenly among the trials that have not ended. The share is a parameter of the config, by which
`by_config` says what a trial takes; a trial whose share has changed exploits itself.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field, model_validator

from raysweep.documents.kinds import KindSpec
from raysweep.documents.validation import Problem
from raysweep.schedulers.asha import AshaOptions
from raysweep.schedulers.base import Config, Decisions, Move, PolicySetup, Resize, Scheduler
from raysweep.schedulers.fifo import FifoOptions
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.median_stopping import MedianStoppingOptions
from raysweep.schedulers.options import (
    ComparingOptions,
    RungTimes,
    SchedulerOptions,
    SchedulerPluginOptions,
)
from raysweep.space.amounts import parse_amount
from raysweep.space.expressions import Name, value_at


class StoppingSpec(KindSpec):
    """The rule that stops trials: `fifo` (none), `asha` or `median_stopping`, with its options."""

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
            raise Problem("pauses trials, whose shares stay unused", f"set {option}: {value}", where)
        return self


class ResourceChangingOptions(SchedulerOptions):
    """Trials continue from a checkpoint with another share of the cluster, as others end."""

    param: Annotated[str, Field(min_length=1)]
    """The parameter of which `by_config` makes what a trial takes, by its dotted name; a number."""
    total: float = Field(gt=0)
    """The amount of it for all trials that have not ended: they share it evenly, in whole parts."""
    most: Annotated[float, Field(gt=0)] | None = None
    """No trial gets more, such as what one node has; default: the last one gets all."""
    interval: float = Field(default=5, gt=0)
    """The time between two changes of a trial; it needs a checkpoint there."""
    base: StoppingSpec = StoppingSpec()
    """The rule that stops trials: `fifo`, `asha` or `median_stopping`."""

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

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return ResourceChangingScheduler(
            base=self.base.options.make(setup),
            param=parse_amount(self.param).names[0],
            total=self.total,
            most=self.most,
            interval=self.interval,
        )


class ResourceChangingScheduler(Scheduler):
    """Shares `total` out among the trials that have not ended, and asks another one who stops.

    Args:
        base: who decides which trials stop; it may decide nothing else.
        param: where in a config the share stands, a number.
        total: how much there is for all trials, in units of that parameter.
        most: no trial gets more; None: all there is.
        interval: how much time lies between two changes of a trial, in units of the base's time.
    """

    __slots__ = ("_base", "_changed_at", "_configs", "_least", "_param", "_parameters", "moves")

    def __init__(
        self, *, base: Scheduler, param: Name, total: float, most: float | None = None, interval: float = 5
    ) -> None:
        if not base.moves <= {"stop"}:
            raise ValueError("the base may stop trials, and nothing else")
        self._base, self._param = base, param
        self._parameters: dict[str, Any] = {
            "param": list(param),
            "total": float(total),
            "most": None if most is None else float(most),
            "interval": float(interval),
        }
        self.moves: frozenset[Move] = base.moves | {"exploit"}
        # Of the trials that have not ended: the config, the share at first, the time of the last change.
        self._configs: dict[int, Config] = {}
        self._least: dict[int, float] = {}
        self._changed_at: dict[int, float] = {}

    @property
    def time_attr(self) -> str:  # type: ignore[override]
        """The base's."""
        return self._base.time_attr

    @property
    def max_t(self) -> float | None:  # type: ignore[override]
        """The base's."""
        return self._base.max_t

    def add(self, trial: int, config: Config) -> None:
        """Count a trial, and what it has."""
        self._base.add(trial, config)
        if trial in self._configs:
            return
        share = self._share_in(config)
        if share is not None:
            self._configs[trial], self._least[trial], self._changed_at[trial] = config, share, 0.0

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide as the base does; a trial that continues may continue with another share."""
        decisions = self._base.report(trial, time, value)
        config = self._configs.get(trial)
        if config is None or any(number == trial for number, _ in decisions):
            return decisions
        if time - self._changed_at[trial] < self._parameters["interval"] or time == self.max_t:
            return decisions
        share = self._share_of(trial)
        if share == self._share_in(config):
            return decisions
        changed = self._with_share(config, share)
        self._configs[trial], self._changed_at[trial] = changed, time
        return (*decisions, (trial, Resize(changed)))

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Share out what it had."""
        self._forget(trial)
        return self._base.end(trial, time, value)

    def remove(self, trial: int) -> Decisions:
        """Share out what it had."""
        self._forget(trial)
        return self._base.remove(trial)

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Decide as the base does."""
        return self._base.idle(paused)

    def to_json(self) -> dict[str, Any]:
        """Return the base's state and what each trial has."""
        trials = [
            [trial, copy.deepcopy(dict(config)), self._least[trial], self._changed_at[trial]]
            for trial, config in self._configs.items()
        ]
        return {"parameters": dict(self._parameters), "base": self._base.to_json(), "trials": trials}

    def from_json(self, state: dict[str, Any]) -> None:
        """Restore what `to_json` returned.

        Raises:
            SpecError: other parameters: trials would get other shares.
        """
        check_parameters("resource_changing", state["parameters"], self._parameters)
        self._base.from_json(state["base"])
        trials = state["trials"]
        self._configs = {trial: copy.deepcopy(config) for trial, config, _, _ in trials}
        self._least = {trial: least for trial, _, least, _ in trials}
        self._changed_at = {trial: at for trial, _, _, at in trials}

    def _forget(self, trial: int) -> None:
        for held in (self._configs, self._least, self._changed_at):
            held.pop(trial, None)

    def _share_of(self, trial: int) -> float:
        """A whole part of all there is, as much as it had at first, and no more than the most."""
        even = float(self._parameters["total"] // len(self._configs))
        most = self._parameters["most"]
        return max(self._least[trial], even if most is None else min(even, most))

    def _share_in(self, config: Config) -> float | None:
        try:
            value = value_at(config, self._param)
        except (KeyError, IndexError, TypeError):
            return None  # in a branch that it does not have
        return float(value) if isinstance(value, int | float) else None

    def _with_share(self, config: Config, share: float) -> dict[str, Any]:
        changed: dict[str, Any] = copy.deepcopy(dict(config))
        holder: Any = value_at(changed, self._param[:-1])
        holder[self._param[-1]] = int(share) if share.is_integer() else share
        return changed
