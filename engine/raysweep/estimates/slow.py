"""Trials that take far longer than their siblings."""

from __future__ import annotations

from statistics import median
from typing import Final

from raysweep.core.state.sweep import SweepState
from raysweep.estimates.samples import Samples
from raysweep.outcome.showing.estimate_text import show_slow

TIMES: Final = 10.0
"""A trial that takes this many times as long as its siblings for a report is named."""
_MIN_SIBLINGS: Final = 5
_MAX_NAMED: Final = 5


def slow_trials(state: SweepState, samples: Samples, at: float) -> tuple[str, ...]:
    """A line for each running trial whose reports take ten times as long as those of the others.

    Time without a report counts: one that hangs is named before it has reported. By report and not by trial,
    as a trial that is not stopped early takes longer than those that are. `at`: now, in the events' time.
    """
    steps = [each.step_s for each in samples.ran if each.step_s > 0.0]
    if len(steps) < _MIN_SIBLINGS:
        return ()
    usual_s = median(steps)
    found = []
    for slot in state.slots.values():
        trial = state.trials.get(slot.queue[0]) if slot.queue else None
        if trial is None or trial.state != "running" or trial.attempt_started_at is None:
            continue
        reports = trial.results.attempt_reports
        step_s = (slot.heard_at - trial.attempt_started_at) / reports if reports else 0.0
        step_s = max(step_s, at - max(slot.heard_at, trial.attempt_started_at))
        if step_s >= max(TIMES * usual_s, 1.0):
            found.append((step_s, trial.number))
    found.sort(reverse=True)
    return tuple(show_slow(number, step_s, usual_s) for step_s, number in found[:_MAX_NAMED])
