"""The outcome of a config that ran several times."""

from __future__ import annotations

from typing import Any, Literal

from raysweep.outcome.record import Record


class ConfigOutcome(Record):
    """One config of a sweep with `repeat`, over its repeats."""

    number: int
    """Counts from 0 in the order in which the configs were drawn."""
    config: dict[str, Any]
    """Without the parameter that got the seed."""
    state: Literal["completed", "partial", "dropped", "failed"]
    """`completed`: all repeats did; `partial`: the sweep ended first; `dropped`: it lost the race;
    `failed`: a repeat failed."""
    mean: float
    """Of the scores of the repeats that completed."""
    std: float | None = None
    """Their standard deviation, as of a sample (n - 1); None for one repeat."""
    completed: int
    """The number of repeats that completed."""
    trials: tuple[int, ...]
    """The numbers of its trials."""
    best: int
    """The number of the trial with the best score among those that completed."""
