"""What is Airflow's alone, on real servers; what all orchestrators promise is in `tests/orchestrators`."""

from __future__ import annotations

import itertools
import json
import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.runs.folder import SweepFolder
from raysweep.runs.training import RunFolder
from raysweep.specs import identity
from raysweep.storage.objects.opening import open_store
from tests.airflow.servers import Airflow, wait_until
from tests.jobs.cluster import Cluster
from tests.jobs.head import Head
from tests.orchestrators.trainables import lines
from tests.sampling import first_of

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(600)]
STOP_S = 30.0
REAPED_S = 120.0
_numbers = itertools.count(1)


class Desk:
    """Begins runs, and looks at what becomes of their sweeps."""

    def __init__(self, airflow: Airflow, head: Head, folder: Path) -> None:
        self.airflow = airflow
        self.cluster = Cluster(head)
        self.storage = folder / "sweeps"
        self.log = folder / "log"
        self.log.touch()

    def spec(self, **fields: Any) -> dict[str, Any]:
        """A sweep's; `pause` is how long a trial takes."""
        space = {"x": {"uniform": [0, 1]}, "log": str(self.log), "pause": fields.pop("pause", 0.0)}
        plain = {
            "name": "own",
            "trainable": "tests.orchestrators.trainables:trial",
            "param_space": space,
            "metric": "loss",
            "mode": "min",
            "search": "random",
            "seed": 7,
            "max_concurrent_trials": 1,
            "storage_path": str(self.storage),
        }
        return plain | fields

    def begin(self, dag_id: str, **conf: Any) -> str:
        self.airflow.wait_for_dag(dag_id)
        run_id = f"own-{os.getpid()}-{next(_numbers)}"
        return self.airflow.trigger_run(dag_id, run_id, conf)

    def folder(self, dag_id: str, run_id: str, suffix: str = "") -> SweepFolder:
        sweep_id = identity.sweep_id("own", f"{dag_id}/sweep/{run_id}{suffix}")
        return SweepFolder(open_store(str(self.storage)), sweep_id)

    def ended(self, dag_id: str, run_id: str, suffix: str = "", within_s: float = 120.0) -> rs.SweepOutcome:
        """How a run's sweep ended, as soon as it has."""
        folder = self.folder(dag_id, run_id, suffix)
        found = wait_until(folder.read_outcome, "the sweep has not ended", within_s)
        assert isinstance(found, rs.SweepOutcome)
        return found

    def jobs(self) -> list[str]:
        """The jobs of this test's sweeps."""
        names = {path.name for path in self.storage.glob("own-*")}
        infos = self.cluster.ask(lambda client: client.jobs())
        return sorted(info.job_id for info in infos if info.job_id.rpartition(".")[0] in names)

    def noted(self, word: str) -> list[str]:
        return [line[1] for line in lines(self.log) if line[0] == word]

    def until_noted(self, word: str, number: int = 1) -> None:
        wait_until(lambda: len(self.noted(word)) >= number, f"no {word}", 120)

    def started_twice(self) -> list[str]:
        return [trial for trial, number in Counter(self.noted("start")).items() if number > 1]


@pytest.fixture
def desk(airflow: Airflow, head: Head, tmp_path: Path) -> Desk:
    return Desk(airflow, head, tmp_path)


