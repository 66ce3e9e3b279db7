"""What counts as the cost of a trial, where the search goes by that, too."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from raysweep.documents.validation import Problem, show

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec

TRIAL_TIME: Final = "trial_time_s"
"""The seconds that its attempts ran, unless it reports a number of this name."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CostRule:
    """By which value a trial's cost is told, and for each unit of which other one; empty: as a whole."""

    name: str
    per: str


def check_costs(spec: SweepSpec) -> None:
    """See that a search that goes by costs can do so. Imports nothing. Raises Problem."""
    name = spec.search.options.costs_by
    if name is None:
        return
    where = ("search", spec.search.kind, "cost_attr")
    if name in spec.objectives:
        fix = f"name another value that is reported, or {TRIAL_TIME}"
        raise Problem(f"{show(name)} is the metric itself", fix, where)
    if spec.others:
        fix = "leave it out, or give one metric and make constraints of the others"
        raise Problem("with several metrics, no improvement of one is what counts", fix, where)
    if (refusal := spec.search.options.why_no_costs(spec.param_space)) is not None:
        raise Problem(*refusal, where)
