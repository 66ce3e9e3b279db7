"""Configs as columns of a table."""

from __future__ import annotations

from collections import Counter
from typing import Any

from raysweep.documents.json_values import leaves


def config_columns(config: dict[str, Any]) -> dict[str, Any]:
    """A config by its columns, `config/<path>`; each parameter has one of its own.

    A `/` in a name is written `\\/` where a nested parameter has the same path: `a/b` beside `a: {b: …}`.
    """
    named = list(leaves(config, separator="/"))
    times = Counter(name for name, _ in named)
    if len(times) == len(named):
        return {f"config/{name}": value for name, value in named}
    escaped = (name for name, _ in leaves(_escaped(config), separator="/"))
    pairs = zip(named, escaped, strict=True)
    return {f"config/{name if times[name] == 1 else other}": value for (name, value), other in pairs}


def _escaped(node: Any) -> Any:
    if not isinstance(node, dict):
        return node
    return {str(key).replace("/", "\\/"): _escaped(item) for key, item in node.items()}
