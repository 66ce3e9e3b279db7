"""The curve of the best score so far, over the trials that have ended."""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Final

from raysweep.outcome.record import Record

MAX_POINTS: Final = 400
"""The curve is thinned to at most this many points, and so are the dots around it."""

FINAL: Final = frozenset({"completed", "stopped", "failed", "cancelled"})
"""The states of a trial that has ended: `core.vocabulary.lifecycle` has them too, and brings the core."""

_Place = tuple[float, int, float, str]
Ending = tuple[float | None, str, float | None, str]
"""Of a trial: when it ended, its state, its score, its id."""


class Dot(Record):
    """One trial that ended with a score."""

    at: float
    """The time at which it ended, in UTC seconds."""
    ended: int
    """Its place in the order in which trials ended, from 1."""
    score: float
    trial_id: str


def best_so_far(endings: Iterable[Ending], *, is_max: bool) -> tuple[tuple[Dot, ...], tuple[Dot, ...]]:
    """The curve, a dot for each time that the best score was beaten; and a sample of all trials as dots.

    Failed trials are on neither, but count as ended.

    Args:
        endings: In any order; those without an end are left out.
        is_max: Whether the larger score is the better.
    """
    ended = [
        (at, state, score, name) for at, state, score, name in endings if at is not None and state in FINAL
    ]
    order = sorted(at for at, _, _, _ in ended)
    scored = sorted(
        (at, name, score)
        for at, state, score, name in ended
        if state != "failed" and score is not None and math.isfinite(score)
    )
    # Plain tuples until it is known which are shown: there may be ten thousand.
    points: list[_Place] = []
    places: list[_Place] = []
    place = 0
    for at, name, score in scored:
        # Trials may end at the same instant: each takes its own place.
        place = max(place + 1, bisect_left(order, at) + 1)
        places.append((at, place, score, name))
        if not points or (score > points[-1][2] if is_max else score < points[-1][2]):
            points.append(places[-1])
    return _dots(points), _dots(places)


def _dots(places: Sequence[_Place]) -> tuple[Dot, ...]:
    """Evenly at most MAX_POINTS of them, the first and the last included."""
    count = len(places)
    if count > MAX_POINTS:
        places = [places[round(index * (count - 1) / (MAX_POINTS - 1))] for index in range(MAX_POINTS)]
    return tuple(Dot(at=at, ended=ended, score=score, trial_id=name) for at, ended, score, name in places)
