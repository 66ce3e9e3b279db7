"""Values as places in the unit interval, and places as values: what sequences and CMA-ES compute with."""

from __future__ import annotations

import copy
import math
from statistics import NormalDist
from typing import Any

from raysweep.space.domains import Choice, Domain, Float, Integer, Normal

# The places of a normal distribution's values: its ends are infinitely far away.
_EDGE = 2.0**-53


def from_unit(domain: Domain, place: float) -> Any:
    """The value at `place`, from 0 to 1; places that are spread evenly give values as `Domain.sample` does.

    Raises:
        TypeError: the domain has no such order of its values.
    """
    if isinstance(domain, Choice):
        return copy.deepcopy(domain.values[_step(place, len(domain.values))])
    if isinstance(domain, Integer):
        return _integer(domain, place)
    if isinstance(domain, Float):
        return _float(domain, place)
    if isinstance(domain, Normal):
        value = NormalDist(domain.mean, domain.sd).inv_cdf(min(max(place, _EDGE), 1 - _EDGE))
        return value if domain.q is None else float(round(value / domain.q) * domain.q)
    raise TypeError(f"{domain!r} has no places")


def to_unit(domain: Float | Integer, value: float) -> float:
    """The place of a value; of a value that stands for several places, the one in their middle.

    Raises:
        ValueError, TypeError: the value is outside the domain.
    """
    if isinstance(domain, Integer):
        index, first, last = value // domain.step, domain.low // domain.step, domain.high // domain.step
        if not first <= index <= last:
            raise ValueError(f"{value!r} is outside {domain!r}")
        if domain.log:
            middle = (math.log(index) + math.log(index + 1)) / 2
            return _part(middle, math.log(first), math.log(last + 1))
        return (index - first + 0.5) / (last - first + 1)
    if not domain.lower <= value <= domain.upper:
        raise ValueError(f"{value!r} is outside {domain!r}")
    if domain.log:
        return _part(math.log(value), math.log(domain.lower), math.log(domain.upper))
    return _part(value, domain.lower, domain.upper)


def is_open(domain: Float | Integer) -> bool:
    """True if it has more than one value."""
    return domain.cardinality != 1 and domain.lower < domain.upper


def within(domain: Domain, value: float) -> Any:
    """The value of a numeric domain that is nearest to a number."""
    if isinstance(domain, Integer):
        multiple = round(value / domain.step) * domain.step
        return min(max(multiple, domain.low), domain.high)
    step = getattr(domain, "q", None)
    if step is not None:
        value = float(round(value / step) * step)
    if isinstance(domain, Float):
        value = min(max(value, domain.lower), domain.upper)
    return value


def _part(value: float, lower: float, upper: float) -> float:
    return min(max((value - lower) / (upper - lower), 0.0), 1.0)


def _step(place: float, count: int) -> int:
    return min(int(place * count), count - 1)


def _integer(domain: Integer, place: float) -> int:
    first, last = domain.low // domain.step, domain.high // domain.step
    if not domain.log:
        return (first + _step(place, last - first + 1)) * domain.step
    low, high = math.log(first), math.log(last + 1)
    index = math.floor(math.exp(low + place * (high - low)))
    return min(max(index, first), last) * domain.step


def _float(domain: Float, place: float) -> float:
    if domain.log:
        low, high = math.log(domain.lower), math.log(domain.upper)
        value = math.exp(low + place * (high - low))
    else:
        value = domain.lower + place * (domain.upper - domain.lower)
    if domain.q is not None:
        value = float(round(value / domain.q) * domain.q)
    return min(max(value, domain.lower), domain.upper)
