"""The examples of the gallery are whole folders: their DAGs, flows and specs load, and the quick ones run."""

from __future__ import annotations

import importlib
import json
import re
from pathlib import Path
from typing import Any

import pytest

from devtools.pictures.gallery import EXAMPLES, REPORTS, ROOT
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.pipeline import PipelineSpec

PAGE = (ROOT / "docs/gallery.md").read_text()


@pytest.mark.parametrize("name", EXAMPLES)
def test_an_example_is_a_whole_folder_and_the_page_shows_it(name: str) -> None:
    folder = ROOT / "examples" / name
    assert {"sweep.yaml", "dag.py", "flow.py"} <= {path.name for path in folder.iterdir()}
    assert (REPORTS / f"{name}.html").is_file()
    for shown in (f"examples/{name}/", f"(gallery/{name}.html)", f"images/gallery-{name}-light.png"):
        assert shown in PAGE, f"docs/gallery.md lacks {shown}"


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_spec_is_valid_and_its_sweep_has_the_name_of_the_folder(name: str) -> None:
    folder = ROOT / "examples" / name
    kinds = {"sweep.yaml": SweepSpec, "train.yaml": TrainSpec, "night.yaml": PipelineSpec}
    specs = {path.name: kinds[path.name].from_file(path) for path in folder.glob("*.yaml")}
    sweep = specs["sweep.yaml"]
    assert isinstance(sweep, SweepSpec)
    assert sweep.name == name
    assert f"raysweep sweep examples/{name}/sweep.yaml" in (folder / "sweep.yaml").read_text()


@pytest.mark.parametrize("name", [name for name in EXAMPLES if name != "finetune"])
def test_every_sweep_can_be_planned(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The trainable is imported, the program is found. That of `finetune` needs an environment of its own."""
    from raysweep.cli import main

    monkeypatch.chdir(ROOT)
    where = ["--storage", str(tmp_path), "--json"]
    assert main(["plan", f"examples/{name}/sweep.yaml", *where]) == 0, capsys.readouterr().err
    assert json.loads(capsys.readouterr().out)["sweep_id"].startswith(f"{name}-")


def test_every_dag_is_read_and_its_tasks_hang_together() -> None:
    from tests.airflow import pages  # noqa: F401  first: it sees to AIRFLOW_HOME

    pytest.importorskip("airflow")
    from airflow.dag_processing.dagbag import DagBag

    bag = DagBag(str(ROOT / "examples"), load_op_links=False)
    assert bag.import_errors == {}
    tasks = {dag_id: [task.task_id for task in dag.topological_sort()] for dag_id, dag in bag.dags.items()}
    expected = {name: ["sweep"] for name in EXAMPLES}
    assert tasks == expected | {"quick": ["sweep", "train"], "flights": ["sweep", "gate", "train"]}


@pytest.mark.parametrize("name", EXAMPLES)
def test_every_flow_is_loaded(name: str) -> None:
    prefect = pytest.importorskip("prefect")
    module: Any = importlib.import_module(f"examples.{name}.flow")
    assert [each for each in vars(module).values() if isinstance(each, prefect.Flow)]
    assert callable(module.search)
    assert f"`python -m examples.{name}.flow`" in (module.__doc__ or "")


def test_the_reports_name_no_folder_of_the_machine_that_made_them() -> None:
    pattern = re.compile(r"[^\w.](/(?:home|root|work|Users)/[\w./-]+)")
    found = {path.name: pattern.findall(path.read_text()) for path in REPORTS.glob("*.html")}
    assert sorted(found) == sorted(f"{name}.html" for name in EXAMPLES)
    assert not any(found.values()), found


@pytest.mark.ray
@pytest.mark.parametrize(("name", "trials"), [("quick", 8), ("customers", 20)])
def test_a_quick_example_runs_as_it_stands(
    name: str, trials: int, ray_cluster: object, tmp_path: Path
) -> None:
    import raysweep as rs

    spec = SweepSpec.from_file(ROOT / "examples" / name / "sweep.yaml").replace(storage_path=str(tmp_path))
    outcome = rs.run_sweep(spec, key="gallery")
    assert outcome.status == "completed"
    assert len(outcome.trials) == trials
    assert {trial.state for trial in outcome.trials} <= {"completed", "stopped"}
