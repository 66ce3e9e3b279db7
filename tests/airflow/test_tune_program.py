"""`SweepOperator(tune=…)`: a Ray Tune program is a task as it is. Airflow itself is put aside."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from airflow.exceptions import AirflowException
from airflow.sdk import DAG

import raysweep as rs
from raysweep.errors import SpecError
from raysweep_airflow import SweepOperator
from tests.airflow.contexts import context_of
from tests.orchestrators.tune_program import PROGRAM

pytestmark = [pytest.mark.ray, pytest.mark.servers, pytest.mark.timeout(300)]

SPEC = {"isolation": "inline", "max_concurrent_trials": 1}


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    path = tmp_path / "search.py"
    path.write_text(PROGRAM)
    monkeypatch.setenv("MARKS", str(tmp_path / "marks"))
    return path


def task(program: Path, *names: str, **more: Any) -> SweepOperator:
    with DAG("d", schedule=None):
        return SweepOperator(
            task_id="tuned",
            tune=[str(program), *names] if names else program,
            spec={**SPEC, "storage_path": str(program.parent / "sweeps")},
            address="here",
            **more,
        )


def context(operator: SweepOperator, began: int = 1) -> dict[str, Any]:
    run = SimpleNamespace(start_date=datetime(2026, 11, began, tzinfo=UTC), clear_number=0)
    return {**context_of(operator), "dag_run": run}


def test_a_program_is_a_task_and_a_retry_has_its_results_at_once(
    program: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    operator = task(program, "first", "second")
    given = context(operator)
    result = operator.execute(given)
    out = capsys.readouterr().out
    assert "best first {'x': 1}" in out
    assert "best second {'x': 1}" in out
    assert (result["status"], result["best"]["config"]) == ("completed", {"x": 1})
    assert [each["sweep_id"].split("-")[0] for each in result["sweeps"]] == ["first", "second"]
    assert result["sweeps"][-1]["outcome_uri"] == result["outcome_uri"]
    marks = (program.parent / "marks").read_text()
    assert marks.split() == ["3", "2", "1"] * 2
    given["ti"].try_number = 2
    assert operator.execute(given)["outcome_uri"] == result["outcome_uri"]
    assert (program.parent / "marks").read_text() == marks, "nothing ran again"


def test_a_run_that_is_made_again_begins_anew(program: Path) -> None:
    operator = task(program, "first")
    before = operator.execute(context(operator))
    after = operator.execute(context(operator, began=2))
    assert before["sweep_id"] != after["sweep_id"]
    assert (program.parent / "marks").read_text().split() == ["3", "2", "1"] * 2


@pytest.mark.parametrize(("on_clear", "runs"), [("reuse", 1), ("restart", 2)])
def test_a_clear_does_what_the_operator_says(program: Path, on_clear: Any, runs: int) -> None:
    operator = task(program, "first", on_clear=on_clear)
    given = context(operator)
    operator.execute(given)
    given["ti"].try_number, given["ti"].max_tries = 2, 1
    given["dag_run"].clear_number = 1
    assert operator.execute(given)["status"] == "completed"
    assert (program.parent / "marks").read_text().split() == ["3", "2", "1"] * runs


def test_a_program_that_runs_no_sweep_or_fails_is_named(program: Path) -> None:
    operator = task(program)
    with pytest.raises(AirflowException, match=r"called neither Tuner\.fit nor tune\.run"):
        operator.execute(context(operator))
    program.write_text("raise SystemExit(3)")
    with pytest.raises(AirflowException, match="ended with exit code 3"):
        operator.execute(context(operator))
    program.unlink()
    with pytest.raises(AirflowException, match=r"no file .*search\.py"):
        operator.execute(context(operator))


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"job": {}}, "job"),
        ({"conn_id": "cluster"}, "conn_id"),
        ({"address": "rayjob:night.yaml"}, "address"),
        ({"on_clear": "retry"}, "on_clear"),
        ({"tune": []}, "tune"),
    ],
)
def test_what_only_a_job_can_do_is_refused(given: dict[str, Any], field: str) -> None:
    with DAG("d", schedule=None), pytest.raises(SpecError, match=f"^{field}: "):
        SweepOperator(**{"task_id": "tuned", "tune": "search.py", **given})
    with DAG("d", schedule=None), pytest.raises(SpecError, match=r"^spec: is missing"):
        SweepOperator(task_id="tuned")


def test_a_try_that_was_killed_is_continued(program: Path) -> None:
    """It dies in the second trial of the second sweep; the next try does what is left."""
    killed = f"""
import sys
sys.path[:0] = {sys.path!r}
from pathlib import Path
from tests.airflow.test_tune_program import task, context
operator = task(Path({str(program)!r}), "first", "second")
operator.execute(context(operator))
"""
    environment = {**os.environ, "DIES_AT": "2"}
    ended = subprocess.run([sys.executable, "-c", killed], env=environment, check=False, capture_output=True)
    assert ended.returncode == -signal.SIGKILL, ended.stderr.decode()[-2000:]
    assert (program.parent / "marks").read_text().split() == ["3", "2", "1", "3", "2"]
    operator = task(program, "first", "second")
    given = context(operator)
    given["ti"].try_number = 2
    assert operator.execute(given)["best"]["config"] == {"x": 1}
    assert (program.parent / "marks").read_text().split() == ["3", "2", "1", "3", "2", "2", "1"]
    assert len(rs.sweeps(str(program.parent / "sweeps"))) == 2
