"""`raysweep init` writes files that run as they are, and overwrites nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.cli.commands.init import FILES
from raysweep.specs import SweepSpec
from tests.unit.cli.conftest import Cli

PARSE = """
import json, sys
from airflow.dag_processing.dagbag import DagBag
bag = DagBag(sys.argv[1])
tasks = {name: dag.task_ids for name, dag in bag.dags.items()}
print("FOUND " + json.dumps({"errors": dict(bag.import_errors), "tasks": tasks}))
"""
IMPORT = "import flow, prefect; assert type(flow.search) is prefect.Flow; print('FOUND', flow.search.name)"


def read(*command: str, at: Path) -> str:
    """What the program prints after FOUND."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("AIRFLOW", "PREFECT"))}
    home = {"AIRFLOW_HOME": str(at / ".airflow"), "PREFECT_HOME": str(at / ".prefect")}
    ran = subprocess.run(
        [sys.executable, "-c", *command],
        cwd=at,
        env=clean | home | {"AIRFLOW__CORE__LOAD_EXAMPLES": "False"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout.rpartition("FOUND ")[2].strip()


def test_the_files_are_there_and_each_is_named(cli: Cli, tmp_path: Path) -> None:
    ran = cli("init", "Churn model")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines()[:2] == [
        "churn-model: model.py, sweep.yaml, dag.py, flow.py in Churn model",
        "cd 'Churn model'",
    ]
    assert sorted(path.name for path in (tmp_path / "Churn model").iterdir()) == sorted(FILES)
    for name in FILES:
        text = (tmp_path / "Churn model" / name).read_text()
        assert "@name@" not in text
        assert len(text.splitlines()) < 60, "small files that teach"


def test_the_spec_is_valid_and_its_trainable_is_there(cli: Cli, tmp_path: Path) -> None:
    assert cli("init").code == 0
    spec = SweepSpec.from_file(tmp_path / "sweep.yaml")
    assert spec.trainable == "model:train"
    assert cli("plan", "sweep.yaml").code == 0


@pytest.mark.parametrize(
    ("folder", "name"),
    [("2026", "2026"), ("true", "true"), ("Über Nacht", "uber-nacht"), ("?!", "first-sweep")],
)
def test_the_sweep_has_the_name_of_the_folder(cli: Cli, tmp_path: Path, folder: str, name: str) -> None:
    told = json.loads(cli("init", folder, "--json").out)
    assert told == {"schema_version": 1, "folder": str(tmp_path / folder), "name": name, "files": list(FILES)}
    assert SweepSpec.from_file(tmp_path / folder / "sweep.yaml").name == name


def test_nothing_is_overwritten(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "dag.py").write_text("mine")
    (tmp_path / "flow.py").symlink_to("nowhere")
    ran = cli("init")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: FOLDER: '.' has dag.py, flow.py; init overwrites nothing:")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["dag.py", "flow.py"]
    assert (tmp_path / "dag.py").read_text() == "mine"


def test_a_folder_that_cannot_be_made_is_one_line(cli: Cli, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    ran = cli("init", "file/below")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith("error: FOLDER: 'file/below': Not a directory; ")


def test_airflow_reads_the_dag(cli: Cli, tmp_path: Path) -> None:
    cli("init", "churn")
    found = json.loads(read(PARSE, str(tmp_path / "churn"), at=tmp_path))
    assert found == {"errors": {}, "tasks": {"churn": ["sweep"]}}


def test_prefect_imports_the_flow(cli: Cli, tmp_path: Path) -> None:
    cli("init", "churn")
    assert read(IMPORT, at=tmp_path / "churn") == "churn"
