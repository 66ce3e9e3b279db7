"""`Usage`: what a sweep or a training held of the cluster."""

from __future__ import annotations

from raysweep.outcome.record import Record


class Usage(Record):
    """The use of a sweep: workers count from their start to their end, idle or not."""

    cpu_hours: float = 0.0
    gpu_hours: float = 0.0
    cost: float = 0.0
    """By the prices of `stop.cost_per_hour`."""
    active_s: float = 0.0
    """The time that its controllers were at work, in seconds."""
