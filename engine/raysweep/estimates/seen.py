"""`Seen`: the curves of the newest trials, collected while a journal is replayed."""

from __future__ import annotations

import math
from array import array

from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import events as ev

MAX_TRIALS = 300
MAX_POINTS = 2_000


class Seen:
    """`curves[n]` holds the metric of trial n by its reports, the first at 0; NaN where it is not known.

    The newest MAX_TRIALS trials are kept, of each the first MAX_POINTS reports.
    """

    def __init__(self) -> None:
        self.curves: dict[int, array[float]] = {}

    def take(self, state: SweepState, event: ev.Event) -> None:
        """Take an event that was just applied to the state."""
        metric = state.spec.metric
        if not isinstance(event, ev.TrialReported) or not event.rows or metric not in event.keys:
            return
        trial = state.trials.get(event.trial)
        if trial is None or trial.attempt != event.attempt:
            return
        place, last = event.keys.index(metric), trial.results.iteration
        curve = self.curves.get(event.trial)
        if curve is None:
            curve = self.curves[event.trial] = array("d")
            if len(self.curves) > MAX_TRIALS:
                del self.curves[next(iter(self.curves))]
        first = max(0, last - len(event.rows))
        if last > MAX_POINTS:
            return
        del curve[first:]
        curve.extend([math.nan] * (first - len(curve)))
        curve.extend(_number(row[place]) for row in event.rows[len(event.rows) - (last - first) :])


def _number(value: object) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return float(value) if is_number and math.isfinite(value) else math.nan  # type: ignore[arg-type]
