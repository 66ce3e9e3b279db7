"""Tests that are skipped where an optional package is absent."""

from __future__ import annotations

import importlib.util
from typing import Any

import pytest


def skipped_without(package: str) -> pytest.MarkDecorator:
    """Where the package is absent the test is skipped, and says what installs it."""
    why = (
        f"{package} is not installed here: `make test-{package}` builds an environment with it, and runs this"
    )
    return pytest.mark.skipif(importlib.util.find_spec(package) is None, reason=why)


def needing(package: str) -> Any:
    """A case that is skipped where the package is absent."""
    return pytest.param(package, marks=skipped_without(package))
