"""The trials that come from the priors: the first, and a share of the others that decays.

After n trials about 1.4 times the square root of n are drawn so: 4 of the first 10, 9 of 50, 13 of 100. A
search that learns leaves them once its other trials are better than the first three by the priors: if these
are wrong, it has lost about three trials.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from random import Random
from statistics import median_low
from typing import Any, Final

from raysweep.search.machinery.cells import Leaf, LeafPath
from raysweep.space.priors import centre_of, draw_believed, is_believed

_RATE: Final = 1.4
KEPT: Final = 0.2
"""The share below which it does not decay in a search that learns nothing."""


JUDGED: Final = (0, 2, 4)
"""The trials by which a search that learns sees whether the priors hold: its first by them."""


def are_left(number: int, results: Mapping[int, tuple[float, float]]) -> bool:
    """True if the priors are given up when this trial is asked for.

    That is so once other trials are better in the median than the first ones by the priors. `results`: by the
    trials' numbers, how far each is from the constraints, and its value; less is better.
    """
    if number in JUDGED:
        return False
    believed = [results[each] for each in JUDGED if each in results]
    others = [result for each, result in results.items() if each not in JUDGED]
    return bool(believed and others) and median_low(others) < median_low(believed)


def is_turn(number: int, least: float = 0.0) -> bool:
    """True if a trial is drawn from the priors. `least`: the share below which that does not decay."""
    return number == 0 or _until(number + 1, least) > _until(number, least)


def _until(count: int, least: float) -> int:
    return math.ceil(max(_RATE * math.sqrt(count), least * count))


class Beliefs:
    """The priors of a space.

    Args:
        leaves: the searched leaves of the space.
    """

    def __init__(self, leaves: Iterable[Leaf]) -> None:
        self._leaves = [leaf for leaf in leaves if is_believed(leaf[1])]

    def __bool__(self) -> bool:
        return bool(self._leaves)

    def values(self, rng: Random, *, is_first: bool) -> dict[LeafPath, Any]:
        """Values of the leaves that have priors: those believed best, or drawn ones."""
        if is_first:
            return {path: centre_of(domain) for path, domain in self._leaves}
        return {path: draw_believed(domain, rng) for path, domain in self._leaves}
