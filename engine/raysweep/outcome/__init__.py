"""Outcomes of sweeps and trainings, and the progress of one under way, as JSON."""

from raysweep.outcome.configs import ConfigOutcome
from raysweep.outcome.gate import Approval, Confirmed, Decision, GateOutcome, Undone
from raysweep.outcome.progress import (
    BestTrial,
    Cancellation,
    Holder,
    Lease,
    RunningTrial,
    SweepProgress,
)
from raysweep.outcome.record import (
    TRACEBACK_CHARACTERS,
    ErrorInfo,
    Record,
)
from raysweep.outcome.standing import Standing
from raysweep.outcome.sweep import (
    TRIAL_TIMES,
    EndedBy,
    SweepOutcome,
    SweepStatus,
    UnfinishedStatus,
    show_infeasible,
    trial_row,
)
from raysweep.outcome.train import (
    DataDigest,
    PipelineOutcome,
    TrainOutcome,
    TrainReport,
    TrainSource,
)
from raysweep.outcome.trial import AttemptOutcome, TrialOutcome, TrialState
from raysweep.outcome.trials import Trials
from raysweep.outcome.usage import Usage

__all__ = [
    "TRACEBACK_CHARACTERS",
    "TRIAL_TIMES",
    "Approval",
    "AttemptOutcome",
    "BestTrial",
    "Cancellation",
    "ConfigOutcome",
    "Confirmed",
    "DataDigest",
    "Decision",
    "EndedBy",
    "ErrorInfo",
    "GateOutcome",
    "Holder",
    "Lease",
    "PipelineOutcome",
    "Record",
    "RunningTrial",
    "Standing",
    "SweepOutcome",
    "SweepProgress",
    "SweepStatus",
    "TrainOutcome",
    "TrainReport",
    "TrainSource",
    "TrialOutcome",
    "TrialState",
    "Trials",
    "Undone",
    "UnfinishedStatus",
    "Usage",
    "show_infeasible",
    "trial_row",
]
