"""The variables by which what a trial logs itself lands in the runs of the sweep's trackers."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, cast

import pytest

import raysweep as rs
from raysweep import messages as msg
from raysweep.cluster.preparation import make_setup
from raysweep.messages import Job
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from raysweep.worker.process.leftovers import Leftovers
from raysweep.worker.process.rehearsal import _Nowhere
from raysweep.worker.runner import run_attempt
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace
from tests.unit.delivery.contract import options, run_life
from tests.unit.delivery.journals import GoldenSweep
from tests.unit.delivery.servers import MlflowServer


class Said(_Nowhere):
    """A link that keeps what was said."""

    def __init__(self) -> None:
        self.said: list[Any] = []

    def send(self, message: Any, *, waits: bool = False) -> None:
        self.said.append(message)


@pytest.fixture
def server() -> Iterator[MlflowServer]:
    found = MlflowServer()
    with found.running():
        yield found


def place_of(tmp_path: Path, *callbacks: Any, begun_at: float = 7.5) -> SweepPlace:
    """What workers of a sweep with these callbacks are told."""

    class Server:
        host, port, token = "127.0.0.1", 1, "t"

    spec = rs.SweepSpec(
        name="n",
        trainable="math:sqrt",
        param_space={"x": [1]},
        callbacks=callbacks,
        storage_path=str(tmp_path),
    )
    folder = SweepFolder(open_store(tmp_path), "golden-1")
    return make_setup(spec, folder, cast("Any", Server()), begun_at).place


def run(place: SweepPlace, trial: int = 3, rank: int = 0) -> tuple[dict[str, str], dict[str, str], list[Any]]:
    """The environment in a trial, what its context says, and what its worker said."""
    seen: list[Any] = []

    def train(config: dict[str, Any]) -> None:
        seen.append((dict(os.environ), dict(rs.get_context().trackers)))

    link = Said()
    job = Job(trial=trial, attempt=1, config={}, seed=0, rank=rank)
    run_attempt(train, job, place, WorkerShell(link), leftovers=Leftovers(can_replace=False))
    return (*seen[0], link.said)


NAMES = ("WANDB_RUN_GROUP", "WANDB_RUN_ID", "WANDB_RESUME", "MLFLOW_RUN_ID", "MLFLOW_TRACKING_URI")


@pytest.fixture(autouse=True)
def _clean(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*NAMES, "MLFLOW_EXPERIMENT_NAME", "WANDB_PROJECT"):
        monkeypatch.delenv(name, raising=False)


def test_a_trial_has_the_variables_of_the_trackers_and_the_next_one_has_its_own(tmp_path: Path) -> None:
    os.environ["WANDB_PROJECT"] = "theirs"
    place = place_of(tmp_path, options("wandb", mode="offline", shared_runs=True, project="p"))
    found, context, _ = run(place, trial=3)
    assert found["WANDB_RUN_GROUP"] == "golden-1"
    assert found["WANDB_RUN_ID"].endswith("-00003")
    assert found["WANDB_PROJECT"] == "p"
    assert context == {name: found[name] for name in context}
    assert set(context) == {"WANDB_RUN_GROUP", "WANDB_RUN_ID", "WANDB_RESUME", "WANDB_PROJECT"}
    assert not any(name in os.environ for name in NAMES)
    assert os.environ["WANDB_PROJECT"] == "theirs"
    other, _, _ = run(place, trial=4)
    assert other["WANDB_RUN_ID"].endswith("-00004")


def test_without_a_tracker_nothing_is_set(tmp_path: Path) -> None:
    found, context, _ = run(place_of(tmp_path))
    assert not any(name in found for name in NAMES)
    assert context == {}


def test_a_run_that_a_trial_opens_is_the_one_that_the_tracker_writes_to(
    server: MlflowServer, tmp_path: Path
) -> None:
    callback = options("mlflow", tracking_uri=server.url, shared_runs=True)
    sweep = GoldenSweep("pbt", tmp_path)
    sweep.write()
    begun_at = _begun_at(sweep)
    found, context, _ = run(place_of(tmp_path, callback, begun_at=begun_at), trial=3)
    assert context["MLFLOW_RUN_ID"] == found["MLFLOW_RUN_ID"]
    again, _, _ = run(place_of(tmp_path, callback, begun_at=begun_at), trial=3)
    assert again["MLFLOW_RUN_ID"] == found["MLFLOW_RUN_ID"], "a retry logs to the same run"
    options_of_tracker = {"tracking_uri": server.url, "shared_runs": True}
    options_of_tracker["experiment"] = found["MLFLOW_EXPERIMENT_NAME"]
    run_life(sweep, options("mlflow", **options_of_tracker))
    runs = [each for each in server.runs.values() if each["tags"]["raysweep.trial_id"] == "00003"]
    assert [each["info"]["run_id"] for each in runs] == [found["MLFLOW_RUN_ID"]]
    parent = next(each for each in server.runs.values() if each["tags"]["raysweep.trial_id"] == "sweep")
    assert runs[0]["tags"]["mlflow.parentRunId"] == parent["info"]["run_id"]
    assert runs[0]["metrics"]


def test_a_trial_begins_although_its_run_cannot_be_opened(server: MlflowServer, tmp_path: Path) -> None:
    place = place_of(tmp_path, options("mlflow", tracking_uri="http://127.0.0.1:1", shared_runs=True))
    found, _, said = run(place)
    assert "MLFLOW_RUN_ID" not in found
    assert found["MLFLOW_TRACKING_URI"] == "http://127.0.0.1:1"
    notes = [each.text for each in said if isinstance(each, msg.TrialNoted)]
    assert any("could not be opened" in note for note in notes)


def test_only_the_first_rank_of_a_gang_opens_a_run(server: MlflowServer, tmp_path: Path) -> None:
    place = place_of(tmp_path, options("mlflow", tracking_uri=server.url, shared_runs=True))
    found, _, _ = run(place, rank=1)
    assert "MLFLOW_RUN_ID" not in found
    assert not server.runs


def _begun_at(sweep: GoldenSweep) -> float:
    from raysweep.delivery.feed import Feed

    feed = Feed(sweep.folder)
    feed.read(1)
    return feed.begun_at
