"""One step of a pipeline: a request is submitted or run, waited for, judged, and told downstream as a brief.

All that Airflow, Prefect and a plain loop have in common. `step.py` is the sequence, `verdict.py` says what
an end means, `brief.py` what goes downstream; `waiting.py` waits where no process stays, `cancelling.py`
stops jobs that are not wanted any more. A face keeps the calls of its orchestrator.
"""

from __future__ import annotations

from raysweep.step.brief import (
    best_config,
    best_schedule,
    best_trials,
    brief,
    stored_outcome,
    why_not_trained,
)
from raysweep.step.cancelling import (
    Canceller,
    Intent,
    cancel_anyway,
    connected,
)
from raysweep.step.step import Place, Step
from raysweep.step.verdict import Verdict, complete, details_of, verdict_of
from raysweep.step.waiting import End, wait_for_end

__all__ = [
    "Canceller",
    "End",
    "Intent",
    "Place",
    "Step",
    "Verdict",
    "best_config",
    "best_schedule",
    "best_trials",
    "brief",
    "cancel_anyway",
    "complete",
    "connected",
    "details_of",
    "stored_outcome",
    "verdict_of",
    "wait_for_end",
    "why_not_trained",
]
