"""Estimates of a sweep's end, trials and cost: the rest of it is played on the real core, a few times.

    estimate = estimate_rest(state, now=time.time(), total=100)
    estimate.end_at.low, estimate.end_at.expected, estimate.end_at.high

What trials do in a play (`model.py`) is drawn from what the sweep's trials have done so far, and from those
of earlier nights of its name. Nothing here reads a storage or a clock, but for the CPU time that bounds it.
"""

from raysweep.estimates.estimate import estimate_new, estimate_rest
from raysweep.estimates.samples import Past, Samples, past_of, samples_of
from raysweep.estimates.seen import Seen
from raysweep.estimates.slow import slow_trials

__all__ = [
    "Past",
    "Samples",
    "Seen",
    "estimate_new",
    "estimate_rest",
    "past_of",
    "samples_of",
    "slow_trials",
]
