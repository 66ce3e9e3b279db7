"""A simplex: parts that sum to one, and the coordinates by which searches see them.

Inside, the parts are whole numbers of units that sum to `total`: of the step's, or of 1e-12. So the parts of
a config sum to one up to the rounding of floats, and none is below `least`.

The coordinates are those of stick-breaking: each says how much of what the parts before it have left goes to
its own part. They are scaled so that even coordinates are even shares (Dirichlet with all parameters 1). Each
point has a place of its own: `from_places(places(value))` is `value` again.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import pairwise
from random import Random
from typing import Any, Final

from raysweep.documents.json_values import unwrap_number
from raysweep.documents.validation import Path, Problem, show
from raysweep.space.vocabulary import VOCABULARY

FINE: Final = 10**12
"""The units of one without a step."""
LOOSE: Final = 1e-6
"""The most that the sum of given parts may be off one, and a part off its step; it is rounded then."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Simplex:
    """Parts from `least` to one that sum to one; with `step`, each is a multiple of it."""

    parts: tuple[str, ...]
    least: float = 0.0
    step: float | None = None

    @property
    def total(self) -> int:
        """The units of one."""
        return FINE if self.step is None else round(1 / self.step)

    @property
    def floor(self) -> int:
        """The least units of each part."""
        return math.ceil(Fraction(repr(self.least)) * self.total)

    @property
    def free(self) -> int:
        """The units that are left to be divided."""
        return self.total - self.floor * len(self.parts)

    @property
    def is_discrete(self) -> bool:
        return self.step is not None

    @property
    def cardinality(self) -> int | None:
        return None if self.step is None else self.size

    @property
    def size(self) -> int:
        """The number of points, of the step or of the finest units."""
        return _count(self.free, len(self.parts))

    def sample(self, rng: Random) -> dict[str, float]:
        """One point, all equally likely."""
        others = len(self.parts) - 1
        bars = sorted(rng.sample(range(self.free + others), others))
        edges = [-1, *bars, self.free + others]
        return self.value([right - left - 1 for left, right in pairwise(edges)])

    def value(self, units: Sequence[int]) -> dict[str, float]:
        """The point of these units above the floor, which sum to `free`."""
        total, floor = self.total, self.floor
        return {part: (floor + more) / total for part, more in zip(self.parts, units, strict=True)}

    def units(self, value: Any) -> list[int]:
        """The units of a point above the floor.

        Raises:
            ValueError: the value is no point of this simplex; says why.
        """
        shares = self._shares(value)
        units = [round(share * self.total) - self.floor for share in shares]
        if self.step is not None:
            for part, share in zip(self.parts, shares, strict=True):
                if abs(share * self.total - round(share * self.total)) > LOOSE * self.total:
                    raise ValueError(f"{part} is {share:g}, which is not a multiple of step {self.step:g}")
        return self._settled([max(more, 0) for more in units])

    def own(self, value: Any) -> dict[str, float]:
        """The point of this simplex that a value stands for. Raises ValueError, as `units` does."""
        return self.value(self.units(value))

    def holds(self, value: Any) -> bool:
        """True if a value is a point of this simplex, but for rounding."""
        try:
            self.units(value)
        except ValueError:
            return False
        return True

    def places(self, value: Any) -> list[float]:
        """The coordinates of a point, from 0 to 1, one less than parts. Raises ValueError."""
        found, rest = [], self.free
        for at, more in enumerate(self.units(value)[:-1]):
            later = len(self.parts) - 1 - at
            middle = (later + 1) / 2
            found.append(((rest - more + middle - 0.5) / (rest + middle)) ** later)
            rest -= more
        return found

    def from_places(self, places: Sequence[float]) -> dict[str, float]:
        """The point at these coordinates; even ones give points that are equally likely."""
        units, rest = [], self.free
        for at, place in enumerate(places):
            later = len(self.parts) - 1 - at
            middle = (later + 1) / 2
            kept = (rest + middle) * min(max(place, 0.0), 1.0) ** (1 / later)
            more = min(max(math.floor(rest + middle - kept), 0), rest)
            units.append(more)
            rest -= more
        return self.value([*units, rest])

    def index(self, value: Any) -> int:
        """The number of a point, from 0 to `size` - 1. Raises ValueError."""
        before, rest = 0, self.free
        for at, more in enumerate(self.units(value)[:-1]):
            parts = len(self.parts) - at
            before += _count(rest, parts) - _count(rest - more, parts)
            rest -= more
        return before

    def at(self, index: int) -> dict[str, float]:
        """The point of a number."""
        units, rest = [], self.free
        for parts in range(len(self.parts), 1, -1):
            all_points = _count(rest, parts)
            low, high = 0, rest
            while low < high:  # the most units of this part that so many points come before
                middle = (low + high + 1) // 2
                is_before = all_points - _count(rest - middle, parts) <= index
                low, high = (middle, high) if is_before else (low, middle - 1)
            index -= all_points - _count(rest - low, parts)
            units.append(low)
            rest -= low
        return self.value([*units, rest])

    def nearest(self, weights: Sequence[float]) -> dict[str, float]:
        """The point whose parts are nearly in the proportion of these weights, each 0 or more."""
        whole = sum(weights)
        least = self.floor / self.total
        over = [max(weight / whole - least, 0.0) for weight in weights] if whole > 0 else [1.0] * len(weights)
        scale = self.free / sum(over)
        exact = [each * scale for each in over]
        units = [math.floor(each) for each in exact]
        order = sorted(range(len(units)), key=lambda at: (units[at] - exact[at], at))
        for at in order[: max(self.free - sum(units), 0)]:
            units[at] += 1
        return self.value(self._settled(units))

    def _settled(self, units: list[int]) -> list[int]:
        """Units whose sum is `free`, but for rounding: the largest parts bear the difference."""
        while (missing := self.free - sum(units)) != 0:
            largest = max(range(len(units)), key=units.__getitem__)
            units[largest] += max(missing, -units[largest])
        return units

    def _shares(self, value: Any) -> list[float]:
        if not isinstance(value, Mapping):
            raise ValueError(f"{show(value)} is not a mapping of {', '.join(self.parts)} to their shares")
        shares: list[float] = []
        for part in self.parts:
            share = value.get(part)
            if isinstance(share, bool) or not isinstance(share, int | float) or not math.isfinite(share):
                what = f"{part} is {show(share)}" if part in value else f"it lacks {part}"
                raise ValueError(f"{what}: each of {', '.join(self.parts)} has a number")
            if share < self.least - LOOSE:
                raise ValueError(f"{part} is {share:g}, below the least share of {self.least:g}")
            shares.append(float(share))
        if unknown := [key for key in value if key not in self.parts]:
            raise ValueError(f"{unknown[0]!r} is none of its parts {', '.join(self.parts)}")
        if abs(sum(shares) - 1) > LOOSE:
            raise ValueError(f"its parts sum to {sum(shares):.7g}, not to 1")
        return shares


