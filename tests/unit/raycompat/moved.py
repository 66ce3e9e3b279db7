"""How a contract says what has moved."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def check_uses(function: Any, *texts: str) -> None:
    """Ray's source of this function or class has these texts: what is replaced there is used there."""
    source = inspect.getsource(function)
    missing = [text for text in texts if text not in source]
    assert not missing, f"{function.__module__}.{function.__qualname__} no longer has {missing}"
