"""A percentile of values that come one at a time, in O(log n) for each."""

from __future__ import annotations

import math
from collections.abc import Iterable
from heapq import heappop, heappush

from raysweep.schedulers.machinery.rungs import between


class RunningPercentile:
    """The result of `numpy.percentile` for all values so far, at one fraction; NaN values are left out.

    Two heaps hold the values: `low` those up to the place of the percentile, `high` the rest. A value is
    added in O(log n), and the percentile read in O(1). A sorted list would move half of itself for each.

    Args:
        fraction: 0 to 1.
        values: what has come before.
    """

    __slots__ = ("_fraction", "_high", "_low")

    def __init__(self, fraction: float, values: Iterable[float] = ()) -> None:
        self._fraction = fraction
        ordered = sorted(value for value in values if value == value)
        count = self._low_count(len(ordered))
        self._low = [-value for value in reversed(ordered[:count])]
        self._high = ordered[count:]

    def add(self, value: float) -> None:
        """Take one more value."""
        if value != value:
            return
        low, high = self._low, self._high
        if low and value < -low[0]:
            heappush(low, -value)
        else:
            heappush(high, value)
        count = self._low_count(len(low) + len(high))
        while len(low) < count:
            heappush(low, -heappop(high))
        while len(low) > count:
            heappush(high, -heappop(low))

    def value(self) -> float:
        """The percentile (method "linear", to the last bit); NaN where there are no values."""
        if not self._low:
            return math.nan
        below = -self._low[0]
        last = len(self._low) + len(self._high) - 1
        return between(below, self._high[0] if self._high else below, last * self._fraction, last)

    def _low_count(self, values: int) -> int:
        last = values - 1
        return min(int(last * self._fraction), last) + 1