def _count(units: int, parts: int) -> int:
    """The number of ways to divide so many units between so many parts."""
    return math.comb(units + parts - 1, parts - 1) if units >= 0 else 0


def read_simplex(node: Mapping[Any, Any], path: Path) -> dict[str, Any]:
    """A simplex of a spec, checked, in its normal form. Raises Problem."""
    inside = (*path, "simplex")
    names = node["simplex"]
    if not isinstance(names, list | tuple) or not all(isinstance(name, str) and name for name in names):
        raise Problem(
            f"expected a list of the parts' names, got {show(names)}", 'write ["web", "code", "math"]', inside
        )
    if len(names) < 2:
        raise Problem(f"has {len(names)} parts, and needs two or more", "name another part", inside)
    if twice := [name for name in names if names.count(name) > 1]:
        raise Problem(f"names {twice[0]!r} twice", "give each part a name of its own", inside)
    for name in names:
        if name in VOCABULARY:
            raise Problem(f"{name!r} is a domain's name and cannot be a part's", "rename the part", inside)
    found: dict[str, Any] = {"simplex": list(names)}
    for key, what in (("min", 0), ("step", 1)):
        if node.get(key) is None:
            continue
        value = unwrap_number(node[key])
        is_number = isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value)
        if not is_number or not (0 <= value < 1) or (what and not value):
            bounds = "above 0 and below 1" if what else "0 or more, and below 1"
            raise Problem(f"expected a number {bounds}, got {show(value)}", f"leave {key} out", (*path, key))
        if value:
            found[key] = float(value)
    _check_room(found, path)
    return found


def _check_room(found: Mapping[str, Any], path: Path) -> None:
    count, least, step = len(found["simplex"]), found.get("min", 0.0), found.get("step")
    if Simplex(parts=tuple(found["simplex"]), least=least).free < 1:
        problem = f"{count} parts of at least {least:g} leave nothing of 1 to divide"
        raise Problem(problem, f"make min less than 1/{count}", (*path, "min"))
    if step is None:
        return
    whole = round(1 / step)
    if not math.isclose(whole * step, 1, rel_tol=1e-9):
        raise Problem(f"{step:g} does not divide 1", f"write {1 / whole:.12g}", (*path, "step"))
    if simplex_of(found).free < 1:
        problem = f"multiples of {step:g} leave {count} parts of at least {least:g} nothing to divide"
        raise Problem(problem, "make step or min smaller", (*path, "step"))


def simplex_of(node: Mapping[str, Any]) -> Simplex:
    """The domain of a normalised node."""
    return Simplex(parts=tuple(node["simplex"]), least=node.get("min", 0.0), step=node.get("step"))
