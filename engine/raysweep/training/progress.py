"""The progress of a training run, in the process that runs it."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from raysweep.outcome import ErrorInfo
from raysweep.training.usage import Meter
from raysweep.transfer.watched import Fall


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainProgress:
    """The progress with which `on_progress` is called after each report."""

    run_id: str
    reports: int
    """Reports of this attempt so far."""
    metrics: Mapping[str, Any]
    """The last report of rank 0."""
    checkpoint: str | None
    """The name of the last checkpoint's folder."""
    elapsed_s: float


@dataclass(slots=True, kw_only=True)
class Watch:
    """Collects reports and errors. Called from the thread that runs the controller."""

    run_id: str
    meter: Meter = field(default_factory=lambda: Meter({}, time.monotonic))
    on_progress: Callable[[TrainProgress], None] | None = None
    metrics: dict[str, Any] = field(default_factory=dict)
    reports: int = 0
    checkpoint: str | None = None
    error: ErrorInfo | None = None
    fall: Fall = field(default_factory=lambda: Fall(None))
    """Its reports beside what a law predicts of them."""
    _started_at: float = field(default_factory=time.monotonic)

    def ended(self) -> None:
        """The workers are gone."""
        self.meter.set_workers(0)

    def reported(self, metrics: Mapping[str, Any], checkpoint: str | None) -> None:
        """All workers have reported, and what came with it as a checkpoint counts; `metrics`: rank 0's."""
        self.metrics = dict(metrics)
        self.reports += 1
        self.checkpoint = checkpoint or self.checkpoint
        if self.on_progress is not None:
            self.on_progress(
                TrainProgress(
                    run_id=self.run_id,
                    reports=self.reports,
                    metrics=self.metrics,
                    checkpoint=self.checkpoint,
                    elapsed_s=time.monotonic() - self._started_at,
                )
            )

    def failed(self, error: ErrorInfo) -> None:
        """A worker or the group failed; the last such error is what a run that gives up ends with."""
        self.error = error
