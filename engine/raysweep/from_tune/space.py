"""A tuner's space in raysweep's vocabulary: only objects of Tune's, and `{"grid_search": […]}`, are domains.

All else is a constant, also where it looks like a domain of raysweep's.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from raysweep.documents.code.ray_objects import domain_to_json, is_tune_domain
from raysweep.documents.validation import Path, Problem
from raysweep.from_tune.objects import Objects, to_texts
from raysweep.space.parsed import has_domain, normalise
from raysweep.space.vocabulary import LISTS, WORDS


class Own(dict[str, Any]):
    """A domain in raysweep's vocabulary among those of Tune's."""


def space_of(space: Mapping[Any, Any], objects: Objects) -> dict[str, Any]:
    """The space; `objects` receives those of its values that JSON cannot hold. Raises Problem."""
    return {_key(key, objects): _read(value, objects, (str(key),)) for key, value in space.items()}


def holds_grid(value: Any) -> bool:
    """True if a value of Tune's space is walked, or a part of it."""
    if is_tune_domain(value):
        return "Grid" in {base.__name__ for base in type(value.get_sampler()).__mro__}
    return _is_grid(value) or any(map(holds_grid, _parts(value)))


def _key(key: Any, objects: Objects) -> str:
    """A parameter's name, unless that is a domain's, or no text."""
    return key if isinstance(key, str) and key not in WORDS else objects.text_of(key)


def _read(value: Any, objects: Objects, path: Path) -> Any:
    if is_tune_domain(value):
        return _domain(domain_to_json(value, path), objects, path)
    if isinstance(value, Own) or _is_grid(value):
        return _domain(value, objects, path)
    if not _holds_domain(value):
        return _constant(to_texts(value, objects))
    if isinstance(value, Mapping):
        return {_key(key, objects): _read(item, objects, (*path, str(key))) for key, item in value.items()}
    return [_read(item, objects, (*path, number)) for number, item in enumerate(value)]


def _domain(node: Mapping[str, Any], objects: Objects, path: Path) -> dict[str, Any]:
    ((word, argument),) = node.items()
    if word not in LISTS or isinstance(argument, Mapping):
        return dict(node)
    values = list(argument)
    if any(map(_holds_domain, values)):
        raise Problem(
            "a value holds a domain of its own",
            "give it its own parameter, and let the trainable choose which it uses",
            path,
        )
    return {word: [to_texts(value, objects) for value in values]}


def _constant(value: Any) -> Any:
    """The constant; as `{"const": …}` where it would be read as something else."""
    try:
        normal = normalise({"x": value})["x"]
        if normal == value and not has_domain(normal):
            return value
    except Problem:
        pass
    return {"const": value}


def _is_grid(value: Any) -> bool:
    return isinstance(value, Mapping) and list(value) == ["grid_search"]


def _holds_domain(value: Any) -> bool:
    is_one = is_tune_domain(value) or isinstance(value, Own) or _is_grid(value)
    return is_one or any(map(_holds_domain, _parts(value)))


def _parts(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value.values()
    elif isinstance(value, list | tuple):
        yield from value
