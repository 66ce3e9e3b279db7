"""The provider's metadata, and that nothing of it needs Ray or Prefect."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import subprocess
import sys
from importlib.metadata import entry_points
from pathlib import Path

import airflow
import jsonschema
import pytest

import raysweep_airflow
from raysweep_airflow.base import JobOperator
from raysweep_airflow.judging import JudgeOperator
from raysweep_airflow.operators import GateOperator, SweepOperator, TrainOperator
from raysweep_airflow.provider import get_provider_info


def test_the_metadata_is_what_airflow_takes() -> None:
    schema = json.loads((Path(airflow.__file__).parent / "provider_info.schema.json").read_text())
    jsonschema.validate(get_provider_info(), schema)


def test_airflow_finds_it() -> None:
    value = "raysweep_airflow.provider:get_provider_info"
    assert value in {each.value for each in entry_points(group="apache_airflow_provider")}


def test_all_parts_exist() -> None:
    info = get_provider_info()
    modules = [
        name for part in ("hooks", "operators", "triggers") for name in info[part][0]["python-modules"]
    ]
    assert all(importlib.import_module(name) for name in modules)
    classes = [*info["extra-links"], *(each["class-name"] for each in info["task-decorators"])]
    classes += [each["hook-class-name"] for each in info["connection-types"]]
    for path in classes:
        module, _, name = path.rpartition(".")
        assert hasattr(importlib.import_module(module), name)


def test_without_ray_and_prefect(tmp_path: Path) -> None:
    """Each name of the package, in a process where neither can be imported."""
    code = f"""
import sys

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("ray", "prefect"):
            raise ImportError(f"{{name}} is blocked")

sys.meta_path.insert(0, Blocker())
import raysweep_airflow
for name in {raysweep_airflow.__all__!r}:
    getattr(raysweep_airflow, name)
import raysweep_airflow.decorators
from raysweep_airflow import SweepOperator
SweepOperator(task_id="t", spec="t.yaml")
"""
    environment = os.environ | {"AIRFLOW_HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr[-3000:]


def test_the_metadata_alone_imports_nothing() -> None:
    code = (
        "import sys; from raysweep_airflow.provider import get_provider_info; get_provider_info();"
        "print([m for m in ('airflow', 'ray', 'pydantic', 'raysweep') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"


@pytest.mark.parametrize("operator", [SweepOperator, GateOperator, TrainOperator, JudgeOperator])
def test_operators_have_at_most_ten_parameters(operator: type[JobOperator]) -> None:
    own = [each for each in inspect.signature(operator.__init__).parameters if each not in ("self", "kwargs")]
    assert len(own) <= 10
