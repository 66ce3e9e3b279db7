"""`@task.sweep`: what the function may be, and how it travels."""

from __future__ import annotations

import inspect
import sys
import tempfile
import types
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG, task
from airflow.sdk.exceptions import TaskDeferred

from examples.quick import quadratic
from raysweep.errors import SpecError
from raysweep.jobs import JobOptions
from raysweep_airflow import SweepOperator
from raysweep_airflow.decorators import DecoratedSweepOperator, check_alone, import_path, source_of

SPEC = {"param_space": {"x": {"uniform": [0, 1]}}, "metric": "loss", "mode": "min", "storage_path": "/sweeps"}

DAG_FILE = r'''
import math
from airflow.sdk import DAG, task

SCALE, sqrt = 2, None

with DAG("d", schedule=None):
    @task.sweep(
        spec={"param_space": {"x": 1}, "metric": "loss", "mode": "min"},
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

def not_alone_by_default(config, scale=SCALE):
    return {"loss": scale}

def not_alone_by_keyword(config, *, key=lambda x: x * SCALE):
    return {"loss": key(1)}

def alone_with_defaults(config, low=max(1, 2), key=lambda x: x, *, many=[n for n in range(3)]):
    return {"loss": key(low) + len(many)}

if SCALE:
    import functools

    @functools.lru_cache
    def indented(config=None):
        """A text
        of two lines."""
        text = """
first
    second
        """
        return {"loss": len(text), "text": text}

def make():
    local = 3

    def closed(config, local=local):
        return {"loss": local}

    return closed
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
    refused = ("not_alone", "not_alone_inside", "not_alone_by_default", "not_alone_by_keyword")
    for function in (getattr(dag_file, name) for name in refused):
        with pytest.raises(SpecError, match=f"{function.__name__} uses 'SCALE' of the DAG's file"):
            check_alone(function)


def test_defaults_are_of_where_it_is_written(dag_file: Any) -> None:
    """They would be evaluated on the cluster, where the DAG's file is not."""
    with pytest.raises(SpecError, match="closed uses 'local' of the DAG's file"):
        check_alone(dag_file.make())
    check_alone(dag_file.alone_with_defaults)
    space: dict[str, Any] = {}
    exec(source_of(dag_file.alone_with_defaults), space)
    assert space["alone_with_defaults"]({}) == {"loss": 5}


def test_texts_of_an_indented_function_stay_what_they_are(dag_file: Any) -> None:
    """At the first column too, where taking the indent away would end in an IndentationError."""
    function = inspect.unwrap(dag_file.indented)
    check_alone(function)
    space: dict[str, Any] = {}
    exec(source_of(function), space)
    assert space["indented"]() == function()
    assert space["indented"].__doc__ == function.__doc__


def test_a_lambda_is_refused(dag_file: Any) -> None:
    with pytest.raises(SpecError, match="is not written as a function"):
        source_of(lambda config: {"loss": 0.0})
    both = [lambda config: {"loss": 0.0},
            lambda config: {"loss": 1.0}]  # fmt: skip
    with pytest.raises(SpecError, match="is not written as a function"):
        source_of(both[1])


def test_a_try_leaves_no_folder_on_the_worker(
    dag_file: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "tmp"))
    (tmp_path / "tmp").mkdir()
    operator = DecoratedSweepOperator(task_id="fit", spec=SPEC, python_callable=dag_file.alone.function)

    def submit(self: Any, context: Any) -> None:
        (module,) = self.options(JobOptions()).py_modules
        assert Path(module).read_text() == source_of(dag_file.alone.function)
        raise TaskDeferred(trigger=None, method_name="execute_complete")

    # What stands behind it needs a cluster; here it is about what is there before, and after a deferral.
    monkeypatch.setattr(SweepOperator, "execute", submit)
    for _ in range(3):
        with pytest.raises(TaskDeferred):
            operator.execute({})
    assert list((tmp_path / "tmp").iterdir()) == []


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
