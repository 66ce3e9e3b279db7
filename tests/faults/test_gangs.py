"""A gang on two nodes: what it is told, and what becomes of it when one of them goes."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.conftest import ROOT, wait_for
from tests.faults.nodes import driving, node_id, read_log, several_nodes
from tests.insides import drain
from tests.sampling import first_of

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.servers]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with several_nodes() as cluster:
        yield cluster


@pytest.mark.timeout(600)
@pytest.mark.parametrize("how", first_of(["killed", "drained"]))
def test_a_gang_on_two_nodes_goes_on_elsewhere_when_one_goes(cluster: Any, tmp_path: Path, how: str) -> None:
    """The one of rank 1: that of rank 0 is any trial's. Drained, it loses no step; neither is a failure."""
    while len(cluster.worker_nodes) < 2:
        cluster.add_node(num_cpus=1)
    log, go = tmp_path / "log", tmp_path / "go"
    log.touch()
    spec = rs.SweepSpec(
        name="t",
        trainable="tests.engine.gangs:slow",
        param_space={"x": 0.5, "log": str(log), "go": str(go)},
        metric="loss",
        mode="min",
        scaling={"num_workers": 2, "placement_strategy": "STRICT_SPREAD", "backend": "torch"},
        failure={"backoff_initial_s": 0.05, "max_failures": 0, "max_worker_deaths": 0},
        storage_path=str(tmp_path / "sweeps"),
    )

    def begun(attempt: int) -> list[list[str]]:
        return [words for words in read_log(log) if words[0] == "begin" and words[2] == str(attempt)]

    with driving(spec, cluster.address) as driver:
        first = wait_for(lambda: begun(1) if len(begun(1)) == 2 else None)
        assert sorted(words[6] for words in first) == ["0", "1"], "of each rank its node"
        going = next(words[7] for words in first if words[3] == "1")
        node = next(one for one in cluster.worker_nodes if node_id(one) == going)
        wait_for(lambda: [words for words in read_log(log) if words[0] == "stored"])
        cluster.add_node(num_cpus=1)
        if how == "drained":
            drain(cluster.address, going, int((time.time() + 60) * 1000))
        else:
            cluster.remove_node(node, allow_graceful=False)
        again = wait_for(lambda: begun(2) if len(begun(2)) == 2 else None)
        go.touch()
        outcome = driver.outcome()
    if how == "drained":
        cluster.remove_node(node, allow_graceful=False)
    assert outcome.counts == {"completed": 1}
    assert going not in {words[7] for words in again}
    (resumed,) = {int(words[4]) for words in again}
    stored = [int(words[4]) for words in read_log(log) if words[0] == "stored" and words[2] == "1"]
    assert resumed >= (max(stored) if how == "drained" else 1)


def say_where(config: dict[str, Any]) -> None:
    import ray

    Path(config["folder"], str(rs.get_context().rank)).write_text(ray.get_runtime_context().get_node_id())
    rs.report({"loss": 1.0})


def train(spec: rs.TrainSpec, address: str, key: str = "k") -> subprocess.CompletedProcess[str]:
    """In a process of its own, as this one may be connected to another Ray."""
    code = "import sys, raysweep as rs; rs.run_training(*sys.argv[1:2], key=sys.argv[2], address=sys.argv[3])"
    path = Path(spec.storage_path, f"{key}.json")
    path.write_text(spec.to_json())
    command = [sys.executable, "-c", code, str(path), key, address]
    return subprocess.run(command, capture_output=True, text=True, timeout=300, cwd=ROOT, check=False)


@pytest.mark.slow
def test_gangs_and_trainings_are_placed_by_labels(cluster: Any, tmp_path: Path) -> None:
    meant = {node_id(cluster.add_node(num_cpus=1, labels={"kind": "big"})) for _ in range(2)}
    while len(cluster.worker_nodes) < 4:
        cluster.add_node(num_cpus=1)
    common = {
        "name": "t",
        "trainable": "tests.faults.test_gangs:say_where",
        "scaling": {"num_workers": 2, "label_selector": {"kind": "big"}},
        "storage_path": str(tmp_path / "storage"),
    }

    def said() -> set[str]:
        files = [tmp_path / str(rank) for rank in range(2)]
        found = {file.read_text() for file in files}
        for file in files:
            file.unlink()
        return found

    config = {"folder": str(tmp_path)}
    spec = rs.SweepSpec(**common, param_space=config, metric="loss", mode="min")
    with driving(spec, cluster.address) as driver:
        assert driver.outcome().counts == {"completed": 1}
    assert said() == meant
    training = rs.TrainSpec(**common, config=config)
    assert train(training, cluster.address).returncode == 0
    assert said() == meant
    nowhere = training.replace(scaling={"label_selector": {"kind": "huge"}})
    assert (
        "scaling.label_selector: no live node has the labels" in train(nowhere, cluster.address, "l").stderr
    )
