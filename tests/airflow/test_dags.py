"""The DAGs that ship: how long they take to be read, what they import, how they hang together."""

from __future__ import annotations

import json
import subprocess
import sys
from datetime import timedelta
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from tests.airflow import pages  # noqa: F401  first: it sees to AIRFLOW_HOME

ROOT = Path(__file__).parents[2]
AIRFLOW = tuple(int(part) for part in version("apache-airflow-core").split(".")[:2])
FILES = ("nightly_sweep", "sweep_many", "sweep_on_asset")
# What a dag-processor has imported before it forks for a file.
PARSE = """
import json, os, sys, time
import airflow.sdk
from airflow.sdk import DAG, Asset, BaseOperator, Param, task
import airflow.dag_processing.processor
import pendulum

def measure(path):
    before = time.process_time()
    exec(compile(open(path).read(), path, "exec"), {"__name__": "read", "__file__": path})
    heavy = [name for name in ("ray", "pandas", "lightgbm", "prefect", "numpy") if name in sys.modules]
    return {"seconds": time.process_time() - before, "heavy": heavy}

known = {name for name in ("ray", "pandas", "lightgbm", "prefect", "numpy") if name in sys.modules}
assert not known, known
for path in sys.argv[1:]:
    sys.stdout.flush()
    if os.fork() == 0:
        print("FOUND " + json.dumps({path: measure(path)}), flush=True)
        os._exit(0)
    os.wait()
"""


@pytest.fixture(scope="module")
def parsed() -> dict[str, dict[str, Any]]:
    """By file: the seconds of the processor that reading it takes, and what of the heavy it imports."""
    paths = [str(ROOT / "dags" / f"{name}.py") for name in FILES]
    done = subprocess.run(
        [sys.executable, "-c", PARSE, *paths], capture_output=True, text=True, timeout=240, check=False
    )
    lines = [line.removeprefix("FOUND ") for line in done.stdout.splitlines() if line.startswith("FOUND ")]
    found = {Path(path).stem: each for line in lines for path, each in json.loads(line).items()}
    assert sorted(found) == sorted(FILES), done.stderr
    return found


@pytest.mark.parametrize("name", FILES)
def test_a_dag_file_is_read_in_a_second(parsed: dict[str, dict[str, Any]], name: str) -> None:
    assert parsed[name]["seconds"] < 1.0
    assert parsed[name]["heavy"] == []


@pytest.fixture(scope="module")
def dags() -> dict[str, Any]:
    from tests.airflow.dagbags import DagBag

    bag = DagBag(str(ROOT / "dags"), load_op_links=False)
    assert bag.import_errors == {}
    return dict(bag.dags)


def test_the_night_is_at_ten_in_berlin_and_makes_up_for_nothing(dags: dict[str, Any]) -> None:
    import pendulum

    night = dags["nightly_sweep"]
    assert not night.catchup
    assert night.max_active_runs == 1
    assert night.timezone.name == "Europe/Berlin"
    assert _expression(night) == "0 22 * * *"
    assert night.params["deadline"] == "06:00 Europe/Berlin"
    # The same time of day on both sides of a change of the clocks.
    from airflow.timetables.base import TimeRestriction

    core = _core_timetable(night)
    starts = []
    last = None
    for _ in range(3):
        earliest = pendulum.datetime(2026, 10, 24, tz="Europe/Berlin")
        info = core.next_dagrun_info(
            last_automated_data_interval=last,
            restriction=TimeRestriction(earliest=earliest, latest=None, catchup=True),
        )
        last = info.data_interval
        starts.append(info.run_after.in_timezone("UTC").format("DD HH:mm"))
    assert starts == ["24 20:00", "25 21:00", "26 21:00"]


def _core_timetable(dag: Any) -> Any:
    """The scheduler's own, of the same meaning."""
    from airflow.timetables.trigger import CronTriggerTimetable

    return CronTriggerTimetable(_expression(dag), timezone=dag.timezone)


def _expression(dag: Any) -> str:
    timetable = dag.timetable  # with an underscore before Airflow 3.2
    return str(getattr(timetable, "expression", None) or timetable._expression)


def test_the_night_is_sweep_then_gate_then_training(dags: dict[str, Any]) -> None:
    night = dags["nightly_sweep"]
    assert [task.task_id for task in night.topological_sort()] == ["sweep", "gate", "train"]
    assert night.get_task("gate").upstream_task_ids == {"sweep"}
    assert night.get_task("train").upstream_task_ids == {"gate"}
    for task in night.tasks:
        assert task.deferrable, task.task_id
        assert task.retries == 3
        assert task.address is None


def test_the_training_is_scheduled_on_what_the_sweep_updates(dags: dict[str, Any]) -> None:
    (asset,) = dags["find_best"].get_task("sweep").outlets
    assert asset.name == "best_config"
    assert dags["train_on_best"].timetable.asset_condition == asset


def test_many_sweeps_are_mapped(dags: dict[str, Any]) -> None:
    sweeps = dags["sweep_many"].get_task("sweep")
    assert sweeps.is_mapped
    assert sweeps.upstream_task_ids == {"specs"}
    assert sweeps.partial_kwargs["max_active_tis_per_dagrun"] == 2


@pytest.mark.parametrize("example", ["flights", "quick"])
def test_the_specs_of_the_night_are_whole(dags: dict[str, Any], example: str) -> None:
    """As the operators render them: the example, the deadline, the storage."""
    from raysweep.specs import SweepSpec, TrainSpec
    from raysweep_airflow import documents

    night = dags["nightly_sweep"]
    params = {"example": example, "deadline": "06:00 Europe/Berlin", "storage": "s3://bucket/sweeps"}
    context = {"dag": night, "params": params}
    sweep = SweepSpec.from_any(documents.read("night.yaml", context))
    assert sweep.name == example
    assert str(sweep.stop.deadline) == "06:00 Europe/Berlin"
    assert sweep.storage_path == "s3://bucket/sweeps"
    assert sweep.warm_start == "champion"
    train = TrainSpec.from_any(documents.read("night_train.yaml", context))
    assert train.storage_path == "s3://bucket/sweeps"
    plain = documents.read("night.yaml", {"dag": night, "params": params | {"storage": ""}})
    assert "storage_path" not in plain


def test_an_address_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_ADDRESS", "local")
    from tests.airflow.dagbags import DagBag

    bag = DagBag(str(ROOT / "dags" / "nightly_sweep.py"), load_op_links=False)
    assert {task.address for task in bag.dags["nightly_sweep"].tasks} == {"local"}


@pytest.mark.skipif(AIRFLOW < (3, 1), reason="forms are in Airflow 3.1 and newer")
def test_with_approval_a_person_decides_between_gate_and_training(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAYSWEEP_APPROVAL", "required")
    from tests.airflow.dagbags import DagBag

    night = DagBag(str(ROOT / "dags" / "nightly_sweep.py"), load_op_links=False).dags["nightly_sweep"]
    assert [task.task_id for task in night.topological_sort()] == ["sweep", "gate", "approve", "train"]
    assert night.get_task("train").upstream_task_ids == {"approve"}
    gate, train = night.get_task("gate"), night.get_task("train")
    assert gate.approval == {"timeout": "3h"}
    once = timedelta(hours=8 + 3) + gate.execution_timeout + train.execution_timeout
    assert once < night.dagrun_timeout
