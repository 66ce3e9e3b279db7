"""Budgets of callers: never more than the bound is reserved and used, whoever dies or races."""

from __future__ import annotations

import multiprocessing
import random
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import BudgetSpentError, SpecError, StorageError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.usage import Usage
from raysweep.runs.across_runs.spending import FOLDER, Spending, reserve, set_bounds
from raysweep.runs.folder import SweepFolder
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import run_folders
from raysweep.storage.objects.store import Store

KEY = "agent"


def spec_of(place: Path, hours: float | None = 1.0, **fields: Any) -> SweepSpec:
    stop = {"budget_key": KEY, "budget": {} if hours is None else {"cpu_hours": hours}}
    return SweepSpec.from_any(
        {
            "name": "tried",
            "trainable": "examples.quick:steps",
            "param_space": {"x": {"uniform": [0, 9]}},
            "metric": "loss",
            "mode": "min",
            "num_samples": 2,
            "isolation": "inline",
            "max_concurrent_trials": 1,
            "storage_path": str(place),
            "stop": stop,
        }
        | fields
    )


@pytest.fixture
def store(tmp_path: Path) -> Store:
    store = open_store(tmp_path)
    set_bounds(store, KEY, {"cpu_hours": 3.0})
    return store


def end(store: Store, sweep_id: str, hours: float, generation: int = 1) -> None:
    """Store an outcome as the controller of this generation would."""
    outcome = SweepOutcome(
        sweep_id=sweep_id,
        name="tried",
        key="k",
        status="completed",
        metric="loss",
        mode="min",
        seed=1,
        started_at=1.0,
        ended_at=2.0,
        uri=f"{store.url}/{sweep_id}",
        generation=generation,
        usage=Usage(cpu_hours=hours),
    )
    folder = SweepFolder(store, sweep_id)
    if generation > 1:
        folder.archive_outcome()
    assert folder.write_outcome_if_absent(outcome)


def test_what_is_left_is_reserved_and_no_more(store: Store, tmp_path: Path) -> None:
    reserve(store, "tried-1", spec_of(tmp_path, 2.0))
    with pytest.raises(BudgetSpentError) as refused:
        reserve(store, "tried-2", spec_of(tmp_path, 1.5))
    assert str(refused.value) == (
        "stop.budget.cpu_hours: 1.5 is more than the 1 left of 3 under the budget key 'agent'; "
        "ask for at most 1, or have the bound raised: raysweep budget agent --cpu-hours 3.5"
    )
    set_bounds(store, KEY, {"cpu_hours": 3.5})
    reserve(store, "tried-2", spec_of(tmp_path, 1.5))
    assert Spending(store, KEY).left("cpu_hours") == 0.0


def test_a_sweep_has_one_reservation_however_often_it_starts(store: Store, tmp_path: Path) -> None:
    for _ in range(5):  # each a controller that was killed before it had begun
        reserve(store, "tried-1", spec_of(tmp_path, 2.0))
    assert Spending(store, KEY).reserved == {"tried-1": {"cpu_hours": 2.0}}
    reserve(store, "tried-1", spec_of(tmp_path, 3.0))  # its own budget was raised
    assert Spending(store, KEY).reserved == {"tried-1": {"cpu_hours": 3.0}}


def test_an_ended_sweep_counts_as_what_it_used(store: Store, tmp_path: Path) -> None:
    reserve(store, "tried-1", spec_of(tmp_path, 3.0))
    end(store, "tried-1", 0.25)
    reserve(store, "tried-2", spec_of(tmp_path, 2.75))
    store.delete("tried-1/outcome.json")  # removed afterwards: what it used was used
    found = Spending(store, KEY)
    assert (found.used, found.reserved) == (
        {"tried-1": {"cpu_hours": 0.25, "gpu_hours": 0.0, "cost": 0.0}},
        {"tried-2": {"cpu_hours": 2.75}},
    )


def test_one_that_is_removed_before_anybody_looked_counts_as_reserved(store: Store, tmp_path: Path) -> None:
    reserve(store, "tried-1", spec_of(tmp_path, 2.0))
    assert Spending(store, KEY).left("cpu_hours") == 1.0


