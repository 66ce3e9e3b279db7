"""The space that a population of Ray Tune's explores, and where all of its trials begin.

In Tune, `param_space` may give a parameter of `hyperparam_mutations` (`hyperparam_bounds`) a constant, with
which all trials begin, or leave it out: it is then drawn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from raysweep.documents.code.ray_objects import is_tune_domain, kind_of
from raysweep.from_tune.space import Own, holds_grid
from raysweep.space.parsed import is_domain

_MISSING: Final = object()
_ToDomain = Callable[[Any, Any], Any]


class Opened(NamedTuple):
    """A space in which what is explored has a domain; `start`: what the tuner's space fixes of it."""

    space: dict[str, Any]
    start: dict[str, Any]


def open_space(scheduler: Any, param_space: Mapping[str, Any]) -> Opened:
    """The tuner's space for its scheduler; as it is where none explores, or where it has a grid.

    Each point of a grid would begin with what is fixed, and points of a sweep come beside its grid.
    """
    kind = kind_of(scheduler)
    if kind not in ("PopulationBasedTraining", "PB2") or holds_grid(param_space):
        return Opened(dict(param_space), {})
    if kind == "PB2":
        return _open(scheduler._hyperparam_bounds, param_space, _between)
    return _open(scheduler._hyperparam_mutations, param_space, _mutated)


def _open(explored: Mapping[str, Any], space: Mapping[str, Any], to_domain: _ToDomain) -> Opened:
    opened, start = dict(space), {}
    for name, said in explored.items():
        there = space.get(name, _MISSING)
        if isinstance(said, Mapping) and (there is _MISSING or _is_nested(there)):
            opened[name], below = _open(said, {} if there is _MISSING else there, to_domain)
            if below:
                start[name] = below
        elif not isinstance(said, Mapping) and not _has_domain(there):
            domain = to_domain(said, there)
            if domain is _MISSING:
                continue
            opened[name] = domain
            if there is not _MISSING:
                start[name] = there
    return Opened(opened, start)


def _is_nested(there: Any) -> bool:
    return isinstance(there, Mapping) and not is_domain(there)


def _has_domain(there: Any) -> bool:
    return isinstance(there, Mapping) or is_tune_domain(there)


def _mutated(said: Any, _: Any) -> Any:
    """A domain of Tune's, or a list of values; a function is none."""
    if isinstance(said, list | tuple):
        return Own({"choice": list(said)})
    return said if is_tune_domain(said) else _MISSING


def _between(bounds: Any, there: Any) -> Any:
    """PB2 gives whole numbers where the config has one."""
    low, high = bounds
    if isinstance(there, int) and not isinstance(there, bool):
        return Own({"randint": [low, high + 1]})
    return Own({"uniform": [low, high]})
