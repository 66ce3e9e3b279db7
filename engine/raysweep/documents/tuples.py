"""Tuples of a search space: Python has them, JSON does not.

A config is JSON wherever it is stored or sent, so a tuple is a list there. The spec keeps the tuples: as
tuples in Python, as `{"tuple": [1, 2]}` in JSON and YAML. From these a worker and an outcome restore the
value that the user wrote. Imports no spec: a worker starts faster without.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

MARK: Final = "tuple"
SCALARS: Final = frozenset({int, float, str, bool, type(None)})
"""The types of most values, which hold no others: they are passed over quickly."""
Tuples = Sequence[Sequence[Any]]
"""For each parameter with tuples: its path in a config, and those of its values that hold tuples, marked."""


def is_marked(value: Any) -> bool:
    """True if it is `{"tuple": [...]}`."""
    return isinstance(value, Mapping) and len(value) == 1 and isinstance(value.get(MARK), list | tuple)


def has_tuple(value: Any) -> bool:
    """True if a tuple is anywhere in a Python value."""
    if type(value) in SCALARS:
        return False
    if isinstance(value, Mapping):
        return any(map(has_tuple, value.values()))
    return isinstance(value, tuple) or (isinstance(value, list) and any(map(has_tuple, value)))


def marked(value: Any) -> Any:
    """A Python value as JSON, each tuple as `{"tuple": [...]}`."""
    if type(value) in SCALARS:
        return value
    if isinstance(value, Mapping):
        return {key: marked(item) for key, item in value.items()}
    if isinstance(value, tuple):
        return {MARK: [marked(item) for item in value]}
    return [marked(item) for item in value] if isinstance(value, list) else value


def unmarked(value: Any) -> Any:
    """The Python value of what `marked` gave."""
    if type(value) in SCALARS:
        return value
    if is_marked(value):
        return tuple(unmarked(item) for item in value[MARK])
    if isinstance(value, Mapping):
        return {key: unmarked(item) for key, item in value.items()}
    return [unmarked(item) for item in value] if isinstance(value, list) else value


def as_lists(value: Any) -> Any:
    """A value with a list for each tuple, marked or not: the form in which configs are stored."""
    if type(value) in SCALARS:
        return value
    if is_marked(value):
        return [as_lists(item) for item in value[MARK]]
    if isinstance(value, Mapping):
        return {key: as_lists(item) for key, item in value.items()}
    return [as_lists(item) for item in value] if isinstance(value, list | tuple) else value


def with_tuples(config: dict[str, Any], tuples: Tuples) -> dict[str, Any]:
    """A config as the trainable gets it: a copy, with the tuples that its spec has; itself without any."""
    for path, values in tuples:
        by_json = {_json(as_lists(value)): value for value in values}

        def restored(value: Any, by_json: dict[str, Any] = by_json) -> Any:
            found = by_json.get(_json(value))
            return value if found is None else unmarked(found)

        config = _changed(config, path, restored)
    return config


def _json(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


def _changed(node: Any, path: Sequence[str], change: Callable[[Any], Any]) -> Any:
    """A copy of a node, changed at a path; itself where it has nothing there."""
    if not path:
        return change(node)
    try:
        key = int(path[0]) if isinstance(node, list) else path[0]
        inner = node[key]
    except (LookupError, TypeError, ValueError):
        return node
    copied = node.copy()
    copied[key] = _changed(inner, path[1:], change)
    return copied
