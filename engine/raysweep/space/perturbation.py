"""Exploring a config: each parameter perturbed or drawn anew, and still one of its domain's values.

Jaderberg et al., "Population Based Training of Neural Networks", 2017, arXiv:1711.09846, as
`ray.tune.schedulers.pbt` does it: a number is multiplied by one of the factors, a choice moves to a
neighbour in its list. Other than with Ray, what leaves its domain comes back to its edge, a quantised
value to a multiple.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Mapping, Sequence
from random import Random
from typing import Any

from raysweep.space.domains import Choice, Domain, Float, Integer
from raysweep.space.parsed import parse
from raysweep.space.simplex import Simplex
from raysweep.space.units import within

Leaf = tuple[tuple[str, ...], Domain]
BoundedLeaf = tuple[tuple[str, ...], Float | Integer]


def mutable_leaves(param_space: Mapping[str, Any], names: Collection[str] | None = None) -> tuple[Leaf, ...]:
    """The leaves of a normalised space that can be explored: those that a search chooses.

    Not which branch is taken: a checkpoint of one is no beginning for another.

    Args:
        param_space: the space; functions in it are neither imported nor explored.
        names: dotted names, of leaves or of what holds them; None: all.

    Raises:
        KeyError: there is no such leaf; its argument is the name.
    """
    space = parse(_without_functions(param_space))
    leaves = tuple(leaf for leaf in space.searched if not space.is_switch(leaf[0]))
    if names is None:
        return leaves
    for name in names:
        if not any(_is_within(path, name) for path, _ in leaves):
            raise KeyError(name)
    return tuple(leaf for leaf in leaves if any(_is_within(leaf[0], name) for name in names))


def explore(
    config: Mapping[str, Any],
    leaves: Sequence[Leaf],
    seed: int,
    *,
    resample_probability: float,
    factors: Sequence[float],
) -> dict[str, Any]:
    """A copy of a config with each of the leaves perturbed, or drawn anew.

    A leaf that the config does not have stays away.

    Args:
        config: where it starts.
        leaves: what is explored, in this order.
        seed: all of its chance derives from this.
        resample_probability: how likely a leaf is drawn anew.
        factors: what numbers are multiplied by.
    """
    rng = Random(seed)
    explored: dict[str, Any] = copy.deepcopy(dict(config))
    for path, domain in leaves:
        try:
            holder = _holder(explored, path)
            key: Any = int(path[-1]) if isinstance(holder, list) else path[-1]
            value = holder[key]
        except (KeyError, IndexError, TypeError, ValueError):
            continue
        holder[key] = _explored(value, domain, rng, resample_probability, factors)
    return explored


def _explored(
    value: Any, domain: Domain, rng: Random, resample_probability: float, factors: Sequence[float]
) -> Any:
    # In the order of Ray's draws: whether anew, then what.
    is_anew = rng.random() < resample_probability
    if isinstance(domain, Simplex):
        return domain.sample(rng) if is_anew else _explored_shares(value, domain, rng, factors)
    if isinstance(domain, Choice):
        if is_anew or value not in domain.values:
            return copy.deepcopy(rng.choice(domain.values))
        place = domain.values.index(value) + rng.choice([-1, 1])
        return copy.deepcopy(domain.values[min(max(place, 0), len(domain.values) - 1)])
    if is_anew or isinstance(value, bool) or not isinstance(value, int | float):
        return domain.sample(rng)
    return within(domain, value * rng.choice(list(factors)))


def _explored_shares(value: Any, domain: Simplex, rng: Random, factors: Sequence[float]) -> dict[str, float]:
    """Each part multiplied by one of the factors, and all brought back to a sum of one."""
    try:
        before = domain.own(value)
    except ValueError:
        return domain.sample(rng)
    after = domain.nearest([share * rng.choice(list(factors)) for share in before.values()])
    if after != before or domain.step is None:
        return after
    # The step is wider than the factors: one step goes from one part to another.
    units = domain.units(before)
    giver = rng.choice([at for at, more in enumerate(units) if more])
    taker = rng.choice([at for at in range(len(units)) if at != giver])
    units[giver] -= 1
    units[taker] += 1
    return domain.value(units)


def bounded_leaves(
    param_space: Mapping[str, Any], names: Collection[str] | None = None
) -> tuple[BoundedLeaf, ...]:
    """Of `mutable_leaves` the numbers within bounds that every config has.

    Raises:
        KeyError: there is no such leaf, or one that is named is none of these; its argument is the name.
    """
    parents = parse(_without_functions(param_space)).parents
    found: list[BoundedLeaf] = []
    for path, domain in mutable_leaves(param_space, names):
        if isinstance(domain, Float | Integer) and path not in parents:
            found.append((path, domain))
        elif names is not None:
            raise KeyError(".".join(path))
    return tuple(found)


def value_at(config: Mapping[str, Any], path: Sequence[str]) -> Any:
    """The value of a config at a path. Raises LookupError, TypeError or ValueError where it has none."""
    holder = _holder(config, tuple(path))
    return holder[int(path[-1]) if isinstance(holder, list) else path[-1]]


def with_values(config: Mapping[str, Any], values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """A copy of a config with other values at some paths, all of which it has."""
    changed: dict[str, Any] = copy.deepcopy(dict(config))
    for path, value in values.items():
        holder = _holder(changed, path)
        holder[int(path[-1]) if isinstance(holder, list) else path[-1]] = value
    return changed


def _is_within(path: tuple[str, ...], name: str) -> bool:
    dotted = ".".join(path)
    return dotted == name or dotted.startswith(f"{name}.")


def _holder(config: Any, path: tuple[str, ...]) -> Any:
    for part in path[:-1]:
        config = config[int(part)] if isinstance(config, list) else config[part]
    return config


def _without_functions(value: Any) -> Any:
    """The space with constants in place of functions, which would be imported to be parsed."""
    if isinstance(value, Mapping):
        if len(value) == 1 and "sample_from" in value:
            return {"const": None}
        return {key: _without_functions(item) for key, item in value.items()}
    return [_without_functions(item) for item in value] if isinstance(value, list) else value
