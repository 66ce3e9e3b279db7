"""Estimates as text, for people."""

from __future__ import annotations

from raysweep.numeric.shown import show_number
from raysweep.outcome.estimate import Estimate, Span
from raysweep.outcome.showing.formatting import show_duration, show_end


def show_span(span: Span, digits: int = 2) -> str:
    """`12.50 (11.20 to 14.00)`; one number where the ends are equal."""
    low, expected, high = (f"{value:.{digits}f}" for value in (span.low, span.expected, span.high))
    return expected if low == high else f"{expected} ({low} to {high})"


def estimate_facts(estimate: Estimate, now: float, deadline: float | None) -> list[tuple[str, str]]:
    """Label and text of what is expected: end, trials until the deadline, cost."""
    facts = [("expected end", show_end(estimate, now))]
    if estimate.completes < 1.0:
        by = "by the deadline" if deadline is not None else "by its end"
        chance = f"all of them in {estimate.completes:.0%} of {estimate.plays} plays"
        facts.append((f"trials {by}", f"{show_span(estimate.trials, 0)}; {chance}"))
    if estimate.cost is not None:
        facts.append(("expected cost", show_span(estimate.cost)))
    return facts


def show_slow(trial: int, seconds: float, usual_s: float) -> str:
    """`trial 00007 takes 0:50 a report, 12 times as long as the others (0:04)`."""
    times = show_number(round(seconds / usual_s))
    usual = _seconds(usual_s)
    return (
        f"trial {trial:05d} takes {_seconds(seconds)} a report, {times} times as long as the others ({usual})"
    )


def _seconds(value: float) -> str:
    return show_duration(value) if value >= 60.0 else f"{value:.3g} s"