def test_two_sweeps_at_once_on_one_slot_and_marking_ends_each(desk: Desk) -> None:
    long = desk.spec(num_samples=500, pause=0.5)
    first, second = (desk.begin("night_alone", sweep=long) for _ in range(2))
    for run_id in (first, second):
        desk.airflow.wait_state("night_alone", run_id, "sweep", "deferred")
    wait_until(lambda: len(desk.jobs()) == 2)
    folders = [desk.folder("night_alone", run_id) for run_id in (first, second)]
    wait_until(lambda: all((p := folder.read_progress()) and p.running for folder in folders), timeout_s=120)
    assert {desk.airflow.state("night_alone", run_id, "sweep") for run_id in (first, second)} == {"deferred"}

    # From the first minute on: where it runs, and where it is stored.
    links = desk.airflow.links("night_alone", first, "sweep")
    job_id = f"{folders[0].sweep_id}.1"
    assert links["Ray job"] == f"{desk.cluster.head.address}/#/jobs/{job_id}"
    assert links["Sweep"].endswith(f"/dags/night_alone/runs/{first}/tasks/sweep/plugin/raysweep")
    stored = desk.airflow.stored("night_alone", first, "sweep")
    assert stored["raysweep_job"]["job_id"] == job_id

    began = time.monotonic()
    desk.airflow.patch_state("night_alone", first, "sweep", "failed")
    desk.airflow.patch_state("night_alone", second, "sweep", "success")
    outcomes = [desk.ended("night_alone", run_id, within_s=STOP_S) for run_id in (first, second)]
    assert [outcome.status for outcome in outcomes] == ["cancelled", "cancelled"]
    assert "its task was marked failed in Airflow" in outcomes[0].why
    assert "its task was marked success in Airflow" in outcomes[1].why
    desk.cluster.wait_until_clean(STOP_S - (time.monotonic() - began))
    assert desk.airflow.state("night_alone", second, "sweep") == "success"
    assert "Ray job" in desk.airflow.links("night_alone", first, "sweep")


@pytest.mark.slow
def test_a_cleared_sweep_goes_on_with_the_next_try(desk: Desk) -> None:
    run_id = desk.begin("night_alone", sweep=desk.spec(num_samples=24, pause=1.0))
    desk.airflow.wait_state("night_alone", run_id, "sweep", "deferred")
    desk.until_noted("end", 2)
    desk.airflow.clear("night_alone", run_id, "sweep")
    wait_until(lambda: desk.airflow.task("night_alone", run_id, "sweep")["try_number"] >= 2)
    desk.airflow.wait_state("night_alone", run_id, "sweep", "success", timeout_s=240)
    assert desk.ended("night_alone", run_id).counts == {"completed": 24}
    assert len(desk.jobs()) == 1
    assert not desk.started_twice()
    assert "attached job" in desk.airflow.logs("night_alone", run_id, "sweep")


@pytest.mark.slow
def test_marked_failed_and_cleared_it_goes_on_where_it_was(desk: Desk) -> None:
    run_id = desk.begin("night_alone", sweep=desk.spec(num_samples=12, pause=1.0))
    desk.airflow.wait_state("night_alone", run_id, "sweep", "deferred")
    desk.until_noted("end", 2)
    desk.airflow.patch_state("night_alone", run_id, "sweep", "failed")
    assert desk.ended("night_alone", run_id, within_s=STOP_S).status == "cancelled"
    done = set(desk.noted("end"))
    desk.airflow.clear("night_alone", run_id, "sweep")
    desk.airflow.wait_state("night_alone", run_id, "sweep", "success", timeout_s=240)
    assert desk.ended("night_alone", run_id).counts == {"completed": 12}
    assert not done & set(desk.started_twice())
    assert len(desk.jobs()) == 2


def test_marked_before_its_trigger_runs_its_sweep_ends(desk: Desk) -> None:
    """The task's process is gone, and the triggerer asleep: only the api-server hears of it."""
    with desk.airflow.paused("triggerer"):
        run_id = desk.begin("night_alone", sweep=desk.spec(num_samples=500, pause=0.5))
        desk.airflow.wait_state("night_alone", run_id, "sweep", "deferred")
        desk.airflow.patch_state("night_alone", run_id, "sweep", "failed")
        outcome = desk.ended("night_alone", run_id)
        assert outcome.status == "cancelled"
        assert "its task was marked failed in Airflow" in outcome.why
        desk.cluster.wait_until_clean(STOP_S)
    assert len(desk.jobs()) == 1


