"""Trials that share a GPU by its memory."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.faults.nodes import driving, several_nodes

pytestmark = [pytest.mark.ray, pytest.mark.servers]


def waits_for_the_others(config: dict[str, Any]) -> dict[str, Any]:
    import os
    import time

    here = Path(config["folder"])
    (here / str(rs.get_context().number)).touch()
    ends = time.monotonic() + config["wait_s"]
    while len(list(here.iterdir())) < config["others"] and time.monotonic() < ends:
        time.sleep(0.01)
    return {"loss": 1.0, "beside": len(list(here.iterdir())), "gpus": os.environ["CUDA_VISIBLE_DEVICES"]}


@pytest.mark.slow
def test_as_many_trials_share_a_gpu_as_its_memory_holds(tmp_path: Path) -> None:
    def spec(gpu_memory: str, samples: int) -> rs.SweepSpec:
        folder = tmp_path / gpu_memory
        folder.mkdir(exist_ok=True)
        return rs.SweepSpec(
            name="t",
            trainable="tests.faults.test_gpus:waits_for_the_others",
            param_space={"folder": str(folder), "others": 3, "wait_s": 30.0},
            num_samples=samples,
            metric="loss",
            mode="min",
            resources={"cpu": 0.5, "gpu_memory": gpu_memory},
            storage_path=str(tmp_path / "sweeps"),
        )

    # No node goes here: on a busy machine one that answers late is not to be taken for dead.
    with several_nodes(health_check_failure_threshold=60) as cluster:
        cluster.add_node(num_cpus=4, num_gpus=1, labels={"gpu-memory": "24GiB"})
        with driving(spec("8GiB", 3), cluster.address) as driver:
            outcome = driver.outcome()
        assert [trial.metrics["beside"] for trial in outcome.trials] == [3, 3, 3]
        assert {trial.metrics["gpus"] for trial in outcome.trials} == {"0"}
        said = "3 trials share each GPU (resources.gpu_memory: 8 GiB): the smallest, of "
        (note,) = [note for note in outcome.notes if note.startswith(said)]
        assert note.endswith("about 0.5 GiB; 4 would from 6GiB down")
        # Continues where a node with a smaller GPU has come: each trial takes a larger part.
        cluster.add_node(num_cpus=4, num_gpus=1, labels={"gpu-memory": "16GiB"})
        with driving(spec("8GiB", 5), cluster.address) as driver:
            assert driver.outcome().counts == {"completed": 5}
        with driving(spec("20GiB", 1), cluster.address, key="l") as driver:
            code, said = driver.finish()
        assert code
        assert "resources.gpu_memory: one trial asks for 20 GiB; a GPU of" in said["message"]
        assert "has 16 GiB" in said["message"]
