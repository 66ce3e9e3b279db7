"""A training whose node is taken away: it is asked for a checkpoint in time, and loses no step."""

from __future__ import annotations

import json
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.conftest import ROOT, wait_for
from tests.engine.trainables import note
from tests.faults.nodes import node_id, read_log, several_nodes
from tests.insides import drain

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]
RUN = """
import sys
import raysweep as rs

print(rs.run_training(sys.argv[1], key="k", address=sys.argv[2]).to_json())
"""


def seldom(config: dict[str, Any]) -> None:
    """Steps that are stored only when somebody asks for it, until the file `config["go"]` is there."""
    import ray
    from ray.train.collective import broadcast_from_rank_zero

    rank = rs.get_context().rank
    step = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            step = int((folder / "step").read_text())
    note(config, "begin", rank, step, ray.get_runtime_context().get_node_id())
    while not broadcast_from_rank_zero(Path(config["go"]).exists()):
        step += 1
        time.sleep(0.05)
        if rs.should_checkpoint():
            assert rs.should_checkpoint(), "until it is answered"
            note(config, "asked", rank, step)
            with rs.new_checkpoint() as folder:
                (folder / "step").write_text(str(step))
                rs.report({"step": step}, checkpoint=folder if rank == 0 else None)
        note(config, "step", rank, step)
    rs.report({"step": step})


