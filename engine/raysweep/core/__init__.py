"""The pure core: `step(state, event) -> commands`.

No Ray, no threads, no clock, no randomness, no files: time, ids and seeds arrive inside events. The shell in
`raysweep.cluster` feeds it and carries its commands out; the journal keeps its events and nothing else.
"""

from raysweep.core.machine import step
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import trial_id
from raysweep.core.views.result import explain, make_outcome
from raysweep.core.vocabulary.codec import decode, encode

__all__ = ["SweepState", "decode", "encode", "explain", "make_outcome", "step", "trial_id"]
