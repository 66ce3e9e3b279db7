"""A callback on its thread: in order, tried again, given up, and never in the way of another."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.delivery import process, shared, sink
from raysweep.delivery.cursor import CursorFile
from tests.unit.delivery.contract import run_life
from tests.unit.delivery.journals import GoldenSweep, ids_of, writes


@pytest.fixture(autouse=True)
def _fast(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(sink, "PAUSE_S", 0.001)
    monkeypatch.setattr(sink, "BATCH", 10)
    monkeypatch.setattr(sink, "CURSOR_S", 0.0)
    return None


@pytest.fixture
def sweep(tmp_path: Path) -> GoldenSweep:
    made = GoldenSweep("chaos-98", tmp_path / "store")
    made.write()
    return made


@pytest.mark.parametrize("does", ["", "raise", "exit", "down"])
def test_each_event_comes_once_and_in_order(does: str, sweep: GoldenSweep, tmp_path: Path) -> None:
    (report,) = run_life(sweep, writes(tmp_path / "out", does=does))
    assert (tmp_path / "out").read_text().split() == ids_of(sweep)
    assert (report.left, report.skipped) == (0, 0)


def test_an_event_that_always_fails_is_given_up_and_the_rest_delivered(
    sweep: GoldenSweep, tmp_path: Path
) -> None:
    (report,) = run_life(sweep, writes(tmp_path / "out", does="always", at=5))
    assert (tmp_path / "out").read_text().split() == ids_of(sweep)[:4]
    assert report.skipped == len(ids_of(sweep)) - 4
    assert "ValueError: always" in report.error


def test_a_callback_continues_where_it_stopped(sweep: GoldenSweep, tmp_path: Path) -> None:
    run_life(sweep, writes(tmp_path / "out"), events=17)
    run_life(sweep, writes(tmp_path / "out"))
    found = (tmp_path / "out").read_text().split()
    assert sorted(set(found)) == ids_of(sweep)
    assert found[:17] == ids_of(sweep)[:17]
    assert len(found) - len(ids_of(sweep)) <= 10, "more than one batch was delivered again"


def test_one_that_lags_behind_reads_by_itself_and_misses_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep = GoldenSweep("retry", tmp_path / "store")
    sweep.write()
    monkeypatch.setattr(process, "SharedEvents", lambda: shared.SharedEvents(20))
    (report,) = run_life(sweep, writes(tmp_path / "out"))
    assert report.left == 0
    assert (tmp_path / "out").read_text().split() == ids_of(sweep)


def test_a_damaged_place_is_the_start(sweep: GoldenSweep, tmp_path: Path) -> None:
    run_life(sweep, writes(tmp_path / "out"))
    sweep.folder.store.put(f"{sweep.folder.sweep_id}/hooks/Writes.json", b"{}")
    file = CursorFile(sweep.folder, "Writes")
    found = file.read()
    assert found is not None
    assert found.key == (0, 0)