@pytest.mark.slow
def test_a_training_whose_node_will_go_is_asked_for_a_checkpoint_and_resumes_from_it(tmp_path: Path) -> None:
    log, go = tmp_path / "log", tmp_path / "go"
    log.touch()

    def said(what: str) -> list[list[str]]:
        return [words[1:] for words in read_log(log) if words[0] == what]

    spec = rs.TrainSpec(
        trainable="tests.faults.test_training:seldom",
        config={"log": str(log), "go": str(go)},
        scaling={"num_workers": 2, "placement_strategy": "STRICT_SPREAD"},
        failure={"max_failures": 0},
        storage_path=str(tmp_path / "runs"),
    )
    with several_nodes() as cluster:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        arguments = [sys.executable, "-c", RUN, str(tmp_path / "train.json"), cluster.address]
        (tmp_path / "train.json").write_text(spec.to_json())
        with subprocess.Popen(
            arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:
            try:
                wait_for(lambda: len(said("begin")) == 2 or running.poll() is not None)
                assert running.poll() is None, running.communicate()
                begun = said("begin")
                wait_for(lambda: len(said("step")) > 4)
                assert said("asked") == []
                going = next(node for rank, _, node in begun if rank == "1")
                node = next(each for each in cluster.worker_nodes if node_id(each) == going)
                cluster.add_node(num_cpus=1)
                drain(cluster.address, going, int((time.time() + 120) * 1000))
                asked = wait_for(lambda: said("asked") if len(said("asked")) == 2 else None)
                assert len({step for _, step in asked}) == 1, "all workers at the same step"
                at = int(asked[0][1])
                wait_for(lambda: max(int(step) for _, step in said("step")) > at + 5)
                assert len(said("asked")) == 2, "once"
                cluster.remove_node(node, allow_graceful=False)
                wait_for(lambda: len(said("begin")) == 4 or running.poll() is not None)
                assert running.poll() is None, running.communicate()
                again = said("begin")[2:]
                go.touch()
                out, errors = running.communicate(timeout=200)
            finally:
                running.kill()
    assert running.returncode == 0, errors[-3000:]
    assert {(int(step), node == going) for _, step, node in again} == {(at, False)}
    outcome = json.loads(out.strip().splitlines()[-1])
    assert outcome["status"] == "completed"
    assert outcome["metrics"]["step"] >= at


def stretchy(config: dict[str, Any]) -> None:
    """Steps of 0.1 s, stored every 20th and when somebody asks for it, until `config["go"]` is there."""
    from ray.train.collective import broadcast_from_rank_zero

    context = rs.get_context()
    step = 0
    if (checkpoint := rs.get_checkpoint()) is not None:
        with checkpoint as folder:
            step = int((folder / "step").read_text())
    note(config, "begin", context.rank, context.world_size, step, time.time())
    while not broadcast_from_rank_zero(Path(config["go"]).exists()):
        step += 1
        time.sleep(0.1)
        note(config, "step", context.rank, context.world_size, step, time.time())
        is_asked = rs.should_checkpoint()
        if is_asked or step % 20 == 0:
            note(config, "stored", context.rank, step, time.time())
            if is_asked:
                note(config, "answered", step)
            with rs.new_checkpoint() as folder:
                (folder / "step").write_text(str(step))
                rs.report({"step": step}, checkpoint=folder if context.rank == 0 else None)
    rs.report({"step": step})


def add_node_that_dies(cluster: Any) -> None:
    """Add a node whose agent cannot bind its port: the raylet joins and ends with its agent."""
    with socket.socket() as taken:
        taken.bind(("", 0))
        taken.listen()
        node = cluster.add_node(num_cpus=1, metrics_export_port=taken.getsockname()[1])
        node.all_processes["raylet"][0].process.wait(timeout=120)


@pytest.mark.slow
@pytest.mark.parametrize("bad_node", [False, True])
def test_an_elastic_training_leaves_a_drained_node_grows_onto_a_new_one_and_loses_no_step(
    tmp_path: Path, record_property: Any, bad_node: bool
) -> None:
    """`bad_node`: a node joins before the new one, and dies seconds later, while workers start on it."""
    log, go = tmp_path / "log", tmp_path / "go"
    log.touch()

    def said(what: str) -> list[list[str]]:
        return [words[1:] for words in read_log(log) if words[0] == what]

    def begun(world_size: int, after: float) -> list[list[str]] | None:
        """What the workers of a group of this size said, once all have begun."""
        found = [each for each in said("begin") if each[1] == str(world_size) and float(each[3]) > after]
        return found if len(found) == world_size else None

    spec = rs.TrainSpec(
        trainable="tests.faults.test_training:stretchy",
        config={"log": str(log), "go": str(go)},
        scaling={"num_workers": [1, 2], "resize_interval_s": 1},
        failure={"max_failures": 0},
        storage_path=str(tmp_path / "runs"),
    )
    with several_nodes() as cluster:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        arguments = [sys.executable, "-c", RUN, str(tmp_path / "train.json"), cluster.address]
        (tmp_path / "train.json").write_text(spec.to_json())
        with subprocess.Popen(
            arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as running:

            def until(look: Any) -> Any:
                found = wait_for(lambda: look() or running.poll() is not None, timeout_s=120)
                assert running.poll() is None, running.communicate()
                return found

            try:
                until(lambda: begun(2, 0.0))
                until(lambda: said("stored"))
                drained_at = time.time()
                drain(cluster.address, node_id(nodes[0]), int((time.time() + 600) * 1000))
                ((_, _, shrunk_step, shrunk_at),) = until(lambda: begun(1, drained_at))
                asked = [int(step) for _, step, at in said("stored") if float(at) > drained_at]
                if bad_node:
                    add_node_that_dies(cluster)
                added_at = time.time()
                cluster.add_node(num_cpus=1)
                grown = until(lambda: begun(2, added_at))
                go.touch()
                out, errors = running.communicate(timeout=200)
            finally:
                running.kill()
    assert running.returncode == 0, errors[-3000:]
    stored = {int(step) for _, step, _ in said("stored")}
    assert int(shrunk_step) in asked, "it left from the checkpoint that it was asked for"
    made = [int(step) for _, size, step, at in said("step") if size == "2" and float(at) < float(shrunk_at)]
    if [shrunk_step] in said("answered"):
        assert max(made) == int(shrunk_step), "no step is made twice"
    else:  # one of the 20th came just after the announcement: it left at once, and they had not heard of that
        assert max(made) < int(shrunk_step) + 20, "it left before the next checkpoint"
    (grown_step,) = {int(step) for _, _, step, _ in grown}
    assert grown_step in stored
    assert grown_step % 20 == 0, "it grew at a checkpoint of its own"
    outcome = json.loads(out.strip().splitlines()[-1])
    assert outcome["status"] == "completed"
    sizes = [each["workers"] for each in outcome["history"]]
    assert [size for size, before in zip(sizes, [None, *sizes], strict=False) if size != before] == [2, 1, 2]
    steps = [each["metrics"]["step"] for each in outcome["history"]]
    assert steps == sorted(set(steps)), "what was stored is not made again"
    figures = {
        "shrunk_s": float(shrunk_at) - drained_at,
        "grown_s": max(float(at) for *_, at in grown) - added_at,
        "failed_starts": float(errors.count("the workers failed to start")),
    }
    for name, value in figures.items():
        record_property(name, value)
    print("elastic:", {name: round(value, 1) for name, value in figures.items()})
