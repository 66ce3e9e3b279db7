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
    """What is expected of a sweep that has not ended, each with an 80 % interval. Times are UTC seconds."""

    made_at: float
    """When it was made."""
    end_at: Span
    """When the sweep ends."""
    trials: Span
    """How many trials will have ended by then."""
    cost: Span | None = None
    """What it will have cost by then, by `stop.cost_per_hour`; None without prices."""
    completes: float = 1.0
    """The share of the plays in which all trials end by themselves, before any limit of the sweep."""
    plays: int = 0
    """How often the rest of the sweep was played."""
    is_extended: bool = False
    """The sweep is too large to be played to its end: from where a play stopped, its pace counts."""


class Expected(Record):
    """What is expected of a sweep, and which of its trials are slow."""

    estimate: Estimate | None = None
    slow: tuple[str, ...] = ()


NOTHING: Final = Expected()