@pytest.mark.slow
def test_marked_and_cleared_while_its_job_ends_it_goes_on(desk: Desk) -> None:
    """The try after the clear may attach to the job that the mark has asked to end."""
    run_id = desk.begin("night_alone", sweep=desk.spec(num_samples=12, pause=1.0))
    desk.airflow.wait_state("night_alone", run_id, "sweep", "deferred")
    desk.until_noted("end", 2)
    desk.airflow.patch_state("night_alone", run_id, "sweep", "failed")
    wait_until(desk.folder("night_alone", run_id).read_cancellation, "no request was stored")
    # On SQLite, a scheduler that is about to fail the run takes no notice of a clear in that moment.
    wait_until(lambda: desk.airflow.run("night_alone", run_id)["state"] == "failed")
    desk.airflow.clear("night_alone", run_id, "sweep")
    desk.airflow.wait_state("night_alone", run_id, "sweep", "success", timeout_s=240)
    assert desk.ended("night_alone", run_id).counts == {"completed": 12}
    assert len(desk.jobs()) == 2


@pytest.mark.slow
def test_a_secrets_backend_that_fails_for_a_while_costs_nothing(desk: Desk) -> None:
    """First of the task, then of its trigger: Airflow says "not found" to both."""
    vault, head = desk.airflow.vault, desk.cluster.head
    fields = {"conn_type": "raysweep", "host": "http://127.0.0.1", "port": head.dashboard_port}
    (vault / "in_the_vault.json").write_text(json.dumps(fields | {"password": head.token}))
    down, failed = vault / "down", vault / "failed"
    down.touch()
    run_id = desk.begin("in_the_vault", sweep=desk.spec(num_samples=12, pause=1.0))
    wait_until(failed.exists, "no task asked for its connection", 120)
    down.unlink()
    desk.airflow.wait_state("in_the_vault", run_id, "sweep", "deferred", timeout_s=240)
    desk.until_noted("end", 1)
    down.touch()
    failed.unlink()
    desk.airflow.kill("triggerer")
    desk.airflow.start_component("triggerer")
    wait_until(failed.exists, "no trigger asked for its connection", 120)
    down.unlink()
    desk.airflow.wait_state("in_the_vault", run_id, "sweep", "success", timeout_s=240)
    assert desk.ended("in_the_vault", run_id).counts == {"completed": 12}
    assert len(desk.jobs()) == 1
    assert not desk.started_twice()


@pytest.mark.slow
def test_a_dag_that_is_deleted_ends_its_sweep(desk: Desk) -> None:
    """A task that Airflow does not know any more is no cleared one."""
    run_id = desk.begin("deleted", sweep=desk.spec(num_samples=500, pause=0.5))
    desk.airflow.wait_state("deleted", run_id, "sweep", "deferred")
    desk.until_noted("end", 1)
    desk.airflow.call("DELETE", "/dags/deleted")
    outcome = desk.ended("deleted", run_id, within_s=STOP_S)
    assert outcome.status == "cancelled"
    assert "its task was deleted from Airflow" in outcome.why
    desk.cluster.wait_until_clean(STOP_S)


@pytest.mark.slow
def test_killed_between_submission_and_deferral(desk: Desk) -> None:
    run_id = desk.begin("held", sweep=desk.spec(num_samples=6, pause=1.0))
    held = desk.log.with_suffix(".held")
    wait_until(held.exists, "the task did not come so far", 120)
    pids = desk.airflow.task_processes(desk.airflow.task("held", run_id, "sweep")["id"])
    assert pids
    for pid in pids:
        os.kill(pid, signal.SIGKILL)
    desk.airflow.wait_state("held", run_id, "sweep", "success", timeout_s=240)
    assert desk.airflow.task("held", run_id, "sweep")["try_number"] == 2
    assert len(desk.jobs()) == 1
    assert not desk.started_twice()


