"""The parameters of a space as coordinates: numbers from 0 to 1, categories, and those that are copied."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from raysweep.documents.validation import dotted, show
from raysweep.errors import SpecError
from raysweep.space.branches import LeafPath
from raysweep.space.domains import Choice, Domain, Float, Integer, Normal
from raysweep.space.parsed import Space
from raysweep.space.units import within
from raysweep.transfer.trials import as_float

FEWEST_NUMBERS: Final = 3
"""A choice between fewer numbers is a choice between categories."""
LOG_RATIO: Final = 8.0
"""A choice between positive numbers this far apart is modelled by their logarithms."""
NORMAL_WIDTH: Final = 6.0
"""Standard deviations of a normal domain that are its range from 0 to 1."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Number:
    """A parameter that is a number, on the scale in which it is modelled.

    `low`, `high`: the bounds on that scale, which are the coordinates 0 and 1. `is_bounded`: an optimum
    beyond them is outside the space.
    """

    path: LeafPath
    domain: Domain
    low: float
    high: float
    is_log: bool
    is_bounded: bool = True

    @property
    def name(self) -> str:
        """As it is written: `optimizer.lr`."""
        return dotted(self.path)

    @property
    def width(self) -> float:
        """From the lower to the upper bound, in logarithms or units."""
        return self.high - self.low

    def coordinate(self, value: Any, field: str) -> float:
        """The coordinate of a value. Raises SpecError."""
        found = as_float(value)
        if found is None or not math.isfinite(found) or (self.is_log and found <= 0):
            raise SpecError(field, f"{show(value)} is not in its domain", "give the value that the trial had")
        at = math.log(found) if self.is_log else found
        return (at - self.low) / self.width

    def raw(self, coordinate: float) -> float:
        """The number at a coordinate, whether or not the domain has it."""
        at = self.low + coordinate * self.width
        return math.exp(min(at, 700.0)) if self.is_log else at

    def value(self, coordinate: float) -> Any:
        """The value of the domain that is nearest to a coordinate."""
        if isinstance(self.domain, Choice):
            values = self.domain.values
            return min(values, key=lambda value: abs(self.coordinate(value, self.name) - coordinate))
        return within(self.domain, self.raw(coordinate))


@dataclass(frozen=True, slots=True, kw_only=True)
class Category:
    """A parameter that is one of several values without an order, or a choice between branches."""

    path: LeafPath
    values: tuple[Any, ...]

    @property
    def name(self) -> str:
        """As it is written."""
        return dotted(self.path)

    def place(self, value: Any, field: str) -> int:
        """The place of a value among the choices. Raises SpecError."""
        for place, known in enumerate(self.values):
            if known == value and isinstance(known, bool) is isinstance(value, bool):
                return place
        raise SpecError(
            field, f"{show(value)} is not one of {show(list(self.values))}", "add it to the space"
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Parameters:
    """The parameters of a space by how a law treats them; `copied`: it takes the best trial's."""

    space: Space
    numbers: tuple[Number, ...]
    categories: tuple[Category, ...]
    copied: tuple[LeafPath, ...]

    def read(self, config: Mapping[str, Any], field: str) -> Mapping[LeafPath, Any]:
        """The values of a config by path. Raises SpecError."""
        try:
            return self.space.read(config)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            said = f"has no {error}" if isinstance(error, KeyError) else str(error)
            raise SpecError(field, said, "give a value for every parameter of the space") from None


def parameters_of(space: Space) -> Parameters:
    """The parameters of a parsed space; those with a single value are copied."""
    numbers: list[Number] = []
    categories: list[Category] = []
    copied: list[LeafPath] = []
    for path, domain in space.searched:
        if (number := None if space.is_switch(path) else _number(path, domain)) is not None:
            numbers.append(number)
        elif isinstance(domain, Choice) and len(domain.values) > 1:
            categories.append(Category(path=path, values=domain.values))
        else:
            copied.append(path)
    return Parameters(space=space, numbers=tuple(numbers), categories=tuple(categories), copied=tuple(copied))


def _number(path: LeafPath, domain: Domain) -> Number | None:
    if isinstance(domain, Choice):
        return _choice(path, domain)
    if isinstance(domain, Normal):
        reach = NORMAL_WIDTH / 2 * domain.sd
        low, high = domain.mean - reach, domain.mean + reach
        return Number(path=path, domain=domain, low=low, high=high, is_log=False, is_bounded=False)
    if isinstance(domain, Float):
        return _between(path, domain, domain.lower, domain.upper, is_log=domain.log)
    if isinstance(domain, Integer):
        return _between(path, domain, domain.low, domain.high, is_log=domain.log)
    return None


def _choice(path: LeafPath, domain: Choice) -> Number | None:
    values = domain.values
    are_numbers = all(isinstance(each, int | float) and not isinstance(each, bool) for each in values)
    if not are_numbers or len(values) < FEWEST_NUMBERS:
        return None
    low, high = min(values), max(values)
    return _between(path, domain, low, high, is_log=low > 0 and high / low >= LOG_RATIO)


def _between(path: LeafPath, domain: Domain, low: float, high: float, *, is_log: bool) -> Number | None:
    if low >= high:
        return None
    ends = (math.log(low), math.log(high)) if is_log else (float(low), float(high))
    return Number(path=path, domain=domain, low=ends[0], high=ends[1], is_log=is_log)
