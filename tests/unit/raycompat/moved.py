"""How a contract says what has moved."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from importlib.metadata import version
from typing import Any

import pytest


def ray_version() -> tuple[int, int]:
    """Major and minor version of the Ray that is installed."""
    found = re.match(r"(\d+)\.(\d+)", version("ray"))
    assert found is not None
    return int(found[1]), int(found[2])


def since(major: int, minor: int) -> pytest.MarkDecorator:
    """The mark of a contract about a part that Ray has since this version, and that is not used before."""
    return pytest.mark.skipif(ray_version() < (major, minor), reason=f"Ray has it since {major}.{minor}")


def parameters(function: Callable[..., Any]) -> list[str]:
    return list(inspect.signature(function).parameters)


def check_uses(function: Any, *texts: str) -> None:
    """Ray's source of this function or class has these texts: what is replaced there is used there."""
    source = inspect.getsource(function)
    missing = [text for text in texts if text not in source]
    assert not missing, f"{function.__module__}.{function.__qualname__} no longer has {missing}"
