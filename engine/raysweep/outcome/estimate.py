"""`Estimate`: when a sweep is expected to end, with how many trials, at what cost."""

from __future__ import annotations

from pydantic import model_validator

from raysweep.outcome.formatting import show_duration, show_number
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

    def show_end(self, now: float) -> str:
        """`in 1:02:00 (0:55:00 to 1:10:00)`."""
        left = [show_duration(at - now) for at in (self.end_at.low, self.end_at.high)]
        return f"in {show_duration(self.end_at.expected - now)} ({left[0]} to {left[1]})"

    def show_trials(self, deadline: float | None = None) -> str:
        """`96 (90 to 100) by then`; with a deadline, also how likely all of them end before it."""
        text = show_span(self.trials, digits=0)
        if deadline is None or self.completes >= 1.0:
            return text
        return f"{text}; all of them before a limit in {self.completes:.0%} of the plays"


def show_span(span: Span, digits: int = 2) -> str:
    """`12.50 (11.20 to 14.00)`; one number where the ends are equal."""
    low, expected, high = (f"{value:.{digits}f}" for value in (span.low, span.expected, span.high))
    return expected if low == high else f"{expected} ({low} to {high})"


def show_estimate(estimate: Estimate, now: float) -> str:
    """All of it on one line, for a log: `ends in 1:02:00 (0:55:00 to 1:10:00), cost 12.50`."""
    cost = f", cost {show_span(estimate.cost)}" if estimate.cost is not None else ""
    chance = "" if estimate.completes >= 1.0 else f", {show_span(estimate.trials, 0)} trials by then"
    return f"ends {estimate.show_end(now)}{chance}{cost}"


def show_slow(trial: int, seconds: float, usual_s: float) -> str:
    """`trial 00007 takes 0:50 a report, 12 times as long as the others (0:04)`."""
    times = show_number(round(seconds / usual_s))
    return (
        f"trial {trial:05d} takes {_seconds(seconds)} a report, {times} times as long as the others"
        f" ({_seconds(usual_s)})"
    )


def _seconds(value: float) -> str:
    return show_duration(value) if value >= 60.0 else f"{value:.3g} s"
