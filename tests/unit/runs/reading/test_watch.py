"""All sweeps of a storage path, looked at again and again."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import StorageError
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading import listing, watch
from raysweep.runs.reading.watch import StorageWatch, event_of
from raysweep.storage.objects.opening import open_store
from tests.unit.cli.conftest import gone_holder, store_sweep

__all__ = ["gone_holder", "store_sweep"]


class Clock:
    def __init__(self) -> None:
        self.ahead_s = 0.0

    def time(self) -> float:
        import time

        return time.time() + self.ahead_s


def test_a_sweep_that_runs_one_that_is_left_and_one_that_ended(
    tmp_path: Path, store_sweep: Any, gone_holder: Any
) -> None:
    running, left, ended = store_sweep("runs"), store_sweep("left"), store_sweep("ended")
    running.beat(current_holder())
    left.beat(gone_holder)
    outcome = ended.end()
    rows = {row.name: row for row in StorageWatch(open_store(tmp_path / "store")).look()}
    assert next(iter(rows)) == "runs", "what runs comes first"
    row = rows["runs"]
    assert (row.status, row.is_running, row.counts.ended, row.counts["failed"]) == ("running", True, 2, 1)
    assert (row.metric, row.score, row.trial_id, row.num_trials) == ("loss", 5.0, "00000", 4)
    assert event_of(row) == "best is trial 00000"
    assert row.per_minute == pytest.approx(2.0, rel=0.2), "two trials ended in the minute since the start"
    assert (rows["left"].status, rows["left"].is_running) == ("interrupted", False)
    assert event_of(rows["left"]) == f"no process runs it; last heard of {gone_holder}"
    assert (rows["ended"].status, rows["ended"].per_minute) == ("cancelled", None)
    assert event_of(rows["ended"]) == outcome.reason


def test_a_sweep_that_vanishes_is_left_out(tmp_path: Path, store_sweep: Any) -> None:
    stays, goes = store_sweep("stays"), store_sweep("goes")
    watching = StorageWatch(open_store(tmp_path / "store"))
    assert len(watching.look()) == 2
    shutil.rmtree(tmp_path / "store" / goes.sweep_id)
    assert [row.run_id for row in watching.look()] == [stays.sweep_id]


def test_a_sweep_that_vanishes_while_it_is_read_is_left_out(
    tmp_path: Path, store_sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_sweep("goes")

    def gone(folder: Any) -> Any:
        shutil.rmtree(tmp_path / "store")
        raise StorageError("x", "it is gone")

    monkeypatch.setattr(listing, "glance", gone)
    assert StorageWatch(open_store(tmp_path / "store")).look() == []


def test_the_pace_is_that_of_the_last_minute(
    tmp_path: Path, store_sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    stored = store_sweep("runs")
    stored.beat(current_holder())
    watching = StorageWatch(open_store(tmp_path / "store"))
    for clock.ahead_s in (0.0, 20.0, 40.0):
        (row,) = watching.look()
    assert row.per_minute == 0.0, "none ended while it was watched"


def test_an_ended_sweep_is_not_read_each_time_but_found_when_it_goes_on(
    tmp_path: Path, store_sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    monkeypatch.setattr(watch, "time", clock)
    stored = store_sweep("ended")
    stored.end()
    reads = []
    read = watch.list_runs
    monkeypatch.setattr(watch, "list_runs", lambda *given: (reads.extend(given[1]), read(*given))[1])
    watching = StorageWatch(open_store(tmp_path / "store"))
    for _ in range(5):
        watching.look()
    assert len(reads) == 1
    stored.folder.archive_outcome()
    assert watching.look()[0].ended_at is not None
    clock.ahead_s = watch.RECHECK_S
    assert watching.look()[0].ended_at is None


def test_a_storage_that_cannot_be_listed_keeps_what_was_seen(
    tmp_path: Path, store_sweep: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    store_sweep("seen")
    store = open_store(tmp_path / "store")
    watching = StorageWatch(store)
    before = watching.look()

    def down() -> Any:
        raise StorageError("store", "does not answer")

    monkeypatch.setattr(store, "list_folders", down)
    assert watching.look() == before
    assert "does not answer" in watching.problem
    monkeypatch.undo()
    watching.look()
    assert watching.problem == ""


def test_folders_of_other_things_and_damaged_sweeps(tmp_path: Path, store_sweep: Any) -> None:
    stored = store_sweep("ended")
    stored.end()
    (tmp_path / "store/champions/x").mkdir(parents=True)
    (tmp_path / "store/empty-0123456789").mkdir()
    stored.folder.store.put(f"{stored.sweep_id}/outcome.json", b"{")
    shutil.rmtree(tmp_path / "store/catalog")
    (row,) = StorageWatch(open_store(tmp_path / "store")).look()
    assert (row.status, row.is_running) == ("damaged", False)
    assert "outcome.json" in event_of(row)
