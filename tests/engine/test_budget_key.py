"""`stop.budget_key`: a sweep is refused before it starts, and counts as what it used once it has ended."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import BudgetSpentError
from raysweep.runs.across_runs.spending import Spending, set_bounds
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import run_folders
from tests.engine.conftest import INLINE

pytestmark = pytest.mark.ray
Run = Callable[..., rs.SweepOutcome]


def train(config: dict[str, Any]) -> float:
    return float(config["x"])


def test_an_agent_that_overspends_is_refused(run: Run, storage: Path) -> None:
    store = open_store(storage)
    set_bounds(store, "agent", {"cpu_hours": 1.0})
    stop = {"budget_key": "agent", "budget": {"cpu_hours": 0.6}}
    # Each reserves 0.6 of 1, and has used next to nothing at its end.
    kept = [run(train, name=name, num_samples=2, stop=stop, **INLINE) for name in ("first", "second")]
    again = run(train, name="first", num_samples=2, stop=stop, **INLINE)
    assert again.ended_at == kept[0].ended_at  # returned, and nothing reserved for it
    spending = Spending(store, "agent")
    assert spending.reserved == {}
    for outcome in kept:
        assert outcome.status == "completed"
        assert spending.used[outcome.sweep_id]["cpu_hours"] == pytest.approx(outcome.usage.cpu_hours)
    large = {"budget_key": "agent", "budget": {"cpu_hours": 1.0}}
    with pytest.raises(BudgetSpentError, match=r"is more than the 0\.9"):
        run(train, name="third", num_samples=2, stop=large, **INLINE)
    assert len(run_folders(store)) == 2  # nothing of it is stored
