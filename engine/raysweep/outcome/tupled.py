"""Configs in records with the tuples that the search space has."""

from __future__ import annotations

from typing import Any

from raysweep.documents.tuples import Tuples, with_tuples


def with_tuples_in(value: Any, tuples: Tuples) -> Any:
    """A record, or several, with tuples in their configs."""
    if isinstance(value, tuple):
        return tuple(with_tuples_in(each, tuples) for each in value)
    if value is None:
        return None
    update: dict[str, Any] = {
        name: with_tuples_in(held, tuples)
        for name in ("attempts", "schedule")
        if (held := getattr(value, name, ()))
    }
    if value.config:
        update["config"] = with_tuples(value.config, tuples)
    return value.model_copy(update=update)
