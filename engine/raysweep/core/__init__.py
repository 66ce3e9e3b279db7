"""The pure core: `step(state, event) -> commands`.

No Ray, no threads, no clock, no randomness, no files: time, ids and seeds arrive inside events. The shell in
`raysweep.cluster` feeds it and carries its commands out; the journal keeps its events and nothing else.
"""

from raysweep.core.codec import decode, encode
from raysweep.core.machine import step
from raysweep.core.result import explain, make_outcome
from raysweep.core.state import SweepState
from raysweep.core.trial import trial_id

__all__ = ["SweepState", "decode", "encode", "explain", "make_outcome", "step", "trial_id"]
