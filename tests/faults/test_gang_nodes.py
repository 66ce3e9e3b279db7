"""Gangs whose members sit on two nodes: `make test-tensorflow` and `make test-horovod` run this."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.optional import needing
from tests.faults.nodes import driving, read_log, several_nodes

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.servers, pytest.mark.timeout(600)]
BACKENDS = "tests.engine.gang_backends"


def run_spread(
    folder: Path, backend: str, trainable: str, space: dict[str, Any], metrics: dict[str, str]
) -> tuple[rs.SweepOutcome, list[list[str]]]:
    """A sweep of gangs with a rank on each of two nodes, and the words that trials told."""
    log = folder / "log"
    log.touch()
    spec = rs.SweepSpec(
        name="t",
        trainable=f"{BACKENDS}:{trainable}",
        param_space={**space, "log": str(log)},
        metric="loss",
        mode="min",
        scaling={
            "num_workers": 2,
            "placement_strategy": "STRICT_SPREAD",
            "backend": backend,
            "metrics": metrics,
        },
        failure={"max_failures": 0, "max_worker_deaths": 0},
        storage_path=str(folder / "sweeps"),
    )
    with several_nodes() as cluster:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        with driving(spec, cluster.address) as driver:
            outcome = driver.outcome()
    assert [trial.error for trial in outcome.trials] == [None, None]
    return outcome, sorted(words[1:] for words in read_log(log) if words[0] == "told")


@pytest.mark.parametrize("backend", [needing("tensorflow")])
def test_the_members_of_a_tensorflow_gang_on_two_nodes_train_one_model(tmp_path: Path, backend: str) -> None:
    """TF_CONFIG names the same two addresses, in the ranks' order, to both, and to each its own index."""
    space = {"lr": {"grid_search": [0.05, 0.2]}, "epochs": 4}
    outcome, words = run_spread(
        tmp_path, backend, "tensorflow_example", space, {"loss": "mean", "weight": "each"}
    )
    for trial in outcome.trials:
        told = [each[2:] for each in words if each[0] == str(trial.number)]
        addresses = told[0][5:]
        # rank; node and place on it; what TF_CONFIG says of the rank, and of all
        assert told == [[str(rank), str(rank), "0", "worker", str(rank), *addresses] for rank in range(2)]
        assert len(set(addresses)) == 2
        for host, _, port in (address.rpartition(":") for address in addresses):
            socket.inet_aton(host)
            assert 1024 <= int(port) < 65536
        assert trial.metrics["weight"] == trial.metrics["weight/rank1"], "one model"
    slow, fast = (trial.metrics["loss"] for trial in outcome.trials)
    assert fast < slow < 4, "from 4, with weights of 0"


@pytest.mark.parametrize("backend", [needing("horovod")])
def test_the_members_of_a_horovod_gang_on_two_nodes_add_up(tmp_path: Path, backend: str) -> None:
    """Each is the only one on its node, and Horovod knows."""
    outcome, words = run_spread(
        tmp_path, backend, "horovod_places", {"x": {"grid_search": [1.0, 2.0]}}, {"total": "each"}
    )
    for trial in outcome.trials:
        told = [each[2:] for each in words if each[0] == str(trial.number)]
        # rank; node and place on it; rank and size in all, on the node, and across nodes
        places = [[str(rank), str(rank), "0", str(rank), "2", "0", "1", str(rank), "2"] for rank in range(2)]
        assert [each[:-1] for each in told] == places
        assert len({each[-1] for each in told}) == 2
        assert (trial.metrics["total"], trial.metrics["total/rank1"]) == (11.0, 11.0)
