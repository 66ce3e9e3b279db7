"""Ray's label selectors: which nodes have the labels that are asked for."""

from __future__ import annotations

from collections.abc import Mapping


def has_labels(labels: Mapping[str, str], selector: Mapping[str, str]) -> bool:
    """True if a node with these labels is meant: by a value, `!value`, `in(a,b)` or `!in(a,b)`."""
    return all(_matches(labels.get(key), wanted) for key, wanted in selector.items())


def _matches(value: str | None, wanted: str) -> bool:
    if wanted.startswith("!"):
        return not _matches(value, wanted[1:])
    if wanted.startswith("in(") and wanted.endswith(")"):
        return value in {part.strip() for part in wanted[3:-1].split(",")}
    return value == wanted
