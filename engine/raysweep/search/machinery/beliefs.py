"""Which trials come from the priors: the first, and a share of the others that decays.

After n trials about 1.4 times the square root of n are drawn so: 4 of the first 10, 9 of 50, 13 of 100. If
the priors are right, a search that learns has seen soon where to stay; if they are wrong, it has lost no
more trials than these.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from random import Random
from typing import Any, Final

from raysweep.search.machinery.cells import Leaf, LeafPath
from raysweep.space.priors import centre_of, draw_believed, is_believed

_RATE: Final = 1.4
KEPT: Final = 0.2
"""The share below which it does not decay in a search that learns nothing."""


def is_turn(number: int, least: float = 0.0) -> bool:
    """Whether a trial is drawn from the priors. `least`: the share below which that does not decay."""
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
