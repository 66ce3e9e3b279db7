"""No early stopping: every trial runs to its own end."""

from __future__ import annotations

from typing import Any

from raysweep.schedulers.base import CONTINUE, Decision


class FifoScheduler:
    """Lets every trial continue. Holds no state."""

    __slots__ = ()

    def add(self, trial: int) -> None:
        """Do nothing: trials are not told apart."""

    def report(self, trial: int, time: float, value: float) -> Decision:
        """Return "continue"."""
        return CONTINUE

    def end(self, trial: int, time: float | None, value: float | None) -> None:
        """Do nothing."""

    def remove(self, trial: int) -> None:
        """Do nothing."""

    def to_json(self) -> dict[str, Any]:
        """Return an empty state."""
        return {}

    def from_json(self, state: dict[str, Any]) -> None:
        """Accept any state: there is nothing to restore."""
