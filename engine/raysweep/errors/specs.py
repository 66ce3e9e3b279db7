"""Errors in what a user asked for: specs and other input."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

from raysweep.errors.base import RaysweepError, one_line


class SpecError(RaysweepError, ValueError):
    """A spec or another input of the user cannot be used: names the field, the problem and the fix."""

    exit_code: ClassVar[int] = 2

    def __init__(self, field: str, problem: str, fix: str = "") -> None:
        super().__init__(field, problem, fix)
        self.field = field
        self.problem = problem
        self.fix = fix
        self.others: tuple[str, ...] = ()  # further problems in the same input
        self.kept_uri = ""  # the results of what ran before the problem was met

    def __str__(self) -> str:
        head = f"{self.field}: {self.problem}" if self.field else self.problem
        more = f" (and {len(self.others)} more)" if self.others else ""
        kept = f"; what has run is kept in {self.kept_uri}" if self.kept_uri else ""
        return one_line((f"{head}; {self.fix}" if self.fix else head) + more + kept)


class TrainableImportError(SpecError):
    """The trainable cannot be imported, or is not callable."""


class InfeasibleResourcesError(SpecError):
    """The resources of one trial can never be served by this cluster."""


class StorageNotWritableError(SpecError):
    """The storage path cannot be written to."""


class StorageNotSharedError(SpecError):
    """The job on the cluster ended well, and its outcome is not where this side looks for it."""


class MetricNeverReportedError(SpecError):
    """A trial ended without ever reporting the metric of the sweep."""


class SampleFromError(SpecError):
    """A `sample_from` function raised for one config (then that is the cause), or returned no JSON value."""

    def __init__(
        self, field: str, problem: str, fix: str = "", config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(field, problem, fix)
        self.config = dict(config or {})  # the values that were drawn before


class PlanChangedError(SpecError):
    """The sweep is not the one that was planned."""

    def __init__(self, sweep_id: str, differing: tuple[str, ...]) -> None:
        super().__init__(
            "--plan",
            f"{sweep_id!r} is not what was planned: another {', another '.join(differing)}",
            "look at raysweep plan again, and run with its token",
        )
        self.args = (sweep_id, differing)
        self.sweep_id = sweep_id
        self.differing = differing
        """`spec`, `code`, `price`, `storage path`, `name or key`."""


class BudgetSpentError(SpecError):
    """The sweep asks for more than what is left of a caller's budget."""

    def __init__(self, unit: str, asked: float, left: float, bound: float, key: str) -> None:
        super().__init__(
            f"stop.budget.{unit}",
            f"{asked:g} is more than the {left:g} left of {bound:g} under the budget key {key!r}",
            f"ask for at most {left:g}, or have the bound raised: raysweep budget {key}"
            f" --{unit.replace('_', '-')} {bound - left + asked:g}",
        )
        self.args = (unit, asked, left, bound, key)
        self.unit = unit
        """`cpu_hours`, `gpu_hours` or `cost`."""
        self.asked = asked
        self.left = left
        self.bound = bound
        self.key = key


class SpecChangedError(SpecError):
    """The sweep exists under this id with another spec, in a way that would mix two searches."""

    exit_code: ClassVar[int] = 4

    def __init__(self, sweep_id: str, diff: tuple[str, ...], fix: str = "") -> None:
        shown = " | ".join(diff[:5]) + (f" | and {len(diff) - 5} more" if len(diff) > 5 else "")
        super().__init__(
            "spec",
            f"sweep {sweep_id!r} was started with another spec: {shown}",
            fix or "use another key to start a new sweep, or change the spec back",
        )
        self.args = (sweep_id, tuple(diff), *([fix] if fix else []))
        self.sweep_id = sweep_id
        self.diff = tuple(diff)  # `max_t: 9 -> 27`, or `max_t differs` where only digests are known
