"""A night as one thing: sweep, gate, train. The flow, the command line and any DAG run these functions."""

from __future__ import annotations

from raysweep.pipeline.briefs import best_config, stored_outcome, why_not_trained
from raysweep.pipeline.decision import decide
from raysweep.pipeline.gate import GateRun, prepare_gate, run_gate
from raysweep.pipeline.night import handed_on, run_pipeline, train_best, why_skipped, with_gate

__all__ = [
    "GateRun",
    "best_config",
    "decide",
    "handed_on",
    "prepare_gate",
    "run_gate",
    "run_pipeline",
    "stored_outcome",
    "train_best",
    "why_not_trained",
    "why_skipped",
    "with_gate",
]
