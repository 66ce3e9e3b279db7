"""The domains of a search space: what one parameter can be, and how a value is drawn.

Values, bounds and quantisation follow `ray.tune.search.sample` of Ray 2.60; the random numbers come from
`random.Random`, so a draw depends on the generator that is passed in and on nothing else.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from inspect import signature
from random import Random
from typing import Any, Protocol, runtime_checkable


@runtime_checkable
class Domain(Protocol):
    """The values of one parameter."""

    @property
    def is_discrete(self) -> bool:
        """True where the values can be counted off one by one."""

    @property
    def cardinality(self) -> int | None:
        """The number of values; None where that is unbounded or not known."""

    def sample(self, rng: Random) -> Any:
        """One value, drawn with `rng`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class NumberPrior:
    """A belief about a number: a normal distribution in the domain's own scale, cut off at its bounds.

    `middle`: the value that is believed best. `sigma`: the standard deviation, of the natural logarithm in a
    domain whose logarithm is uniform.
    """

    middle: float
    sigma: float


def grid_index(bound: float, q: float, *, is_lower: bool) -> int:
    """The multiple of `q` at `bound`, rounded inwards unless it is one already, up to rounding errors."""
    scaled = bound / q
    near = round(scaled)
    if math.isclose(scaled, near):
        return near
    return math.ceil(scaled) if is_lower else math.floor(scaled)


@dataclass(frozen=True, slots=True, kw_only=True)
class Float:
    """A real number from `lower` to `upper`; with `q`, a multiple of `q` and both bounds included."""

    lower: float
    upper: float
    log: bool = False
    q: float | None = None
    prior: NumberPrior | None = field(default=None, repr=False)

    @property
    def is_discrete(self) -> bool:
        return self.q is not None

    @property
    def cardinality(self) -> int | None:
        if self.q is None:
            return None
        first = grid_index(self.lower, self.q, is_lower=True)
        return grid_index(self.upper, self.q, is_lower=False) - first + 1

    def sample(self, rng: Random) -> float:
        if self.log:
            value = math.exp(rng.uniform(math.log(self.lower), math.log(self.upper)))
        else:
            value = rng.uniform(self.lower, self.upper)
        if self.q is not None:
            value = float(round(value / self.q) * self.q)
        # exp(log(x)) and k * q miss the bounds by a rounding error.
        return min(max(value, self.lower), self.upper)


@dataclass(frozen=True, slots=True, kw_only=True)
class Integer:
    """A whole number; `lower` is included, `upper` is not, except with a `q` other than 1.

    `q` makes it a multiple of `q` between the bounds, both included; every multiple is equally likely
    (or log-uniformly, by its index). With `q=1` the upper bound stays excluded, as in Ray Tune.
    """

    lower: int
    upper: int
    log: bool = False
    q: int | None = None
    prior: NumberPrior | None = field(default=None, repr=False)

    @property
    def step(self) -> int:
        """The distance between two values."""
        return self.q or 1

    @property
    def low(self) -> int:
        """The smallest value."""
        return -(-self.lower // self.step) * self.step

    @property
    def high(self) -> int:
        """The largest value (included)."""
        last = self.upper - 1 if self.step == 1 else self.upper
        return last // self.step * self.step

    @property
    def is_discrete(self) -> bool:
        return True

    @property
    def cardinality(self) -> int:
        return (self.high - self.low) // self.step + 1

    def sample(self, rng: Random) -> int:
        first, last = self.low // self.step, self.high // self.step
        if not self.log:
            return rng.randint(first, last) * self.step
        index = math.floor(math.exp(rng.uniform(math.log(first), math.log(last + 1))))
        # exp(log(x)) misses the bounds by a rounding error.
        return min(max(index, first), last) * self.step


@dataclass(frozen=True, slots=True, kw_only=True)
class Normal:
    """A normally distributed number, rounded to a multiple of `q` if given."""

    mean: float = 0.0
    sd: float = 1.0
    q: float | None = None

    @property
    def is_discrete(self) -> bool:
        return self.q is not None

    @property
    def cardinality(self) -> None:
        return None

    def sample(self, rng: Random) -> float:
        value = rng.normalvariate(self.mean, self.sd)
        return value if self.q is None else float(round(value / self.q) * self.q)


@dataclass(frozen=True, slots=True, kw_only=True)
class Choice:
    """One of the values, each place in the list equally likely."""

    values: tuple[Any, ...]
    prior: tuple[float, ...] | None = field(default=None, repr=False)
    """The belief for each value that it is the best; None: no belief."""

    @property
    def is_discrete(self) -> bool:
        return True

    @property
    def cardinality(self) -> int:
        return len(self.values)

    def sample(self, rng: Random) -> Any:
        return copy.deepcopy(self.values[rng.randrange(len(self.values))])


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid(Choice):
    """All of the values, one after the other. `sample` draws one, for searches that do not walk grids."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Const:
    """Always the same value."""

    value: Any

    @property
    def is_discrete(self) -> bool:
        return True

    @property
    def cardinality(self) -> int:
        return 1

    def sample(self, rng: Random) -> Any:
        return copy.deepcopy(self.value)


@dataclass(frozen=True, slots=True, kw_only=True)
class SampleFrom:
    """A value that a function of the user makes from the rest of the config; its randomness is its own."""

    function: Callable[..., Any]

    @property
    def is_discrete(self) -> bool:
        return False

    @property
    def cardinality(self) -> None:
        return None

    def resolve(self, config: Mapping[str, Any]) -> Any:
        """The function's value; it is called with the config, or with nothing if it takes nothing."""
        try:
            signature(self.function).bind({})
        except TypeError:
            return self.function()
        return self.function(config)

    def sample(self, rng: Random) -> Any:
        """The function's value for an empty config: use `Space.build`, which knows the config."""
        return self.resolve({})
