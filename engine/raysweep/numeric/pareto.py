"""The Pareto front: the points that no other point dominates."""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Mapping, Sequence
from operator import le
from typing import Any

Point = tuple[float, ...]
IsBeaten = Callable[[Point], bool]


def point_of(metrics: Mapping[str, Any], modes: Mapping[str, str]) -> Point | None:
    """The values of one report, each the better the smaller; None where one is not a finite number.

    Args:
        metrics: what was reported.
        modes: of each metric that counts, in their order, `min` or `max`.
    """
    found: list[float] = []
    for name, mode in modes.items():
        value = metrics.get(name)
        if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
            return None
        found.append(-float(value) if mode == "max" else float(value))
    return tuple(found)


def find_front(points: Sequence[Point]) -> list[int]:
    """The places of the points that no other dominates; equal ones are all on the front.

    Takes n log n comparisons of points with up to three numbers; of more, n times the size of the front.

    Args:
        points: of one length, each number the better the smaller it is.

    Returns the places in the order of their points, the smallest first number first; of equal ones as given.
    """
    order = sorted(range(len(points)), key=lambda place: (points[place], place))
    width = len(points[0]) if points else 0
    is_beaten = _stairs() if width <= 3 else _list()
    kept: list[int] = []
    last: Point | None = None
    for place in order:
        point = points[place]
        # None that comes later in this order dominates one that comes earlier, and what was kept is another
        # point that is no worse in the first number: the rest decides.
        if point == last or not is_beaten(point):
            kept.append(place)
            last = point
    return kept


def front_first(points: Sequence[Point]) -> list[int]:
    """The places of all points: those on the front, then the others in the order that they have."""
    front = find_front(points)
    return [*front, *sorted(set(range(len(points))).difference(front))]


def count_ahead(points: Sequence[Point], most: float = math.inf) -> int:
    """The number of points before the last one, sorted by fronts and in each of them by `spread_out`.

    Args:
        points: of one length, each number the better the smaller it is; at least one.
        most: where there are more than this, it is enough to say so: the count may end above it.
    """
    last, rest, ahead = len(points) - 1, list(range(len(points))), 0
    while ahead <= most:
        places = sorted(rest[place] for place in find_front([points[each] for each in rest]))
        if last in places:
            order = spread_out([points[place] for place in places])
            return ahead + order.index(len(places) - 1)
        ahead += len(places)
        rest = sorted(set(rest).difference(places))
    return ahead


def spread_out(points: Sequence[Point]) -> list[int]:
    """The places of points in an order of which each beginning is spread over them all (an epsilon net).

    First the least by its first number, then whichever is furthest from those before it; of equal ones, in
    the order that they have. Clarkson, "Nearest-Neighbor Searching and Metric Space Dimensions", 2005.
    """
    place = min(range(len(points)), key=lambda each: (points[each][0], each))
    order, distances = (
        [place],
        dict.fromkeys((each for each in range(len(points)) if each != place), math.inf),
    )
    while distances:
        newest = points[order[-1]]
        distances = {each: min(far, math.dist(points[each], newest)) for each, far in distances.items()}
        order.append(max(distances, key=lambda each: (distances[each], -each)))
        del distances[order[-1]]
    return order


def _stairs() -> IsBeaten:
    """Of points with up to three numbers, which come by the first: the front of the other two, in steps."""
    firsts: list[float] = []
    seconds: list[float] = []  # falling

    def is_beaten(point: Point) -> bool:
        first, second = (*point[1:], 0.0, 0.0)[:2]
        at = bisect_right(firsts, first)
        if at and seconds[at - 1] <= second:
            return True
        end = at
        while end < len(seconds) and seconds[end] >= second:
            end += 1
        firsts[at:end], seconds[at:end] = [first], [second]
        return False

    return is_beaten


def _list() -> IsBeaten:
    kept: list[Point] = []

    def is_beaten(point: Point) -> bool:
        if any(all(map(le, other, point)) for other in reversed(kept)):
            return True
        kept.append(point)
        return False

    return is_beaten
