"""`raysweep budget`: how much all sweeps of a budget key may use, and what is left of it."""

from __future__ import annotations

from typing import Any

from raysweep.cli.consoles import make_console, print_facts, print_json
from raysweep.cli.exit_codes import DONE
from raysweep.cli.lookup import DEFAULT_STORAGE
from raysweep.errors import SpecError
from raysweep.numeric.shown import show_number
from raysweep.runs.across_runs.spending import UNITS, Spending, set_bounds
from raysweep.storage.objects.opening import open_store


def run(
    key: str,
    storage: str | None,
    *,
    cpu_hours: float | None,
    gpu_hours: float | None,
    cost: float | None,
    is_json: bool,
) -> int:
    """Set the bounds that are given, and show the budget; returns the exit code.

    Raises:
        SpecError: The key has no bound.
        StorageError: The budget cannot be read or written.
    """
    if not key.strip():
        raise SpecError("budget", f"{key!r} is not a budget key", "name it: raysweep budget agent")
    store = open_store(storage or DEFAULT_STORAGE)
    given = {"cpu_hours": cpu_hours, "gpu_hours": gpu_hours, "cost": cost}
    bounds = {unit: bound for unit, bound in given.items() if bound is not None}
    spending = set_bounds(store, key, bounds) if bounds else Spending(store, key)
    if not spending.bounds:
        fix = f"set one: raysweep budget {key} --cpu-hours 100"
        raise SpecError("budget", f"{key!r} has no bound in {store.url}", fix)
    if is_json:
        print_json(document_of(spending))
    else:
        _print(spending)
    return DONE


def document_of(spending: Spending) -> dict[str, Any]:
    """A budget as JSON shows it: each unit's bound, what is used, reserved and left; and the sweeps."""
    units = {
        unit: {
            "bound": spending.bounds[unit],
            "used": spending.total(spending.used, unit),
            "reserved": spending.total(spending.reserved, unit),
            "left": max(0.0, spending.left(unit)),
        }
        for unit in UNITS
        if unit in spending.bounds
    }
    return {"key": spending.key, "units": units, "ended": spending.used, "reserved": spending.reserved}


def _print(spending: Spending) -> None:
    console = make_console()
    console.print(f"budget {spending.key!r}", style="bold", soft_wrap=True)
    facts: list[tuple[str, str]] = [
        (unit, show_unit(spending, unit)) for unit in UNITS if unit in spending.bounds
    ]
    facts += [("reserved by", sweep_id) for sweep_id in spending.reserved]
    print_facts(console, *facts)


def show_unit(spending: Spending, unit: str) -> str:
    """`12.5 of 100 left; 67.5 used by 4 sweeps, 20 reserved by 2`."""
    used, reserved = (spending.total(each, unit) for each in (spending.used, spending.reserved))
    left, bound = (show_number(each) for each in (max(0.0, spending.left(unit)), spending.bounds[unit]))
    ended = f"{show_number(used)} used by {len(spending.used)} sweeps"
    return f"{left} of {bound} left; {ended}, {show_number(reserved)} reserved by {len(spending.reserved)}"
