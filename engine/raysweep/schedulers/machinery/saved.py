"""Checks that schedulers share when they restore a saved state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from raysweep.errors import SpecError


def check_parameters(kind: str, saved: Mapping[str, Any], own: Mapping[str, Any]) -> None:
    """See that a saved state is one of a scheduler with the same parameters.

    Raises:
        SpecError: names the parameter, and both values.
    """
    for name, value in own.items():
        if saved.get(name) != value:
            raise SpecError(
                f"scheduler.{kind}.{name}",
                f"the saved state has {saved.get(name)!r}, the spec has {value!r}",
                "resume with the spec that the sweep was started with",
            )
