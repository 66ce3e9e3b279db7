"""What gate, approval and training register: a gate that has ended, and a registry of the user's own."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import DAG
from airflow.sdk.exceptions import AirflowFailException

from raysweep.errors import SpecError
from raysweep.outcome import Decision, TrainOutcome
from raysweep.pipeline import with_gate
from raysweep.pipeline.candidate import find_candidate
from raysweep.specs.approval import ApprovalSpec
from raysweep.step import best_trials, brief
from raysweep.storage.objects.opening import open_store
from raysweep_airflow import ApproveOperator, TrainOperator
from raysweep_airflow.ends import explained
from tests.unit.pipeline.gates import night, swept
from tests.unit.runs.across_runs.book import OWN, Book

TRAIN = {"name": "full", "trainable": "m:f"}


@pytest.fixture(autouse=True)
def _empty(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Book, "releases", [])


def handed(storage: Path, key: str = "n1", score: float = 0.5, **options: Any) -> dict[str, Any]:
    """What a gate hands on."""
    outcome = swept(key, score).model_copy(update={"uri": f"{storage}/{key}"})
    return brief(with_gate(outcome, night(storage, key, score, **options)))


def trained(storage: Path, outcome: Any, registry: Any = OWN) -> dict[str, Any]:
    with DAG("d", schedule=None):
        operator = TrainOperator(task_id="train", spec=TRAIN, outcome=outcome, registry=registry)
    ended = {"status": "completed", "started_at": 1, "ended_at": 2, "model_uri": f"{storage}/full-1/m"}
    result: dict[str, Any] = operator.handed_on({}, TrainOutcome(run_id="full-1", name="full", **ended))
    return result


def test_a_training_registers_its_model_once(tmp_path: Path) -> None:
    outcome = handed(tmp_path)
    assert trained(tmp_path, outcome)["registered"] == "registered: version v-n1"
    assert trained(tmp_path, outcome)["registered"] == "registered: version v-n1", "as a retry does"
    [release] = Book.releases
    assert (release.source, release.run_id, release.trial_id) == (f"{tmp_path}/full-1/m", "full-1", "00000")
    assert "registered" not in trained(tmp_path, outcome, registry=None)


def test_a_training_of_another_trial_registers_nothing(tmp_path: Path) -> None:
    outcome = handed(tmp_path)
    [entry] = best_trials(outcome, 1)
    trained(tmp_path, entry | {"trial_id": "00007"})
    assert Book.releases == []
    assert trained(tmp_path, entry)["registered"] == "registered: version v-n1"


def test_a_registry_that_fails_is_said_and_costs_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Book, "error", ValueError("no such project"))
    said = trained(tmp_path, handed(tmp_path))
    assert said["registered"] == "registry pending: ValueError: no such project"
    monkeypatch.setattr(Book, "error", None)
    assert trained(tmp_path, handed(tmp_path))["registered"] == "registered: version v-n1"


def test_behind_a_gate_without_approval_it_registers_the_checkpoint(tmp_path: Path) -> None:
    with DAG("d", schedule=None):
        passing = ApproveOperator(task_id="register", outcome=handed(tmp_path), registry=OWN)
    result = passing.execute({"ti": None, "task_state_store": {}})
    assert result["registered"] == "registered: version v-n1"
    assert Book.releases[0].source == f"{open_store(tmp_path).url}/n1/checkpoints/00000/3"


def test_what_waits_is_registered_once_it_is_approved(tmp_path: Path) -> None:
    outcome = handed(tmp_path, approval=ApprovalSpec(timeout=3600))
    candidate = find_candidate(outcome)
    assert candidate is not None
    candidate.decide(Decision(approved=True, by="bob", at=time.time()))
    with DAG("d", schedule=None):
        approve = ApproveOperator(task_id="approve", outcome=outcome, registry=OWN)
    result = approve.execute({"ti": None, "task_state_store": {}})
    assert result["registered"] == "registered: version v-n1"
    assert [each.sweep_id for each in Book.releases] == ["n1"]


def test_a_training_that_is_handed_nothing_does_not_train_another_config(tmp_path: Path) -> None:
    """A task before it that was marked as success returns nothing."""
    with DAG("d", schedule=None):
        operator = TrainOperator(task_id="train", spec=TRAIN, outcome={"best": {"config": {}}})
        alone = TrainOperator(task_id="alone", spec=TRAIN)
    operator.outcome = None
    with pytest.raises(AirflowFailException, match="outcome: is empty"), explained(operator.log):
        operator.known({})
    assert alone.known({}) is None


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("mlfow", "registry: 'mlfow' is not known here; did you mean 'mlflow'"),
        ({"mlflow": {"modl": "x"}}, "registry.mlflow.modl: unknown field 'modl'"),
    ],
)
def test_a_wrong_registry_is_refused_where_the_dag_is_read(given: Any, said: str) -> None:
    with pytest.raises(SpecError, match=said):
        TrainOperator(task_id="train", spec=TRAIN, registry=given)


def test_a_registry_needs_a_gate(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="registry: requires the verdict of a gate"):
        trained(tmp_path, {"best": {"config": {}}})
