"""The second machine of the core: slots, the workers in them, and the placement groups under them.

Pure, like the first, and beside it: the core says what a slot is to do, the fleet how its workers get there.
Not journaled: with their controller, all workers are gone.
"""

from raysweep.fleet.actions import (
    Action,
    CancelEvaluation,
    CreateGroup,
    ExplainDelay,
    HangUp,
    KillWorker,
    RemoveGroup,
    Send,
    StartEvaluation,
    StartWorker,
)
from raysweep.fleet.machine import Fleet
from raysweep.fleet.policy import FleetPolicy

__all__ = [
    "Action",
    "CancelEvaluation",
    "CreateGroup",
    "ExplainDelay",
    "Fleet",
    "FleetPolicy",
    "HangUp",
    "KillWorker",
    "RemoveGroup",
    "Send",
    "StartEvaluation",
    "StartWorker",
]
