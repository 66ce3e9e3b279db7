"""A virtual-clock simulator on the real core: days of a sweep in seconds, and controllers killed at will.

from raysweep.simulate import simulate

def curve(config, iteration):
    return {"loss": (config["lr"] - 0.1) ** 2 + 1 / iteration} if iteration <= 27 else None

simulated = simulate(spec, curve, step_s=60, slots=8)
simulated.outcome.best, simulated.duration_s, simulated.timeline
"""

from raysweep.simulate.delays import Costs
from raysweep.simulate.kills import Kill
from raysweep.simulate.simulation import Simulated, simulate
from raysweep.simulate.trials import Curve, Moment, TrialHangs, TrialOverMemory, WorkerDied

__all__ = [
    "Costs",
    "Curve",
    "Kill",
    "Moment",
    "Simulated",
    "TrialHangs",
    "TrialOverMemory",
    "WorkerDied",
    "simulate",
]
