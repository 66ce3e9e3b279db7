"""A pipeline as one call: sweep, gate, train, judge. The flow, the command line and any DAG run these."""

from __future__ import annotations

from raysweep.pipeline.approval import await_approval
from raysweep.pipeline.decision import decide
from raysweep.pipeline.gate import GateRun, prepare_gate, run_gate
from raysweep.pipeline.judging import JudgeRun, await_release, is_released, prepare_judge, run_judge
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
    "JudgeRun",
    "await_approval",
    "await_release",
    "decide",
    "handed_on",
    "is_released",
    "prepare_gate",
    "prepare_judge",
    "run_gate",
    "run_judge",
    "run_pipeline",
    "train_best",
    "training_key",
    "training_request",
    "with_best",
    "with_gate",
]
