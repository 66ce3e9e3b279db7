"""What an early-stopping policy is: reports in, decisions out, state as plain JSON."""

from __future__ import annotations

from typing import Any, Literal, Protocol

Decision = Literal["continue", "stop"]
"""What a trial does after a report."""

CONTINUE: Decision = "continue"
STOP: Decision = "stop"


class Scheduler(Protocol):
    """A pure early-stopping policy over trial numbers.

    No method reads a clock, a random generator or the environment: the same calls give the same
    decisions, in this process or after `from_json(to_json())` in another. `value` is the raw metric; its
    direction was given at construction.
    """

    def add(self, trial: int) -> None:
        """Make a trial known before its first report. A second `add` changes nothing."""
        ...

    def report(self, trial: int, time: float, value: float) -> Decision:
        """Decide whether a trial goes on after it reported `value` at `time` (units: time attribute)."""
        ...

    def end(self, trial: int, time: float | None, value: float | None) -> None:
        """Take a trial's last report into account (None: it never reported) and forget the trial."""
        ...

    def remove(self, trial: int) -> None:
        """Forget a trial that failed or was cancelled; what it recorded stays recorded."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Return the whole state as JSON types (no NaN or infinity as numbers)."""
        ...

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned.

        Raises:
            SpecError: the state belongs to a scheduler with other parameters.
        """
        ...
