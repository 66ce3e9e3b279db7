"""A TensorFlow gang whose members sit on two nodes: `make test-tensorflow` runs this."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

import raysweep as rs
from tests.engine.test_gang_backends import needing
from tests.faults.nodes import driving, read_log, several_nodes

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.servers, pytest.mark.timeout(600)]


@pytest.mark.parametrize("backend", [needing("tensorflow")])
def test_the_members_of_a_gang_on_two_nodes_train_one_model(tmp_path: Path, backend: str) -> None:
    """TF_CONFIG names the same two addresses, in the ranks' order, to both, and to each its own index."""
    log = tmp_path / "log"
    log.touch()
    spec = rs.SweepSpec(
        name="t",
        trainable="tests.engine.gang_backends:tensorflow_example",
        param_space={"lr": {"grid_search": [0.05, 0.2]}, "epochs": 4, "log": str(log)},
        metric="loss",
        mode="min",
        scaling={
            "num_workers": 2,
            "placement_strategy": "STRICT_SPREAD",
            "backend": backend,
            "metrics": {"loss": "mean", "weight": "each"},
        },
        failure={"max_failures": 0, "max_worker_deaths": 0},
        storage_path=str(tmp_path / "sweeps"),
    )
    with several_nodes() as cluster:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        with driving(spec, cluster.address) as driver:
            outcome = driver.outcome()
    assert [trial.error for trial in outcome.trials] == [None, None]
    for trial in outcome.trials:
        told = sorted(words[3:] for words in read_log(log) if words[:2] == ["told", str(trial.number)])
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
