"""What a gate decided, and its evidence."""

from __future__ import annotations

from typing import Any

from raysweep.documents.json_numbers import Number
from raysweep.outcome.record import Record


class Confirmed(Record):
    """One config as a gate ran it: with several seeds, at full budget."""

    config: dict[str, Any]
    trial_id: str = ""
    """The trial of the sweep that it comes from; empty for a champion."""
    sweep_id: str = ""
    """The sweep that found it."""
    scores: tuple[Number | None, ...] = ()
    """By seed; None where that trial failed."""
    mean: Number | None = None
    spread: Number | None = None
    """The standard deviation over the seeds; 0 for one."""
    n: int = 0
    """How many seeds gave a score."""
    violated: tuple[str, ...] = ()
    """The constraints that it did not satisfy under some seed: it is not promoted."""
    checkpoint_uri: str | None = None


class GateOutcome(Record):
    """Whether a night's best config is good enough for the full-scale training, and the evidence."""

    promoted: bool
    why: str
    """`champion 0.739 ± 0.001; not promoted: +0.0012 < 0.002`"""
    candidates: tuple[Confirmed, ...] = ()
    """The best of the night, run again; the best first."""
    champion: Confirmed | None = None
    """The champion of earlier nights, run beside them; None where there was none."""
    improvement: Number | None = None
    """Of the best candidate over the champion; positive is better."""
    min_improvement: Number = 0.0
    test: str = "paired"
    standard_error: Number | None = None
    """Of the improvement, in a paired test."""
    lower_bound: Number | None = None
    """The improvement is above this with 90 % confidence, in a paired test, all candidates considered."""
    common_seeds: int | None = None
    """How many seeds the improvement comes from; 0: from means over different ones."""
    notes: tuple[str, ...] = ()
    """What a person should know besides: a champion that does not run any more."""
    gate_id: str = ""
    """Which of the sweep's gates."""
    sweep_id: str = ""
    """The sweep that ran them again."""
    at: float = 0.0
    """When it was decided, in UTC seconds."""
    format_version: int = 1

    @property
    def best(self) -> Confirmed | None:
        """The best candidate."""
        return self.candidates[0] if self.candidates else None
