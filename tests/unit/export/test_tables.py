"""Trials and reports as CSV and Parquet: every value, typed, and no half of a file."""

from __future__ import annotations

import csv
import json
import sys
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.export.tables import export_tables
from raysweep.runs.reading.history import reports_of
from tests.unit.cli.conftest import Cli, cli
from tests.unit.pages.sweeps import first_half, learn, store

__all__ = ["cli"]


def ignore(what: str, done: int, total: int) -> None:
    pass


def odd(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """Metrics of all types, one of several."""
    row = learn(config, iteration)
    if row is None:
        return None
    loss = float("nan") if iteration == 2 else iteration / 3
    late: dict[str, Any] = {"note": "é\n,", "big": 2**70} if iteration > 2 else {}
    return row | {
        "loss": loss,
        "is_late": iteration > 2,
        "mixed": iteration if iteration % 2 else "x",
        **late,
    }


def test_csv_has_every_trial_and_every_report(tmp_path: Path) -> None:
    folder, outcome = store(tmp_path / "store")
    told: list[tuple[str, int, int]] = []
    made = export_tables(folder, "csv", tmp_path / "out", lambda *each: told.append(each))
    assert made.places == (str(tmp_path / "out/trials.csv"), str(tmp_path / "out/reports.csv"))
    with open(made.places[0], newline="") as file:
        trials = list(csv.DictReader(file))
    assert [row["trial_id"] for row in trials] == [trial.trial_id for trial in outcome.trials]
    assert [float(row["config/rate"]) for row in trials] == [trial.config["rate"] for trial in outcome.trials]
    assert {row["error"] for row in trials if row["state"] == "failed"} == {
        trial.problem for trial in outcome.trials if trial.state == "failed"
    }
    with open(made.places[1], newline="") as file:
        reports = list(csv.DictReader(file))
    expected = list(reports_of(folder))
    assert [float(row["auc"]) for row in reports] == [row["auc"] for row in expected]
    assert (made.trials, made.reports, made.has_ended) == (len(trials), len(reports), True)
    assert told[-1] == ("exporting reports", len(reports), len(reports))
    assert sorted(path.name for path in (tmp_path / "out").iterdir()) == ["reports.csv", "trials.csv"]


def test_parquet_is_typed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    parquet = pytest.importorskip("pyarrow.parquet")
    monkeypatch.setattr("raysweep.export.tables.BATCH", 7)  # several row groups
    folder, outcome = store(tmp_path / "store", odd)
    made = export_tables(folder, "parquet", tmp_path / "out", ignore)
    reports = parquet.read_table(made.places[1])
    types = {field.name: str(field.type) for field in reports.schema}
    assert types == {
        "trial_id": "string", "number": "int64", "attempt": "int64", "iteration": "int64",
        "at": "timestamp[us, tz=UTC]", "overrun": "bool", "auc": "double", "latency_ms": "double",
        "loss": "double", "is_late": "bool", "mixed": "string", "note": "string", "big": "double",
    }  # fmt: skip
    rows, expected = reports.to_pylist(), list(reports_of(folder))
    assert len(rows) == len(expected)
    for row, want in zip(rows, expected, strict=True):
        assert row["auc"] == want["auc"]
        assert row["at"].timestamp() == pytest.approx(want["at"], abs=1e-5)
        assert row["loss"] == want["loss"] or (row["loss"] != row["loss"] and want["loss"] != want["loss"])
        assert row["mixed"] == str(want["mixed"])
        assert (row["note"], row["big"]) == (want.get("note"), want.get("big"))
    trials = parquet.read_table(made.places[0])
    assert trials.num_rows == len(outcome.trials)
    assert str(trials.schema.field("config/net/width").type) == "int64"
    assert str(trials.schema.field("started_at").type) == "timestamp[us, tz=UTC]"
    assert parquet.ParquetFile(made.places[1]).num_row_groups > 1


def test_a_sweep_that_runs_is_exported_as_far_as_it_is(tmp_path: Path, cli: Cli) -> None:
    folder, _ = store(tmp_path / "store")
    half = first_half(folder, tmp_path / "half")
    ran = cli("export", half.uri, "--to", "csv", "--json")
    assert ran.code == 0
    told = json.loads(ran.out)
    assert told["places"] == [f"{half.sweep_id}/trials.csv", f"{half.sweep_id}/reports.csv"]
    assert (told["has_ended"], told["to"]) == (False, "csv")
    assert ran.err == f"note: {half.sweep_id} has not ended: this is what its journal holds now\n"
    assert Path(told["places"][0]).is_file()


def test_parquet_without_pyarrow_is_one_line(
    tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = store(tmp_path / "store")
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    monkeypatch.delitem(sys.modules, "pyarrow.parquet", raising=False)
    ran = cli("export", folder.uri, "--to", "parquet")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: --to: parquet requires pyarrow, which is not installed; pip install")
    assert not (tmp_path / folder.sweep_id).exists()


def test_an_export_that_fails_leaves_the_earlier_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, _ = store(tmp_path / "store")
    export_tables(folder, "csv", tmp_path / "out", ignore)
    before = {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()}

    def stop(what: str, done: int, total: int) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        export_tables(folder, "csv", tmp_path / "out", stop)
    assert {path.name: path.read_bytes() for path in (tmp_path / "out").iterdir()} == before


def test_a_folder_that_cannot_be_written_to_is_one_line(tmp_path: Path) -> None:
    folder, _ = store(tmp_path / "store")
    (tmp_path / "file").write_text("")
    with pytest.raises(SpecError, match=r"--out: .*file/trials.csv' cannot be written: File exists"):
        export_tables(folder, "csv", tmp_path / "file", ignore)


def test_a_sweep_without_trials_has_tables_with_columns(tmp_path: Path) -> None:
    folder, _ = store(tmp_path / "store")
    (first, *_) = sorted(info.key for info in folder.store.list(f"{folder.sweep_id}/journal"))
    for info in list(folder.store.list(folder.sweep_id)):
        if info.key not in (first, f"{folder.sweep_id}/sweep.json"):
            folder.store.delete(info.key)
    made = export_tables(folder, "csv", tmp_path / "out", ignore)
    assert Path(made.places[0]).read_text().startswith("trial_id,number,state,")
    assert Path(made.places[1]).read_text().startswith("trial_id,number,attempt,iteration,at,overrun")
