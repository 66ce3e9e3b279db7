"""Ray Train's notices of nodes that are about to go. Ray 2.58 and newer have them.

On an older Ray no worker receives a notice: `HAS_NOTICES` is False, the state and the error here are classes
that Ray never uses, and a node that goes is one that failed.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any, Final


class _NeverState:
    """A state that the controller of an older Ray never has."""

    preemption_info: Any = None


class _NeverError(Exception):
    """An error that an older Ray never raises."""


def _find(module: str, name: str, missing: Any) -> Any:
    try:
        return getattr(import_module(f"ray.train.v2.{module}"), name)
    except (ImportError, AttributeError):
        return missing


PreemptionInfo: Final[Any] = _find("api.preemption", "PreemptionInfo", None)
PreemptionError: Final[Any] = _find("api.exceptions", "PreemptionError", _NeverError)
PreemptingState: Final[Any] = _find("_internal.execution.controller.state", "PreemptingState", _NeverState)
HAS_NOTICES: Final = PreemptionInfo is not None
"""True if workers can be told that they are about to be ended."""
