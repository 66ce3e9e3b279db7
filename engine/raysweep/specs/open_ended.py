"""`num_samples: null`: as many configs as there is time for; what ends such a sweep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raysweep.documents.validation import Problem

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec

_RAY_NAMES: Final = {"cpu": "CPU", "gpu": "GPU"}


def use_per_slot_hour(spec: SweepSpec) -> dict[str, float]:
    """What an hour of one slot uses of what a budget counts: `cpu_hours`, `gpu_hours`, `cost`."""
    total: dict[str, float] = {}
    for bundle in spec.trial_resources.to_bundles():
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    prices = {_RAY_NAMES.get(name, name): price for name, price in spec.stop.cost_per_hour.items()}
    cost = sum(amount * prices.get(name, 0.0) for name, amount in total.items())
    return {"cpu_hours": total.get("CPU", 0.0), "gpu_hours": total.get("GPU", 0.0), "cost": cost}


def check_end(spec: SweepSpec) -> None:
    """See that something ends a sweep without a number of samples. Imports nothing. Raises Problem."""
    if not spec.is_open_ended:
        return
    stop, use = spec.stop, use_per_slot_hour(spec)
    budgets = stop.budget.model_dump(exclude_none=True)
    used_up = [name for name in budgets if use[name] > 0]
    if not any((stop.deadline, stop.time_budget_s, used_up, stop.target is not None, stop.plateau)):
        never = f"stop.budget.{next(iter(budgets))} is never used up" if budgets else "nothing ends the sweep"
        raise Problem(
            f"null is as many as there is time for, and {never}",
            "set stop.deadline, stop.time_budget_s, stop.budget, stop.target or stop.plateau, or a number",
            ("num_samples",),
        )
    if spec.scheduler.options.is_population:
        raise Problem(
            f"null is no size of a population: {spec.scheduler.kind} requires a number of samples",
            "set a number of samples, or another scheduler",
            ("num_samples",),
        )
