"""The score that a law predicted of a training, and the one that came."""

from __future__ import annotations

from raysweep.documents.json_numbers import Number
from raysweep.documents.mode import Mode
from raysweep.numeric.shown import show_number
from raysweep.outcome.record import Record


class Predicted(Record):
    """The score that a law predicted of a training, beside what came."""

    metric: str
    mode: Mode
    score: Number
    """Predicted of the config at the training's scale."""
    low: Number | None = None
    high: Number | None = None
    """The ends of 80 % of the probability of the score."""
    got: Number | None = None
    """The training's own; None where it reported none, or none that is a number."""

    @property
    def is_inside(self) -> bool | None:
        """True if it came inside the interval; None where that cannot be said."""
        if self.got is None or self.low is None or self.high is None:
            return None
        return self.low <= self.got <= self.high

    @property
    def miss(self) -> float | None:
        """The distance of the score from the predicted one; None: there was none."""
        return abs(self.got - self.score) if self.got is not None else None

    def __str__(self) -> str:
        got = "none" if self.got is None else show_number(self.got)
        score = show_number(self.score)
        return f"{self.metric} {got}, predicted {score} ({show_number(self.low)} to {show_number(self.high)})"