@pytest.mark.slow
def test_a_triggerer_that_was_superseded_kills_nothing(desk: Desk) -> None:
    run_id = desk.begin("night_alone", sweep=desk.spec(num_samples=500, pause=1.0))
    desk.airflow.wait_state("night_alone", run_id, "sweep", "deferred")
    desk.until_noted("end", 1)

    def log() -> str:
        return desk.airflow.logs("night_alone", run_id, "sweep")

    wait_until(lambda: "starting" in log(), "the trigger did not start")
    with desk.airflow.paused("triggerer"):
        desk.airflow.start_component("triggerer")
        wait_until(lambda: log().count("starting") >= 2, "no other triggerer took over", 120)
    # It wakes, and is told to drop what it has: `on_kill` of a task that nobody touched.
    wait_until(lambda: "it is still wanted" in log(), "its on_kill was not called", 60)
    number = len(desk.noted("end"))
    desk.until_noted("end", number + 3)
    assert desk.airflow.state("night_alone", run_id, "sweep") == "deferred"
    desk.airflow.kill("triggerer")
    desk.airflow.start_component("triggerer")
    desk.airflow.patch_run("night_alone", run_id, "failed")
    assert desk.ended("night_alone", run_id, within_s=90).status == "cancelled"


@pytest.mark.slow
def test_a_timeout_of_the_task_ends_the_sweep_with_the_best_so_far(desk: Desk) -> None:
    run_id = desk.begin("timed", sweep=desk.spec(num_samples=500, pause=0.5))
    desk.airflow.wait_state("timed", run_id, "sweep", "success", timeout_s=240)
    assert desk.airflow.xcom("timed", run_id, "sweep")["status"] == "deadline"
    desk.cluster.wait_until_clean()


@pytest.mark.slow
def test_a_run_that_is_over_time_takes_its_sweep_along(desk: Desk) -> None:
    """`dagrun_timeout`: Airflow marks the tasks that have not ended as skipped, and the run as failed."""
    run_id = desk.begin("over_time", sweep=desk.spec(num_samples=500, pause=0.5))
    desk.airflow.wait_state("over_time", run_id, "sweep", "skipped", timeout_s=240)
    outcome = desk.ended("over_time", run_id, within_s=STOP_S)
    assert outcome.status == "cancelled"
    assert "its task was marked skipped in Airflow" in outcome.why
    assert desk.airflow.run("over_time", run_id)["state"] == "failed"
    desk.cluster.wait_until_clean(STOP_S)


@pytest.mark.slow
def test_a_run_that_is_over_time_while_the_triggerer_is_away_takes_its_sweep_along(desk: Desk) -> None:
    """Its trigger never starts again, and no listener is called: the reaper sees it."""
    run_id = desk.begin("over_time", sweep=desk.spec(num_samples=500, pause=0.5))
    desk.airflow.wait_state("over_time", run_id, "sweep", "deferred")
    desk.until_noted("start")
    desk.airflow.kill("triggerer")
    try:
        desk.airflow.wait_state("over_time", run_id, "sweep", "skipped", timeout_s=240)
        outcome = desk.ended("over_time", run_id, within_s=REAPED_S)
    finally:
        desk.airflow.start_component("triggerer")
    assert outcome.status == "cancelled"
    assert "its task has ended in Airflow (skipped)" in outcome.why
    desk.cluster.wait_until_clean(STOP_S)


@pytest.mark.slow
def test_a_process_that_is_killed_with_no_retry_left_leaves_no_job(desk: Desk) -> None:
    """Also where Airflow has deleted what it keeps of the task; and a clear continues with the sweep."""
    run_id = desk.begin("once", sweep=desk.spec(num_samples=60, pause=1.5))  # longer than the reaper takes
    desk.until_noted("end", 1)
    desk.airflow.call("DELETE", f"/dags/once/dagRuns/{run_id}/taskInstances/sweep/state-store")
    for pid in desk.airflow.task_processes(desk.airflow.task("once", run_id, "sweep")["id"]):
        os.kill(pid, signal.SIGKILL)
    desk.airflow.wait_state("once", run_id, "sweep", "failed")
    assert "its task has ended in Airflow (failed)" in desk.ended("once", run_id, within_s=REAPED_S).why
    desk.cluster.wait_until_clean(STOP_S)
    done = set(desk.noted("end"))
    desk.airflow.clear("once", run_id, "sweep")
    desk.airflow.wait_state("once", run_id, "sweep", "success", timeout_s=240)
    assert desk.ended("once", run_id).counts == {"completed": 60}
    assert not done & set(desk.started_twice())


