"""The rungs of ASHA and of schedulers like it: their times, their brackets, their cutoffs."""

from __future__ import annotations

import math
from collections.abc import Sequence
from hashlib import blake2b

from raysweep.errors import SpecError


def milestones(grace_period: float, max_t: float, reduction_factor: float, bracket: int) -> list[float]:
    """The times of the rungs of one of ASHA's brackets: `grace_period * reduction_factor ** (k + bracket)`.

    They end at `max_t`. The count is rounded as Ray Tune rounds it, which can leave out a rung that falls
    on `max_t` itself.
    """
    count = int(math.log(max_t / grace_period) / math.log(reduction_factor) - bracket + 1)
    return [grace_period * reduction_factor ** (k + bracket) for k in range(count)]


def draw_bracket(trial: int, seed: int, cumulative: Sequence[float]) -> int:
    """Return the index of a trial's bracket: a function of the seed and its number."""
    if len(cumulative) == 1:
        return 0
    digest = blake2b(f"asha:{seed}:{trial}".encode(), digest_size=8).digest()
    uniform = (int.from_bytes(digest, "big") >> 11) / 2**53
    return next(i for i, edge in enumerate(cumulative) if uniform < edge)


def softmax_cumulative(sizes: list[int]) -> list[float]:
    """Return the edges of brackets whose probability is the softmax of their numbers of rungs."""
    largest = max(sizes)
    weights = [math.exp(size - largest) for size in sizes]
    total = sum(weights)
    edges = [sum(weights[: i + 1]) / total for i in range(len(weights))]
    return [*edges[:-1], 1.0]


def percentile(ordered: list[float], fraction: float) -> float:
    """Return what `numpy.percentile(ordered, fraction * 100)` returns (method "linear"), to the last bit.

    Args:
        ordered: values in ascending order, without NaN; empty gives NaN.
        fraction: 0 to 1. It is a parameter, not a percentage, because numpy divides by 100 first.
    """
    if not ordered:
        return math.nan
    last = len(ordered) - 1
    position = last * fraction
    index = min(int(position), last)
    return between(ordered[index], ordered[min(index + 1, last)], position, last)


def between(low: float, high: float, position: float, last: int) -> float:
    """Interpolate as numpy does, to the last bit.

    Args:
        low: the value at the place below `position`.
        high: the value after it; at the end `low` again.
        position: a place among the ordered values, which need not be whole.
        last: the last place.
    """
    # From the last place on, numpy interpolates between the maximum and itself, from index -1.
    weight = position + 1 if position >= last else position - int(position)
    gap = high - low
    # numpy's _lerp comes from the nearer end; the two forms differ in the last bit.
    return high - gap * (1 - weight) if weight >= 0.5 else low + gap * weight


def check_asha(
    max_t: float, grace_period: float, reduction_factor: float, brackets: int, kind: str = "asha"
) -> None:
    """See that parameters of ASHA, or of a scheduler `kind` like it, fit each other.

    Raises:
        SpecError: names the one that does not.
    """
    under = f"scheduler.{kind}"
    if not grace_period > 0:
        raise SpecError(f"{under}.grace_period", f"{grace_period!r} is not positive", "use 1 or more")
    if not grace_period <= max_t < math.inf:
        problem = f"{max_t!r} is not a finite time from grace_period {grace_period!r} on"
        raise SpecError(f"{under}.max_t", problem, "raise max_t or lower grace_period")
    if not reduction_factor > 1:
        problem = f"{reduction_factor!r} is not greater than 1"
        raise SpecError(f"{under}.reduction_factor", problem, "use 3 or 4")
    if brackets < 1:
        raise SpecError(f"{under}.brackets", f"{brackets!r} is less than 1", "use 1")
