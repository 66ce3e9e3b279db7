"""Configs made of a parsed space and the values of its leaves; functions of the user are called in there."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from raysweep.documents.code import user_code
from raysweep.documents.json_values import plain
from raysweep.documents.tuples import Tuples, with_tuples
from raysweep.documents.validation import Problem, dotted
from raysweep.errors import SampleFromError
from raysweep.space.branches import Branches
from raysweep.space.domains import Const, SampleFrom

_ATOMS: Final = frozenset({float, int, str, bool, type(None)})


def fill(template: Mapping[str, Any], values: Mapping[tuple[str, ...], Any]) -> dict[str, Any]:
    """The config without what functions make. Raises KeyError for a missing leaf."""
    config: dict[str, Any] = _filled(template, (), values, [])
    return config


def build(
    template: Mapping[str, Any], values: Mapping[tuple[str, ...], Any], tuples: Tuples = ()
) -> dict[str, Any]:
    """The whole config: see `Space.build`."""
    waiting: list[tuple[tuple[str, ...], SampleFrom]] = []
    config: dict[str, Any] = _filled(template, (), values, waiting)
    while waiting:
        later = [each for each in waiting if not _resolve_into(config, *each, tuples)]
        if len(later) == len(waiting):
            path, domain = later[0]
            _resolve_into(config, path, domain, tuples, is_last_chance=True)
        waiting = later
    return config


def _filled(
    node: Any,
    path: tuple[str, ...],
    values: Mapping[tuple[str, ...], Any],
    functions: list[tuple[tuple[str, ...], SampleFrom]],
) -> Any:
    if isinstance(node, dict):
        count = len(functions)
        filled = {key: _filled(item, (*path, key), values, functions) for key, item in node.items()}
        if len(functions) == count:
            return filled
        return {key: item for key, item in filled.items() if item is not _LATER}
    if isinstance(node, list):
        return [_filled(item, (*path, str(n)), values, functions) for n, item in enumerate(node)]
    if isinstance(node, Branches):
        name = values[path]
        return _filled({name: node.nodes[name]}, path, values, functions)
    if isinstance(node, Const):
        return _copied(values.get(path, node.value))
    if isinstance(node, SampleFrom) and path not in values:
        functions.append((path, node))
        return _LATER
    return _copied(values[path])


def _copied(value: Any) -> Any:
    return value if type(value) in _ATOMS else copy.deepcopy(value)


class _Later:
    """Stands where a function's value will come."""


_LATER = _Later()


def _place(config: Any, path: tuple[str, ...], value: Any) -> None:
    for part in path[:-1]:
        config = config[int(part)] if isinstance(config, list) else config[part]
    config[int(path[-1]) if isinstance(config, list) else path[-1]] = value


def _resolve_into(
    config: dict[str, Any],
    path: tuple[str, ...],
    domain: SampleFrom,
    tuples: Tuples,
    is_last_chance: bool = False,
) -> bool:
    """Put the function's value into the config; False where it asked for a key that is not there yet."""
    field = f"param_space.{dotted(path)}"
    try:
        value = plain(user_code.call(domain.resolve, with_tuples(copy.deepcopy(config), tuples)))
    except KeyError as error:
        if is_last_chance:
            what = f"sample_from found no {error} in the config"
            raise SampleFromError(field, what, f"it may use {sorted(config)}", _drawn(config)) from error
        return False
    except Problem as problem:
        what = f"sample_from returned: {problem}"
        raise SampleFromError(field, what, problem.issues[0].fix, _drawn(config)) from None
    except Exception as error:
        what = f"sample_from raised {type(error).__name__}: {error}"
        fix = "fix the function; it is given the config of all other parameters"
        raise SampleFromError(field, what, fix, _drawn(config)) from error
    _place(config, path, value)
    return True


def _drawn(config: Any) -> Any:
    """The config as far as it is there: what is missing in a list keeps its place, as None."""
    if isinstance(config, dict):
        return {key: _drawn(item) for key, item in config.items()}
    if isinstance(config, list):
        return [None if isinstance(item, _Later) else _drawn(item) for item in config]
    return config
