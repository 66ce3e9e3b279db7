"""A pipeline as one call: sweep, gate, train. The flow, the command line and any DAG run these functions."""

from __future__ import annotations

from raysweep.pipeline.approval import await_approval
from raysweep.pipeline.decision import decide
from raysweep.pipeline.gate import GateRun, prepare_gate, run_gate
from raysweep.pipeline.night import (
    handed_on,
    run_pipeline,
    train_best,
    training_key,
    training_request,
    with_best,
    with_gate,
)

__all__ = [
    "GateRun",
    "await_approval",
    "decide",
    "handed_on",
    "prepare_gate",
    "run_gate",
    "run_pipeline",
    "train_best",
    "training_key",
    "training_request",
    "with_best",
    "with_gate",
]
