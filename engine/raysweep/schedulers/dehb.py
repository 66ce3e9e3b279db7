"""DEHB's share in how long trials run: each gets the time of its rung, and no trial is compared with another.

Algorithm: Awad, Mallik and Hutter, "DEHB: Evolutionary Hyperband for Scalable, Robust and Efficient
Hyperparameter Optimization", IJCAI 2021, arXiv:2105.09821. Which configs run at which rung is for
`search: dehb` to say, so there is nothing to remember here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from raysweep.errors import SpecError
from raysweep.schedulers.base import (
    NOTHING,
    STOP,
    TRAINING_ITERATION,
    Config,
    Decisions,
    Move,
    PolicySetup,
    Scheduler,
)
from raysweep.schedulers.machinery.brackets import Brackets, rungs_of_brackets
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.options import (
    RungTimes,
    SchedulerOptions,
    TimeAttr,
)


class DehbOptions(SchedulerOptions):
    """DEHB (Awad et al., 2021), with `search: dehb`: each trial gets the time of one rung, and ends there."""

    metrics = "none"
    needs_search = "dehb"

    max_t: int = Field(default=81, ge=1)
    """The time of the highest rung, in units of `time_attr`."""
    reduction_factor: float = Field(default=3.0, gt=1)
    """Each rung has so many times the time of the rung below, and 1/reduction_factor of its trials."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""

    def rung_times(self) -> RungTimes:
        """The rungs of all brackets."""
        times = rungs_of_brackets(self.max_t, self.reduction_factor)
        return RungTimes(attr=self.time_attr, times=times, max_t=self.max_t)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        return DehbScheduler(
            max_t=self.max_t, reduction_factor=self.reduction_factor, time_attr=self.time_attr
        )


class DehbScheduler(Scheduler):
    """Stops each trial at the time of its rung, which follows from its number (Awad et al. 2021).

    Args:
        max_t: the time of the highest rung. Units of the time attribute, as all times here.
        reduction_factor: the quotient of the times of neighbouring rungs. Greater than 1.
        time_attr: the reported value that counts as time.

    Raises:
        SpecError: a parameter outside its range.
    """

    __slots__ = ("_brackets", "_parameters", "max_t", "time_attr")

    moves: frozenset[Move] = frozenset({"stop"})

    def __init__(
        self, *, max_t: float = 81, reduction_factor: float = 3, time_attr: str = TRAINING_ITERATION
    ) -> None:
        if not max_t >= 1:
            raise SpecError("scheduler.dehb.max_t", f"{max_t!r} is less than 1", "use 9 or more")
        if not reduction_factor > 1:
            problem = f"{reduction_factor!r} is not greater than 1"
            raise SpecError("scheduler.dehb.reduction_factor", problem, "use 3 or 4")
        self._parameters: dict[str, Any] = {"max_t": max_t, "reduction_factor": reduction_factor}
        self._brackets = Brackets(max_t, reduction_factor)
        self.time_attr = time_attr
        self.max_t: float | None = float(max_t)

    def add(self, trial: int, config: Config) -> None:
        """Do nothing: what a trial gets follows from its number."""

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Stop a trial that has had its time."""
        has_had_it = self._brackets.time(trial) <= time < self._parameters["max_t"]
        return ((trial, STOP),) if has_had_it else NOTHING

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Return no decisions: no trial waits for another."""
        return NOTHING

    def remove(self, trial: int) -> Decisions:
        """Return no decisions, as `end`."""
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Return no decisions: it pauses nothing."""
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return the parameters."""
        return {"parameters": dict(self._parameters)}

    def from_json(self, state: dict[str, Any]) -> None:
        """See that the parameters are the same.

        Raises:
            SpecError: they differ: trials would get other times.
        """
        check_parameters("dehb", state["parameters"], self._parameters)
