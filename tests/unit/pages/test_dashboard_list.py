"""What the dashboard reads for its list: one object for each name, however many nights and trials."""

from __future__ import annotations

from pathlib import Path

import orjson
import pytest

from raysweep.pages.dashboard.runs import Runs
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.local import LocalStore
from tests.sampling import first_of
from tests.unit.cli.nights import Nights

DAY_BYTES = 3_000
"""What the catalog may hold of a night with its gate and its training."""


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """The keys of the objects that are read, with their sizes."""
    seen: dict[str, int] = {}
    get = LocalStore.get

    def counted(self: LocalStore, key: str) -> bytes | None:
        data = get(self, key)
        seen[key] = seen.get(key, 0) + len(data or b"")
        return data

    monkeypatch.setattr(LocalStore, "get", counted)
    return seen


def listed(nights: Nights) -> dict[str, dict[str, object]]:
    runs = Runs(nights.store)
    try:
        shown = orjson.loads(runs.list_runs().body)
    finally:
        runs.close()
    assert shown["left"] == 0
    return {row["id"]: row for row in shown["runs"]}


@pytest.mark.parametrize(("days", "trials"), first_of(((15, 200), (365, 3))))
def test_nights_that_ended_are_listed_by_one_object_for_each_name(
    days: int, trials: int, tmp_path: Path, reads: dict[str, int]
) -> None:
    nights = Nights(tmp_path)
    for day in range(days):
        weekly = day % 7 == 0
        nights.add(f"night {day}", days_ago=days - day, trials=trials, promoted=weekly or None, trains=weekly)
    reads.clear()
    rows = listed(nights)
    weeks = len(range(0, days, 7))
    assert len(rows) == days + 2 * weeks
    of_runs = [key for key in reads if not key.startswith("champions/")]
    assert sorted(of_runs) == ["catalog/churn-full.json", "catalog/churn-gate.json", "catalog/churn.json"]
    assert sum(reads[key] for key in of_runs) < DAY_BYTES * days
    assert {row["status"] for row in rows.values()} == {"completed"}


def test_the_list_is_the_same_without_the_catalog(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    for day in range(4):
        nights.add(f"night {day}", days_ago=9 - day, promoted=bool(day % 2), trains=day == 3)
    unfinished = nights.begin("unfinished").sweep_id
    (tmp_path / "no-run-0123456789").mkdir()
    found = listed(nights)
    assert found[unfinished]["status"] in ("starting", "interrupted")
    assert "no-run-0123456789" not in found
    assert [row["config"] != "" for row in found.values() if row["name"] == "churn"].count(True) == 4
    for path in (tmp_path / "catalog").glob("*.json"):
        path.unlink()
    assert listed(nights) == found


def test_a_run_that_is_added_continued_or_removed_is_seen(tmp_path: Path) -> None:
    nights = Nights(tmp_path)
    first = nights.add("first")
    runs = Runs(nights.store)
    try:

        def shown() -> dict[str, str]:
            runs._listed_at = 0.0
            return {row["id"]: row["status"] for row in orjson.loads(runs.list_runs().body)["runs"]}

        assert shown() == {first: "completed"}
        second = nights.add("second")
        assert shown() == {first: "completed", second: "completed"}
        SweepFolder(nights.store, first).archive_outcome()
        assert shown()[first] in ("starting", "interrupted")
        for path in sorted((tmp_path / second).rglob("*"), reverse=True):
            path.unlink() if path.is_file() else path.rmdir()
        (tmp_path / second).rmdir()
        assert set(shown()) == {first}
    finally:
        runs.close()
