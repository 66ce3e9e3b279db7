"""The real Ray head of the tests: a `LocalHead` whose jobs find the tests' modules."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from devtools.head import LocalHead, free_ports

__all__ = ["ROOT", "Head", "free_ports"]

ROOT = Path(__file__).parents[2]


class Head(LocalHead):
    """One whose jobs can import `tests` and `examples`, and run the engine of this checkout."""

    def __init__(self, *, num_cpus: int = 2, environment: Mapping[str, str] | None = None) -> None:
        super().__init__(num_cpus=num_cpus, environment=environment, pythonpath=(ROOT, ROOT / "engine"))
