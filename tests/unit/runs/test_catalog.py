"""The catalog of the runs of a name: what it saves, and that nothing depends on it."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

import raysweep as rs
from raysweep.errors import StorageError
from raysweep.outcome import Approval
from raysweep.runs import catalog
from raysweep.runs.across_runs.verdicts import keep_verdict, read_verdict
from raysweep.runs.catalog import keep_run, read_catalog, stem_of
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.removal import put_aside, remove
from raysweep.runs.reading.listing import read_run
from raysweep.runs.reading.nights import Night, nights_at
from raysweep.storage.objects.local import LocalStore
from raysweep.verify import repair, verify_sweep
from tests.unit.cli.nights import Nights


@pytest.fixture
def nights(tmp_path: Path) -> Nights:
    return Nights(tmp_path / "nights")


def without_catalog(nights: Nights) -> list[Night]:
    """The nights as each run tells them itself."""
    kept = {path: path.read_bytes() for path in Path(nights.url, "catalog").glob("*.json")}
    for path in kept:
        path.unlink()
    found = nights_at(nights.store)
    for path, data in kept.items():
        path.write_bytes(data)
    return found


def test_lists_are_the_same_with_and_without_it(nights: Nights) -> None:
    for day, promoted in enumerate((True, False, None, True)):
        nights.add(f"night {day}", days_ago=9 - day, promoted=promoted, trains=bool(promoted))
    nights.add("other", name="fraud", days_ago=3)
    nights.begin("unfinished")
    found = nights_at(nights.store)
    assert len(found) == 6
    assert found == without_catalog(nights)
    runs = read_catalog(nights.store, [night.run.run_id for night in found])
    assert all((runs.run(each.run.run_id) is not None) == each.run.has_ended for each in found)


@pytest.mark.parametrize(
    "damage", [b"", b"{torn", b'{"format":1,"entries":{}}x', b'{"format":99,"entries":{}}']
)
def test_one_that_is_damaged_counts_as_none_and_is_written_anew(nights: Nights, damage: bytes) -> None:
    nights.add("a", days_ago=2)
    Path(nights.url, "catalog/churn.json").write_bytes(damage)
    assert [run.key for run in rs.sweeps(nights.url)] == ["a"]
    run_id = nights.add("b")
    assert read_catalog(nights.store, [run_id]).run(run_id) is not None
    assert [run.key for run in rs.sweeps(nights.url)] == ["b", "a"]


def test_a_byte_that_changes_in_it_changes_no_list(nights: Nights) -> None:
    nights.add("a", promoted=True)
    before, file = nights_at(nights.store), Path(nights.url, "catalog/churn.json")
    whole = file.read_bytes()
    for place in range(0, len(whole), 17):
        file.write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        assert nights_at(nights.store) == before, place


def test_a_sweep_that_continues_is_not_in_it(nights: Nights) -> None:
    run_id = nights.add("a")
    folder = SweepFolder(nights.store, run_id)
    outcome = folder.read_outcome()
    assert outcome is not None
    folder.archive_outcome()
    assert read_catalog(nights.store, [run_id]).run(run_id) is None
    assert not rs.sweeps(nights.url)[0].has_ended
    folder.write_outcome_if_absent(outcome.model_copy(update={"generation": 2, "status": "stopped"}))
    assert rs.sweeps(nights.url)[0].status == "stopped"


@pytest.mark.parametrize("moment", ["before the outcome goes", "after it has gone"])
def test_a_process_that_is_slow_to_write_an_entry_leaves_none_behind(
    nights: Nights, moment: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_id = nights.add("a")
    folder, run = SweepFolder(nights.store, run_id), read_run(nights.store, run_id)
    assert run is not None
    delete = LocalStore.delete

    def write_late() -> None:
        keep_run(nights.store, run, f"{run_id}/outcome.json")

    def interrupted(store: LocalStore, *keys: str) -> None:
        if any(key.endswith("/outcome.json") for key in keys):
            write_late()
        delete(store, *keys)

    if moment == "before the outcome goes":
        monkeypatch.setattr(LocalStore, "delete", interrupted)
    folder.archive_outcome()
    if moment == "after it has gone":
        write_late()
    assert read_catalog(nights.store, [run_id]).run(run_id) is None


@pytest.mark.parametrize("leaves", [remove, put_aside])
def test_a_sweep_that_leaves_leaves_no_entry(nights: Nights, leaves: object) -> None:
    run_id, stays = nights.add("a", days_ago=2), nights.add("b")
    leaves(nights.url, run_id)  # type: ignore[operator]
    found = read_catalog(nights.store, [run_id])
    assert (found.run(run_id), found.run(stays) is not None) == (None, True)


def test_a_sweep_that_begins_where_one_was_deleted_by_hand_is_not_shown_as_ended(nights: Nights) -> None:
    run_id = nights.add("a")
    for path in Path(nights.url, run_id).rglob("*.json"):
        path.unlink()
    nights.begin("a")
    assert [run.has_ended for run in rs.sweeps(nights.url)] == [False]


def test_processes_that_end_at_once_lose_no_entry(nights: Nights) -> None:
    with ThreadPoolExecutor(8) as pool:
        ids = list(pool.map(lambda day: nights.add(f"night {day}", promoted=True), range(24)))
    found = read_catalog(nights.store, ids)
    missing = [run_id for run_id in ids if found.run(run_id) is None]
    assert not missing
    assert len([night for night in nights_at(nights.store) if night.promoted]) == 24


def test_an_outage_costs_an_entry_and_nothing_else(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    put = LocalStore.put_if_version

    def away(store: LocalStore, key: str, data: bytes, version: str | None) -> bool:
        if key.startswith("catalog/"):
            raise StorageError(key, "does not answer", "wait")
        return put(store, key, data, version)

    monkeypatch.setattr(LocalStore, "put_if_version", away)
    run_id = nights.add("a", promoted=True)
    assert read_catalog(nights.store, [run_id]).entries == {}
    assert [(night.run.status, night.promoted) for night in nights_at(nights.store)] == [("completed", True)]
    monkeypatch.undo()
    nights.add("b", days_ago=3)
    monkeypatch.setattr(LocalStore, "put_if_version", away)
    late = SweepFolder(nights.store, nights_at(nights.store)[1].run.run_id)
    with pytest.raises(StorageError, match="does not answer"):
        late.archive_outcome()
    assert late.has_outcome(), "it goes only once its entry has"


def test_the_newest_ends_have_entries(nights: Nights, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(catalog, "MOST", 3)
    ids = [nights.add(f"night {day}", days_ago=9 - day) for day in range(5)]
    found = read_catalog(nights.store, ids)
    assert [found.run(run_id) is not None for run_id in ids] == [False, False, True, True, True]
    assert len(rs.sweeps(nights.url)) == 5


def test_a_verdict_that_waits_for_approval_is_read_by_itself(nights: Nights) -> None:
    run_id = nights.add("a", promoted=True)
    [gate] = nights.store.list_folders(f"{run_id}/gates")
    verdict = read_verdict(nights.store, run_id, gate)
    assert verdict is not None
    asks = verdict.model_copy(update={"approval": Approval(name="churn", until=1.0)})
    keep_verdict(nights.store, run_id, "0123456789ab", asks)
    found = read_catalog(nights.store, [run_id])
    assert found.verdict(run_id, gate) == verdict
    assert found.verdict(run_id, "0123456789ab") is None


def test_verify_finds_an_entry_that_is_not_the_outcomes_and_repair_drops_it(nights: Nights) -> None:
    run_id = nights.add("a")
    run = read_run(nights.store, run_id)
    assert run is not None
    keep_run(nights.store, run.model_copy(update={"score": 9.0}), f"{run_id}/outcome.json")
    folder = SweepFolder(nights.store, run_id)
    report = verify_sweep(folder)
    assert "catalog/churn.json" in [finding.object for finding in report.findings]
    drops = [finding for finding in report.findings if finding.object == "catalog/churn.json"]
    repair(folder, replace(report, findings=tuple(drops)))
    assert rs.sweeps(nights.url)[0].score == 0.732


@pytest.fixture
def moved(nights: Nights, tmp_path: Path) -> str:
    nights.add("a", promoted=True)
    Path(nights.url).rename(tmp_path / "elsewhere")
    return str(tmp_path / "elsewhere")


def test_a_store_that_was_moved_is_listed_where_it_is(moved: str) -> None:
    assert all(run.uri.startswith(moved) for run in rs.sweeps(moved))


def test_the_stem_of_an_id_is_its_names_slug() -> None:
    assert stem_of("churn-gate-0a1b2c3d4e") == "churn-gate"
    assert [stem_of(folder) for folder in ("champions", "catalog", "aside", "")] == ["", "", "", ""]


def test_a_process_that_was_suspended_does_not_bring_an_earlier_end_back(nights: Nights) -> None:
    nights.add("night", days_ago=1)
    (night,) = nights_at(nights.store)
    later = night.run.model_copy(update={"generation": night.run.generation + 1, "attempts": 8})
    key = f"{later.run_id}/outcome.json"
    keep_run(nights.store, later, key)
    keep_run(nights.store, night.run, key)  # it was stopped between writing its outcome and its entry
    kept = read_catalog(nights.store, [later.run_id]).run(later.run_id)
    assert kept is not None
    assert (kept.generation, kept.attempts) == (later.generation, 8)