def test_a_sweep_that_is_reopened_is_no_ended_one(store: Store, tmp_path: Path) -> None:
    reserve(store, "tried-1", spec_of(tmp_path, 1.0))
    end(store, "tried-1", 0.5)
    reserve(store, "tried-1", spec_of(tmp_path, 2.5))
    # Its outcome is still there: the controller that takes it away has not begun.
    assert Spending(store, KEY).reserved == {"tried-1": {"cpu_hours": 2.5}}
    with pytest.raises(BudgetSpentError):
        reserve(store, "tried-2", spec_of(tmp_path, 1.0))
    end(store, "tried-1", 2.0, generation=2)
    reserve(store, "tried-2", spec_of(tmp_path, 1.0))


def _race(place: str, number: int, barrier: Any, won: Any) -> None:
    barrier.wait(60)
    try:
        reserve(open_store(place), f"tried-{number}", spec_of(Path(place), 1.0))
    except BudgetSpentError:
        return
    won.put(number)


def test_of_processes_that_start_at_once_as_many_get_it_as_there_is_room_for(
    store: Store, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    barrier, won = context.Barrier(6), context.Queue()
    processes = [
        context.Process(target=_race, args=(str(tmp_path), number, barrier, won)) for number in range(6)
    ]
    for process in processes:
        process.start()
    for process in processes:
        process.join(120)
        assert process.exitcode == 0
    assert won.qsize() == 3
    found = Spending(store, KEY)
    assert set(found.reserved) == {f"tried-{won.get()}" for _ in range(3)}
    assert found.left("cpu_hours") == 0.0


@pytest.mark.parametrize("seed", range(3))
def test_whatever_happens_no_more_than_the_bound_is_used(tmp_path: Path, seed: int) -> None:
    store, drawn = open_store(tmp_path), random.Random(seed)
    set_bounds(store, KEY, {"cpu_hours": 8.0})
    asked: dict[str, float] = {}
    refused = 0
    for _ in range(60):
        sweep_id = f"tried-{drawn.randrange(25)}"
        hours = round(drawn.uniform(0.1, 3.0), 2)
        if sweep_id in asked and not SweepFolder(store, sweep_id).has_outcome():
            end(store, sweep_id, drawn.uniform(0.0, asked[sweep_id]))
        elif sweep_id not in asked:
            try:
                reserve(store, sweep_id, spec_of(tmp_path, hours))
                asked[sweep_id] = hours
            except BudgetSpentError:
                refused += 1
        found = Spending(store, KEY)
        assert sum(found.total(each, "cpu_hours") for each in (found.used, found.reserved)) <= 8.0 + 1e-9
    assert refused
    assert len(Spending(store, KEY).used) > 3


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"hours": None},
            (
                "stop.budget.cpu_hours: is not set, and the budget key 'agent' bounds it; "
                "set it to at most 3, which is left"
            ),
        ),
        (
            {"stop": {"budget_key": "another", "budget": {"cpu_hours": 1}}},
            (
                "stop.budget_key: 'another' has no bound in this storage; "
                "set one: raysweep budget another --cpu-hours 100"
            ),
        ),
    ],
)
def test_a_sweep_without_bounds_is_refused(
    store: Store, tmp_path: Path, fields: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError) as refused:
        reserve(store, "tried-1", spec_of(tmp_path, **fields))
    assert str(refused.value) == message


def test_units_that_a_sweep_uses_none_of_need_no_budget_of_its_own(store: Store, tmp_path: Path) -> None:
    set_bounds(store, KEY, {"gpu_hours": 1.0})
    reserve(store, "tried-1", spec_of(tmp_path, 1.0))
    assert Spending(store, KEY).reserved == {"tried-1": {"cpu_hours": 1.0, "gpu_hours": 0.0}}


def test_a_budget_is_no_run_and_damage_is_named(store: Store) -> None:
    assert run_folders(store) == ()
    key = next(iter(store.list(FOLDER))).key
    store.put(key, (store.get(key) or b"").replace(b"3.0", b"9.0"))
    with pytest.raises(StorageError, match=r"budgets/agent.*is damaged"):
        Spending(store, KEY)


def test_every_64_events_are_merged(store: Store) -> None:
    for number in range(65):
        set_bounds(store, KEY, {"cpu_hours": 3.0 + number})
    assert Spending(store, KEY).bounds == {"cpu_hours": 67.0}
    merged = [info.key for info in store.list(FOLDER) if "-" in info.key.rpartition("/")[2]]
    assert len(merged) == 1
