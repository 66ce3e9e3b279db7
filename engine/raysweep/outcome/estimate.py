"""`Estimate`: when a sweep is expected to end, with how many trials, at what cost."""

from __future__ import annotations

from typing import Final

from pydantic import model_validator

from raysweep.outcome.record import Record


class Span(Record):
    """A value that is expected, and an interval that holds it four times of five."""

    low: float
    expected: float
    high: float

    @model_validator(mode="after")
    def _check(self) -> Span:
        if not self.low <= self.expected <= self.high:
            raise ValueError(f"{self.low}, {self.expected}, {self.high} are not in order")
        return self


class Estimate(Record):
    """The estimate of a sweep that has not ended, each value with an 80 % interval. Times are UTC seconds."""

    made_at: float
    """The time at which it was made."""
    end_at: Span
    """The end of the sweep."""
    trials: Span
    """The number of trials that will have ended by then."""
    cost: Span | None = None
    """Its cost by then, by `stop.cost_per_hour`; None without prices."""
    completes: float = 1.0
    """The share of the plays in which all trials end by themselves, before any limit of the sweep."""
    plays: int = 0
    """The number of times that the rest of the sweep was played."""
    is_extended: bool = False
    """The sweep is too large to be played to its end: from where a play stopped, its pace counts."""


class Expected(Record):
    """The estimate of a sweep, and its slow trials."""

    estimate: Estimate | None = None
    slow: tuple[str, ...] = ()


NOTHING: Final = Expected()
