"""Ray Train runs as trials whose nodes are taken away: the trial's own, and one that has a worker only."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.conftest import wait_for
from tests.faults.nodes import driving, node_id, read_log, several_nodes
from tests.insides import drain, live_actors

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]
Said = Callable[[str], list[list[str]]]


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def said(log: Path) -> Said:
    return lambda what: [words[1:] for words in read_log(log) if words[0] == what]


def make_spec(tmp_path: Path, log: Path, trainable: str, scaling: Any) -> rs.SweepSpec:
    return rs.SweepSpec(
        name="t",
        trainable=f"tests.engine.trainruns:{trainable}",
        param_space={"log": str(log), "workers": 2, "each": 1, "go": str(tmp_path / "go")},
        metric="loss",
        mode="min",
        num_samples=1,
        scaling=scaling,
        storage_path=str(tmp_path / "sweeps"),
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    "nodes",
    [pytest.param(1, marks=pytest.mark.slow, id="one node"), pytest.param(2, id="a worker elsewhere")],
)
def test_workers_of_a_trial_whose_node_will_go_are_asked_for_a_checkpoint_and_it_resumes_from_that(
    tmp_path: Path, log: Path, said: Said, monkeypatch: pytest.MonkeyPatch, nodes: int
) -> None:
    monkeypatch.setenv("RAY_TRAIN_PREEMPTION_POLL_INTERVAL_S", "0.05")
    scaling = {"num_workers": 2, "resources": {"cpu": 1}, "driver": {}}
    spec = make_spec(tmp_path, log, "fit_seldom", scaling)
    with several_nodes() as cluster:
        for _ in range(nodes):
            cluster.add_node(num_cpus=2 // nodes)
        with driving(spec, cluster.address) as driver:
            wait_for(lambda: len(said("worker")) == 2)
            if nodes > 1:
                wait_for(lambda: "PreemptionWatcher" in live_actors(cluster.address))
            assert said("asked") == []
            cluster.add_node(num_cpus=2)
            ((first,),) = said("driver")
            drain(cluster.address, first, int((time.time() + 600) * 1000))
            outcome = driver.outcome()
    asked = said("asked")
    assert [rank for rank, _ in sorted(asked)] == ["0", "1"], "each once"
    (at,) = {step for _, step in asked}
    begun = [(attempt, step) for _, attempt, _, _, step in said("worker")]
    assert begun == [("1", "0")] * 2 + [("2", at)] * 2
    (trial,) = outcome.trials
    assert trial.state == "completed"
    assert trial.attempts[0].end == "preempted"
    assert trial.metrics["step"] == int(at) + 1


@pytest.mark.slow
def test_drivers_and_workers_are_placed_each_by_their_labels(tmp_path: Path, log: Path, said: Said) -> None:
    scaling = {
        "num_workers": 2,
        "resources": {"cpu": 1},
        "label_selector": {"kind": "spot"},
        "driver": {"memory": 100_000_000, "label_selector": {"kind": "safe"}},
    }
    spec = make_spec(tmp_path, log, "fit_where", scaling)
    with several_nodes() as cluster:
        # Each could hold the other's part, too.
        spot = cluster.add_node(num_cpus=3, labels={"kind": "spot"})
        safe = cluster.add_node(num_cpus=3, labels={"kind": "safe"})
        with driving(spec, cluster.address) as driver:
            assert driver.outcome().counts == {"completed": 1}
        assert said("driver") == [[node_id(safe)]]
        assert said("worker") == [[node_id(spot)]] * 2


@pytest.mark.slow
def test_a_workers_node_that_goes_before_its_time_costs_the_run_no_failure(
    tmp_path: Path, log: Path, said: Said
) -> None:
    scaling = {
        "num_workers": 2,
        "resources": {"cpu": 1},
        "driver": {},
        "placement_strategy": "STRICT_SPREAD",
    }
    spec = make_spec(tmp_path, log, "fit_until", scaling)
    with several_nodes() as cluster:
        nodes = {node_id(node): node for node in (cluster.add_node(num_cpus=1) for _ in range(2))}
        with driving(spec, cluster.address) as driver:
            wait_for(lambda: len(said("worker")) == 2)
            wait_for(lambda: len(said("step")) > 4)
            (going,) = {node for rank, _, node in said("worker") if rank == "1"}
            drain(cluster.address, going, int((time.time() + 600) * 1000))
            wait_for(lambda: said("heard"))
            cluster.add_node(num_cpus=1)
            cluster.remove_node(nodes[going], allow_graceful=False)
            wait_for(lambda: len(said("worker")) == 4 or driver.process.poll() is not None)
            (tmp_path / "go").touch()
            outcome = driver.outcome()
    (trial,) = outcome.trials
    assert trial.state == "completed", trial.error
    assert all(node != going for _, _, node in said("worker")[2:])
    assert [each.end for each in trial.attempts if each.end not in ("completed", "preempted")] == []
