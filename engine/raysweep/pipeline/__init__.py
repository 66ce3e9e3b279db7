"""A night as one thing: sweep, gate, train. The flow, the command line and any DAG run these functions."""

from __future__ import annotations

from raysweep.pipeline.decision import decide
from raysweep.pipeline.gate import run_gate
from raysweep.pipeline.night import run_pipeline, train_best, with_gate

__all__ = ["decide", "run_gate", "run_pipeline", "train_best", "with_gate"]
