"""Finds in any tree of this repository what a figure needs: modules have moved."""

from __future__ import annotations

import importlib
from typing import Any


class AbsentError(Exception):
    """This tree does not have it."""


def find(*places: str) -> Any:
    """The first of these, each `module:name`, that the tree has. Raises: AbsentError."""
    for place in places:
        module, _, name = place.partition(":")
        try:
            return getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError):
            continue
    raise AbsentError(f"{places[0]} is not in this tree")
