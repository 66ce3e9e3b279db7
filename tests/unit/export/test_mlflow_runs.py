"""A stored sweep as MLflow runs: as its own callback would have written them, and once."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.runs.reading.history import reports_of
from tests.unit.cli.conftest import Cli, cli
from tests.unit.delivery.servers import MlflowServer
from tests.unit.pages.sweeps import first_half, second_half, store

__all__ = ["cli"]


@pytest.fixture
def server() -> Iterator[MlflowServer]:
    made = MlflowServer()
    with made.running():
        yield made


def points(server: MlflowServer) -> int:
    return sum(len(run["metrics"]) for run in server.runs.values())


def test_a_sweep_is_exported_once(tmp_path: Path, cli: Cli, server: MlflowServer) -> None:
    folder, outcome = store(tmp_path / "store")
    ran = cli("export", folder.uri, "--to", "mlflow", "--out", server.url)
    assert (ran.code, ran.err) == (0, "")
    counted = sum(not row["overrun"] for row in reports_of(folder))
    assert ran.out.splitlines() == [
        f"{folder.sweep_id}: {len(outcome.trials)} trials, {counted} reports", server.url,
    ]  # fmt: skip
    assert len(server.runs) == len(outcome.trials) + 1
    before = copy.deepcopy(server.runs)
    assert cli("export", folder.uri, "--to", "mlflow", "--out", server.url).code == 0
    assert server.runs == before


def test_a_sweep_that_goes_on_is_exported_further(tmp_path: Path, cli: Cli, server: MlflowServer) -> None:
    folder, outcome = store(tmp_path / "store")
    half = first_half(folder, tmp_path / "half")
    assert cli("export", half.uri, "--to", "mlflow", "--out", server.url).code == 0
    so_far = points(server)
    second_half(folder, half)
    assert cli("export", half.uri, "--to", "mlflow", "--out", server.url).code == 0
    assert points(server) > so_far
    assert len(server.runs) == len(outcome.trials) + 1


def test_a_server_that_fails_is_one_line_and_the_next_export_continues(
    tmp_path: Path, cli: Cli, server: MlflowServer
) -> None:
    folder, outcome = store(tmp_path / "store")
    server.is_flaky = True
    ran = cli("export", folder.uri, "--to", "mlflow", "--out", server.url)
    assert ran.code == 1
    assert ran.err.startswith("error: MLflow at 127.0.0.1 answers 503 to ")
    assert "export it again: it continues where it was" in ran.err
    for _ in range(5):
        cli("export", folder.uri, "--to", "mlflow", "--out", server.url)
    server.is_flaky = False
    assert cli("export", folder.uri, "--to", "mlflow", "--out", server.url).code == 0
    assert len(server.runs) == len(outcome.trials) + 1


def test_without_an_address_is_one_line(tmp_path: Path, cli: Cli, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MLFLOW_TRACKING_URI", raising=False)
    folder, _ = store(tmp_path / "store")
    ran = cli("export", folder.uri, "--to", "mlflow")
    assert (ran.code, ran.out) == (2, "")
    assert "--out: names no MLflow server, and MLFLOW_TRACKING_URI is not set; write --out http" in ran.err
    ran = cli("export", folder.uri, "--to", "mlflow", "--out", "runs/")
    assert (ran.code, ran.out) == (2, "")
    assert "--out: 'runs/' is not a web address; write http://host:5000" in ran.err
