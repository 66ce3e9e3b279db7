"""The best trial in words: by which rule it is the best, or why there is none."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from raysweep.numeric.shown import show_number

if TYPE_CHECKING:
    from raysweep.outcome.trial import TrialOutcome

NO_METRIC = "the sweep has no metric, so no trial is the best"


def show_rule(metric: str, mode: str, others: Mapping[str, str], constraints: Sequence[str]) -> str:
    """`highest auc, the first of 3 metrics, of the trials that satisfy latency_ms <= 20`."""
    if not metric:
        return ""
    parts = [f"{'highest' if mode == 'max' else 'lowest'} {metric}"]
    if others:
        parts.append(f"the first of {1 + len(others)} metrics; {' and '.join(others)} tell equal ones apart")
    if constraints:
        parts.append(f"of the trials that satisfy {' and '.join(constraints)}")
    return ", ".join(parts)


def why_no_best(metric: str, first: TrialOutcome | None, status: str, *, has_failed: bool) -> str:
    """The reason why no trial is the best, where that is no matter of constraints.

    Args:
        metric: Of the sweep; empty: it has none.
        first: The trial with the best score that did not fail.
        status: Of the sweep.
        has_failed: Whether a trial that failed has a score.
    """
    if not metric:
        return NO_METRIC
    if first is None:
        return (
            f"every trial that reported {metric} failed"
            if has_failed
            else f"no trial has reported a finite {metric}"
        )
    score = "" if first.score is None else f" with {metric} {show_number(first.score)}"
    trial = f"trial {first.trial_id}"
    if status == "failed":
        return f"the sweep failed before a trial with {metric} had ended; the failure cut {trial}{score}"
    return f"no trial with {metric} has ended; {trial} is ahead{score}"
