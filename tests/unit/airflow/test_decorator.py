"""`@task.sweep`: what the function may be, and how it travels."""

from __future__ import annotations

import sys
import types
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task

from examples.quick import quadratic
from raysweep.errors import SpecError
from raysweep_airflow.decorators import DecoratedSweepOperator, check_alone, import_path, source_of

SPEC = {"param_space": {"x": {"uniform": [0, 1]}}, "metric": "loss", "mode": "min", "storage_path": "/sweeps"}

DAG_FILE = '''
import math
from airflow.sdk import DAG, task

SCALE, sqrt = 2, None

with DAG("d", schedule=None):
    @task.sweep(
        spec={"param_space": {}, "metric": "loss", "mode": "min"},
        retries=3,
    )
    def alone(config):
        """Needs nothing around it."""
        import math

        return {"loss": math.sqrt(config["x"])}

    alone()

def not_alone(config):
    return {"loss": SCALE * config["x"]}

def not_alone_inside(config):
    return {"loss": max(SCALE for _ in range(3))}
'''


@pytest.fixture
def dag_file(tmp_path: Path) -> types.ModuleType:
    """A module as Airflow makes it of a DAG's file: under a name that nobody else can import."""
    path = tmp_path / "dag.py"
    path.write_text(DAG_FILE)
    module = types.ModuleType("unusual_prefix_123_dag")
    module.__file__ = str(path)
    sys.modules[module.__name__] = module
    exec(compile(DAG_FILE, str(path), "exec"), vars(module))
    yield module
    del sys.modules[module.__name__]


def test_a_function_of_the_dag_travels_as_its_source(dag_file: Any) -> None:
    operator = dag_file.alone.operator if hasattr(dag_file.alone, "operator") else None
    function = dag_file.alone.function
    assert operator is None
    assert import_path(function) is None
    check_alone(function)
    space: dict[str, Any] = {}
    exec(source_of(function), space)
    assert space["alone"]({"x": 4.0}) == {"loss": 2.0}


def test_one_that_needs_the_dag_is_refused(dag_file: Any) -> None:
    for function in (dag_file.not_alone, dag_file.not_alone_inside):
        with pytest.raises(SpecError, match=f"{function.__name__} uses 'SCALE' of the DAG's file"):
            check_alone(function)


def test_a_function_of_a_module_goes_by_its_name() -> None:
    assert import_path(quadratic) == "examples.quick:quadratic"
    with DAG("d", schedule=None):
        made = task.sweep(quadratic, spec=SPEC, task_id="fit")()
    operator = made.operator
    assert isinstance(operator, DecoratedSweepOperator)
    spec = operator.asked({}, dict(SPEC))
    assert (spec.name, spec.trainable) == ("fit", "examples.quick:quadratic")


def test_its_config_comes_from_the_space() -> None:
    with DAG("d", schedule=None), pytest.raises(SpecError, match="is called with arguments"):
        task.sweep(quadratic, spec=SPEC, task_id="fit")({"x": 1})


def test_its_trainable_is_the_function() -> None:
    with DAG("d", schedule=None):
        made = task.sweep(quadratic, spec=SPEC, task_id="fit")()
    with pytest.raises(SpecError, match="trainable: is the decorated function"):
        made.operator.asked({}, SPEC | {"trainable": "m:f"})
