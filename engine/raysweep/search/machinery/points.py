"""Configs that a person wants to be run first, as the space has them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from random import Random
from typing import Any, Self, TypeGuard

import orjson

from raysweep.errors import SpecError
from raysweep.search.base import derived_seed
from raysweep.search.machinery.cells import LeafPath, codec
from raysweep.search.machinery.config_view import with_views
from raysweep.space.building import fill
from raysweep.space.domains import Choice, Const, Domain, Float, Integer, Normal, SampleFrom
from raysweep.space.parsed import Space
from raysweep.space.simplex import Simplex


class FirstPoints:
    """The spec's `points`. What one leaves out is drawn by the seed, constants and functions are filled in.

    Args:
        space: the parsed search space.
        points: configs, or parts of configs.
        seed: the seed of the sweep.

    Raises:
        SpecError: a point does not fit the space; names the point, the parameter and its value.
    """

    def __init__(self, space: Space, points: Sequence[Mapping[str, Any]], seed: int) -> None:
        self._space = with_views(space)
        self._values = [
            _fit(space, dict(point), number, Random(derived_seed(seed, number, -1)))
            for number, point in enumerate(points)
        ]

    @classmethod
    def none(cls) -> Self:
        """No points."""
        return cls(Space(leaves=(), template={}), (), 0)

    def __len__(self) -> int:
        return len(self._values)

    def build(self, number: int) -> dict[str, Any]:
        """Return the config of a point; functions of the user are called in there."""
        return self._space.build(self._values[number])


def _fit(space: Space, point: dict[str, Any], number: int, rng: Random) -> Mapping[LeafPath, Any]:
    """The point's values of all leaves: what it leaves out is drawn, until `where` holds."""
    values = space.find(lambda _: _drawn(space, point, number, rng))
    if values is None:
        raise _unsatisfied(space, point, number, _drawn(space, point, number, rng))
    return values


def _unsatisfied(
    space: Space, point: dict[str, Any], number: int, values: Mapping[LeafPath, Any]
) -> SpecError:
    """The error for a point, completed to these values, that `where` does not allow."""
    field = f"points[{number}]"
    if not all(_has(space, point, path) for path in values):
        return space.unsatisfied(field)
    config = fill(space.template, values)
    broken = next(relation.text for relation in space.where if not relation.holds(config))
    return SpecError(field, f"does not satisfy {broken!r}", "change the point, or where")


def _has(space: Space, point: dict[str, Any], path: LeafPath) -> bool:
    try:
        space.value_at(point, path)
    except (KeyError, IndexError, TypeError, ValueError):
        return False
    return True


def _drawn(space: Space, point: dict[str, Any], number: int, rng: Random) -> dict[LeafPath, Any]:
    values: dict[LeafPath, Any] = {}
    for path, domain in space.leaves:
        is_searched = not isinstance(domain, Const | SampleFrom)
        # Drawn in any case: what a point names does not change what the rest of it gets.
        drawn = domain.sample(rng) if is_searched else None
        if not space.is_reached(path, values):
            continue
        try:
            value = space.value_at(point, path)
        except (KeyError, IndexError, TypeError, ValueError) as error:
            if path in space.switches and isinstance(error, ValueError):
                raise _misfit(number, ".".join(path), str(error)) from None
            if is_searched:
                values[path] = drawn
            continue
        if isinstance(domain, Const):
            if value != domain.value:
                raise _misfit(number, ".".join(path), f"is fixed to {domain.value!r}, not {value!r}")
        else:
            try:
                values[path] = own_value(domain, value)
            except ValueError as error:
                raise _misfit(number, ".".join(path), str(error)) from None
    for name in _names(point):
        if not _is_known(space, name):
            raise _misfit(number, name, "is not in param_space")
    return space.reached(values)


def _is_known(space: Space, name: str) -> bool:
    for path, _ in space.leaves:
        known = ".".join(path)
        if name == known or (path not in space.switches and name.startswith(f"{known}.")):
            return True
    # A branch of which a point says nothing but that it is taken.
    return any(name == ".".join((*switch, branch)) for switch, branch in space.parents.values())


def _names(node: Any, name: str = "") -> Iterator[str]:
    """The dotted paths of all values in a point, places in lists as numbers."""
    if isinstance(node, dict | list) and node:
        items = node.items() if isinstance(node, dict) else enumerate(node)
        for key, item in items:
            yield from _names(item, f"{name}.{key}" if name else str(key))
    else:
        yield name


def _misfit(number: int, name: str, problem: str) -> SpecError:
    return SpecError(f"points[{number}].{name}", problem, "change the point, or param_space")


def own_value(domain: Domain, value: Any) -> Any:
    """A value as the domain has it: 3.0 as 3 where it is of whole numbers, 1 as 1.0 where that is a choice.

    Raises:
        ValueError: it is none of the domain's.
    """
    if isinstance(domain, Simplex):
        return domain.own(value)
    if isinstance(domain, Choice) and not holds(domain, value) and _is_number(value):
        same = [choice for choice in domain.values if _is_number(choice) and choice == value]
        value = same[0] if same else value
    if not holds(domain, value):
        raise ValueError(f"{value!r} is outside {domain!r}")
    if isinstance(domain, Integer):
        return int(value)
    return float(value) if isinstance(domain, Float | Normal) else value


def _is_number(value: Any) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def holds(domain: Domain, value: Any) -> bool:
    """True if a value is one of the domain's."""
    if isinstance(domain, Const | SampleFrom):
        return True
    if isinstance(domain, Simplex):
        return domain.holds(value)
    if isinstance(domain, Choice):
        known = {orjson.dumps(choice, option=orjson.OPT_SORT_KEYS) for choice in domain.values}
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS) in known
    if not _is_number(value):
        return False
    if isinstance(domain, Integer):
        return (
            value == int(value)
            and domain.low <= value <= domain.high
            and (value - domain.low) % domain.step == 0
        )
    if isinstance(domain, Float):
        is_inside = domain.lower <= value <= domain.upper
    else:
        is_inside = isinstance(domain, Normal)
    numbering = codec(domain)
    if not is_inside or numbering is None:
        return is_inside
    nearest: float = numbering.value(numbering.index(value))
    return abs(nearest - value) <= 1e-9 * max(1.0, abs(value))
