"""The driver on a real cluster: runs what it is asked, says how it ended, and leaves nothing when stopped."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from pydantic import SecretStr

import raysweep as rs
from raysweep.jobs import JobRequest
from raysweep.jobs.errorline import find_error
from raysweep.jobs.request import RequestOptions
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.view import RunView
from raysweep.specs import RunRequest
from tests.engine.conftest import wait_for
from tests.jobs.cluster import Cluster

pytestmark = [pytest.mark.ray, pytest.mark.servers, pytest.mark.timeout(900)]
MakeSpec = Callable[..., rs.SweepSpec]
FolderOf = Callable[..., SweepFolder]
Lines = Callable[[], list[list[str]]]


def ask(spec: rs.SweepSpec, **options: object) -> JobRequest:
    return JobRequest(kind="sweep", key="k", spec=spec.to_dict(), options=RequestOptions(**options))  # type: ignore[arg-type]


@pytest.mark.slow
def test_a_sweep_runs_to_its_end(cluster: Cluster, make_spec: MakeSpec, folder_of: FolderOf) -> None:
    spec = make_spec("steps", {"steps": 2}, num_samples=3)
    job = cluster.submit("whole.1", ask(spec))
    info = cluster.wait(job)
    assert (info.status, info.exit_code) == ("SUCCEEDED", 0), cluster.logs(job)
    outcome = folder_of(spec).read_outcome()
    assert outcome is not None
    assert outcome.status == "completed"
    assert outcome.counts == {"completed": 3}
    log = cluster.logs(job)
    assert outcome.sweep_id in log
    assert "every trial has ended" in log
    assert find_error(log) is None
    cluster.wait_until_clean()


def stop_by_client(cluster: Cluster, job: str) -> None:
    assert cluster.ask(lambda client: client.stop(job))


def stop_by_ray(cluster: Cluster, job: str) -> None:
    cluster.ray("job", "stop", job, "--no-wait")


def stop_by_signal(cluster: Cluster, job: str) -> None:
    (driver,) = cluster.drivers()
    os.kill(driver, signal.SIGTERM)


@pytest.mark.parametrize(
    ("stop", "trainable", "isolation"),
    [
        pytest.param(stop_by_client, "forever", "worker", marks=pytest.mark.slow),
        (stop_by_ray, "stubborn", "process"),
        pytest.param(stop_by_signal, "forever", "worker", marks=pytest.mark.slow),
        pytest.param(stop_by_client, "stubborn", "worker", marks=pytest.mark.slow),
        pytest.param(stop_by_ray, "forever", "process", marks=pytest.mark.slow),
        pytest.param(stop_by_signal, "stubborn", "actor", marks=pytest.mark.slow),
    ],
)
def test_a_stopped_job_has_cancelled_its_sweep_and_leaves_nothing(
    stop: Callable[[Cluster, str], None],
    trainable: str,
    isolation: str,
    cluster: Cluster,
    make_spec: MakeSpec,
    folder_of: FolderOf,
    lines: Lines,
    record_property: Callable[[str, object], None],
) -> None:
    spec = make_spec(trainable, {"stubborn": 0}, num_samples=4, isolation=isolation, stop={"grace_s": 60})
    job = cluster.submit(f"{stop.__name__}-{trainable}-{isolation}.1", ask(spec))
    wait_for(lambda: len(lines()) >= 2, 60)
    assert {"actor TrialWorker"} < set(cluster.leftovers())
    began = time.monotonic()
    stop(cluster, job)
    outcome = wait_for(folder_of(spec).read_outcome, 10)
    record_property("cancelled_after_s", time.monotonic() - began)
    assert outcome.status == "cancelled"
    assert "its job was stopped" in outcome.why
    # A job that ended by its own signal handler has done what it should; one that Ray stopped is STOPPED.
    assert cluster.wait(job).status == ("SUCCEEDED" if stop is stop_by_signal else "STOPPED")
    record_property("clean_after_s", cluster.wait_until_clean())


@pytest.mark.slow
def test_bad_input_is_the_last_line_and_the_exit_code(cluster: Cluster, make_spec: MakeSpec) -> None:
    spec = make_spec("noop", num_samples=1, resources={"cpu": 64})
    job = cluster.submit("infeasible.1", ask(spec))
    info = cluster.wait(job)
    assert (info.status, info.exit_code) == ("FAILED", 2)
    log = cluster.logs(job)
    record = find_error(log)
    assert record is not None
    assert record["class"] == "InfeasibleResourcesError"
    assert record["retryable"] is False
    assert "64 CPU" in record["message"]
    assert log.rstrip().splitlines()[-1].startswith("raysweep-error: ")


@pytest.mark.slow
@pytest.mark.parametrize("isolation", ["worker", pytest.param("process", marks=pytest.mark.slow)])
def test_the_driver_runs_only_what_the_clusters_list_allows(
    cluster: Cluster, make_spec: MakeSpec, folder_of: FolderOf, lines: Lines, isolation: str
) -> None:
    """Whoever submitted: no client of ours would send these requests. The workers hold to it too."""
    allowed = {"env_vars": {"RAYSWEEP_TRAINABLES": SecretStr("tests.engine")}}
    refused = {"stranger": "subprocess:call", "borrower": "tests.engine.trainables:os.system"}
    for name, reference in refused.items():
        spec = make_spec(reference, num_samples=1, name=name, isolation=isolation)
        info = cluster.wait(job := cluster.submit(f"{name}-{isolation}.1", ask(spec), **allowed))
        assert (info.status, info.exit_code) == ("FAILED", 2), cluster.logs(job)
        record = find_error(cluster.logs(job))
        assert record is not None
        assert record["class"] == "TrainableImportError"
        assert record["retryable"] is False
        assert "RAYSWEEP_TRAINABLES allows here (tests.engine)" in record["message"]
    spec = make_spec("noop", num_samples=1, isolation=isolation)
    assert cluster.wait(cluster.submit(f"own-{isolation}.1", ask(spec), **allowed)).exit_code == 0
    outcome = folder_of(spec).read_outcome()
    assert outcome is not None
    assert outcome.counts == {"completed": 1}


@pytest.mark.slow
def test_a_lease_that_nobody_renews_ends_the_sweep_resumably(
    cluster: Cluster, make_spec: MakeSpec, folder_of: FolderOf, lines: Lines
) -> None:
    spec = make_spec("steps", {"steps": 40, "pause": 0.2}, num_samples=2, max_concurrent_trials=2)
    job = cluster.submit("leased.1", ask(spec, lease_ttl_s=5))
    info = cluster.wait(job)
    assert (info.status, info.exit_code) == ("FAILED", 3)
    assert folder_of(spec).read_outcome() is None
    record = find_error(cluster.logs(job))
    assert record is not None
    assert (record["class"], "lease" in record["message"]) == ("SweepInterrupted", True)
    assert cluster.wait(cluster.submit("leased.2", ask(spec))).exit_code == 0
    outcome = folder_of(spec).read_outcome()
    assert outcome is not None
    assert outcome.counts == {"completed": 2}
    # The second continued where the first was.
    steps = [line for line in lines() if line[0] == "step"]
    assert len({tuple(line) for line in steps}) == 80
    assert len(steps) <= 82


@pytest.mark.slow
def test_a_stopped_training_step_ends_and_goes_on_later(
    cluster: Cluster, storage: Path, tmp_path: Path
) -> None:
    spec = rs.TrainSpec(
        name="full",
        trainable="tests.jobs.train_loops:counting",
        config={"steps": 12, "pause": 0.5, "log": str(tmp_path / "log")},
        scaling={"num_workers": 1},
        storage_path=str(storage),
    )
    request = JobRequest(kind="train", key="k", spec=spec.to_dict())
    job = cluster.submit("train.1", request)
    wait_for(lambda: (tmp_path / "log").exists() and len((tmp_path / "log").read_text().split()) >= 4, 90)
    stop_by_client(cluster, job)
    assert cluster.wait(job).status == "STOPPED"
    cluster.wait_until_clean()
    done = len((tmp_path / "log").read_text().split())
    assert done < 12
    job = cluster.submit("train.2", request)
    assert cluster.wait(job).exit_code == 0, cluster.logs(job)
    steps = (tmp_path / "log").read_text().split()
    assert set(steps) == {str(number) for number in range(12)}
    # It continued from its last checkpoint.
    assert len(steps) <= 14


@pytest.mark.slow
def test_a_training_is_cancelled_through_its_storage_and_can_be_gone_on_with(
    cluster: Cluster, storage: Path, tmp_path: Path
) -> None:
    """Also by a request that came before its job: it names that, and no later one."""
    log = tmp_path / "train-log"
    log.touch()
    spec = rs.TrainSpec(
        name="full",
        trainable="tests.orchestrators.trainables:train",
        config={"x": 1, "train_pause": 5.0, "log": str(log)},
        storage_path=str(storage),
    )
    request = RunRequest.of(spec, "k")
    run_id, asked = request.run.id, JobRequest(kind="train", key="k", spec=request.spec.to_dict())
    view = RunView("train", str(storage), run_id)
    view.ask_to_cancel("its task was marked failed", "a test", number=1)
    for number in (1, 2):
        job = cluster.submit(f"{run_id}.{number}", asked, own_id=True)
        if number == 2:
            wait_for(lambda: "train 1" in log.read_text(), 60)
            view.ask_to_cancel("enough", "a test", number=2)
        assert (cluster.wait(job).status, cluster.wait(job).exit_code) == ("FAILED", 3)
        record = find_error(cluster.logs(job))
        assert record is not None
        assert record["class"] == "JobStoppedError"
        assert "trained" not in log.read_text()
    assert cluster.wait(cluster.submit(f"{run_id}.3", asked, own_id=True)).exit_code == 0
    assert "trained 1" in log.read_text()
    assert "raysweep-outcome: completed" in cluster.logs(f"{run_id}.3")