@pytest.mark.slow
def test_a_cleared_result_begins_anew_where_that_is_asked_for(desk: Desk) -> None:
    run_id = desk.begin("restarting", sweep=desk.spec(num_samples=2))
    desk.airflow.wait_state("restarting", run_id, "sweep", "success")
    first = desk.ended("restarting", run_id)
    desk.airflow.clear("restarting", run_id, "sweep")
    second = desk.ended("restarting", run_id, "#2")
    desk.airflow.wait_state("restarting", run_id, "sweep", "success")
    assert second.sweep_id != first.sweep_id
    assert desk.airflow.xcom("restarting", run_id, "sweep")["sweep_id"] == second.sweep_id


@pytest.mark.slow
def test_a_task_that_is_not_deferred_is_stopped_too(desk: Desk) -> None:
    run_id = desk.begin("not_deferred", sweep=desk.spec(num_samples=500, pause=0.5))
    desk.until_noted("end", 1)
    assert desk.airflow.state("not_deferred", run_id, "sweep") == "running"
    desk.airflow.patch_state("not_deferred", run_id, "sweep", "failed")
    assert desk.ended("not_deferred", run_id, within_s=STOP_S).status == "cancelled"
    desk.cluster.wait_until_clean(STOP_S)


@pytest.mark.slow
def test_mapped_sweeps_are_sweeps_of_their_own_and_tell_an_asset(desk: Desk) -> None:
    desk.airflow.wait_for_dag("consumer")
    specs = [desk.spec(num_samples=2, seed=seed) for seed in (1, 2)]
    run_id = desk.begin("mapped", sweeps=specs)
    desk.airflow.wait_state("mapped", run_id, "best_x", "success", timeout_s=240)
    outcomes = [desk.ended("mapped", run_id, f"[{index}]") for index in range(2)]
    best = [outcome.best.config["x"] for outcome in outcomes if outcome.best is not None]
    assert desk.airflow.xcom("mapped", run_id, "best_x") == best
    assert best[0] != best[1]

    def consumed() -> list[dict[str, Any]]:
        runs = desk.airflow.call("GET", "/dags/consumer/dagRuns")["dag_runs"]
        found = [desk.airflow.xcom("consumer", run["dag_run_id"], "consumed") or [] for run in runs]
        return [each for extras in found for each in extras]

    ids = {outcome.sweep_id for outcome in outcomes}
    wait_until(lambda: ids <= {each["sweep_id"] for each in consumed()}, timeout_s=120)
    extra = next(each for each in consumed() if each["sweep_id"] == outcomes[0].sweep_id)
    assert extra["best"]["config"]["x"] == best[0]


def test_data_of_another_task_are_no_templates(desk: Desk) -> None:
    """In a sweep's spec and its job, by `expand_kwargs`, and in the config that a training is handed."""
    evil = "{{ conn.raysweep_default.password }} {{ run_id }}"
    spec = desk.spec(num_samples=1)
    spec["param_space"]["note"] = evil
    train = "tests.orchestrators.trainables:train"
    run_id = desk.begin("data", sweeps=[spec], train=train, storage=str(desk.storage))
    desk.airflow.wait_state("data", run_id, "train", "deferred", map_index=0, timeout_s=240)
    outcome = desk.ended("data", run_id, "[0]")
    assert outcome.best is not None
    assert outcome.best.config["note"] == evil
    job = desk.airflow.stored("data", run_id, "train", 0)["raysweep_job"]
    record = wait_until(RunFolder(open_store(str(desk.storage)), job["run_id"]).read_spec, timeout_s=120)
    assert record.config["note"] == evil
    assert record.name == f"full-{run_id}", "a template that the DAG's author wrote"
    desk.airflow.patch_state("data", run_id, "train", "failed", map_index=0)
    infos = desk.cluster.ask(lambda client: client.jobs())
    notes = {info.job_id: info.metadata.get("note") for info in infos}
    assert notes[desk.jobs()[0]] == evil


@pytest.mark.parametrize("trainable", first_of(["trial", "raising"]))
def test_a_run_that_is_deleted_and_made_again_begins_anew(desk: Desk, trainable: str) -> None:
    """Its outcome, or its failure, is that of another run; a clear of the new one keeps to the new one."""
    spec = desk.spec(num_samples=2, trainable=f"tests.orchestrators.trainables:{trainable}")
    run_id = desk.begin("night_alone", sweep=spec)
    end = "success" if trainable == "trial" else "failed"
    ids = []
    for number in (1, 2):
        desk.airflow.wait_state("night_alone", run_id, "sweep", end, timeout_s=240)
        stored = desk.airflow.stored("night_alone", run_id, "sweep")
        ids.append(stored["raysweep_job"]["run_id"])
        if number == 1:
            wait_until(lambda: desk.airflow.run("night_alone", run_id)["state"] in ("success", "failed"))
            desk.airflow.call("DELETE", f"/dags/night_alone/dagRuns/{run_id}")
            desk.airflow.trigger_run("night_alone", run_id, {"sweep": spec})
    assert len(set(ids)) == len(desk.jobs()) == 2
    if trainable != "trial":
        return
    wait_until(lambda: desk.airflow.run("night_alone", run_id)["state"] == "success")
    desk.airflow.clear("night_alone", run_id, "sweep")
    wait_until(lambda: desk.airflow.task("night_alone", run_id, "sweep")["try_number"] == 2)
    desk.airflow.wait_state("night_alone", run_id, "sweep", "success", timeout_s=240)
    assert desk.airflow.xcom("night_alone", run_id, "sweep")["sweep_id"] == ids[1]
    assert len(desk.jobs()) == 2, "cleared, its result is reused"


@pytest.mark.slow
def test_a_decorated_function_is_the_trainable_and_its_best_are_expanded(desk: Desk, tmp_path: Path) -> None:
    train = {
        "name": "full",
        "trainable": "tests.orchestrators.trainables:train",
        "config": {"log": str(desk.log)},
        "storage_path": str(desk.storage),
    }
    run_id = desk.begin("decorated", storage=str(desk.storage), train=train)
    desk.airflow.wait_state("decorated", run_id, "fit", "success", timeout_s=240)
    outcome = desk.airflow.xcom("decorated", run_id, "fit")
    for index in range(2):
        desk.airflow.wait_state("decorated", run_id, "train", "success", map_index=index, timeout_s=240)
    assert set(desk.noted("trained")) == {str(each["config"]["x"]) for each in outcome["top_k"][:2]}


@pytest.mark.slow
def test_airflow_shows_the_provider(desk: Desk) -> None:
    command: Callable[..., str] = desk.airflow.command
    assert "raysweep" in command("providers", "list")
    assert "raysweep_airflow.hooks.RaySweepHook" in command("providers", "hooks", "-o", "plain")
    assert "raysweep_airflow.links.RayJobLink" in command("providers", "links", "-o", "plain")


def test_airflow_tests_a_connection(desk: Desk, head: Head) -> None:
    fields = {"connection_id": "c", "conn_type": "raysweep", "host": head.address}
    good = desk.airflow.call("POST", "/connections/test", fields | {"password": head.token})
    assert good["status"] is True
    assert "Ray 2.60" in good["message"]
    bad = desk.airflow.call("POST", "/connections/test", fields | {"password": "wrong"})
    assert bad["status"] is False
    assert "token" in bad["message"]
