"""A training whose number of workers may change, and whose nodes do, near its deadline."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from tests.engine.conftest import ROOT, wait_for
from tests.faults.nodes import node_id, read_log, several_nodes
from tests.insides import drain

pytestmark = [pytest.mark.servers, pytest.mark.timeout(300)]
RUN = """
import sys
import raysweep as rs

print(rs.run_training(sys.argv[1], key="k", address=sys.argv[2]).to_json())
"""
LATER_S = 20.0
"""So long after the start the grace period begins, where something has to happen before."""


class Running:
    """A process that runs `answering` on a cluster, and what its workers say."""

    def __init__(self, process: subprocess.Popen[str], log: Path) -> None:
        self._process = process
        self._log = log

    def said(self, word: str) -> list[list[int]]:
        """The numbers after this word, of each line that begins with it."""
        return [[int(each) for each in words[1:]] for words in read_log(self._log) if words[0] == word]

    def wait_for(self, word: str, number: int, timeout_s: float = 100) -> None:
        """Until so many lines begin with this word."""
        wait_for(
            lambda: len(self.said(word)) >= number or self._process.poll() is not None, timeout_s=timeout_s
        )
        assert len(self.said(word)) >= number, self._process.communicate()

    def outcome(self, timeout_s: float = 100) -> dict[str, Any]:
        """What it ended with."""
        out, errors = self._process.communicate(timeout=timeout_s)
        assert self._process.returncode == 0, errors[-3000:]
        found: dict[str, Any] = json.loads(out.strip().splitlines()[-1])
        return found


@pytest.fixture
def run(tmp_path: Path) -> Callable[..., Any]:
    """Runs `answering` with a deadline whose grace period begins at a time, and lasts so many seconds."""
    log = tmp_path / "log"
    log.touch()

    @contextmanager
    def running(
        address: str, grace_at: float, grace_s: float, config: dict[str, Any] | None = None, **fields: Any
    ) -> Iterator[Running]:
        spec = rs.TrainSpec(
            trainable="tests.engine.test_training_deadline:answering",
            config={
                "log": str(log),
                "go": str(tmp_path / "go"),
                "save": str(tmp_path / "save"),
                **(config or {}),
            },
            stop={
                "deadline": datetime.fromtimestamp(grace_at + grace_s, UTC).isoformat(),
                "grace_s": grace_s,
            },
            storage_path=str(tmp_path / "runs"),
            **{"max_failures": 0, "scaling": {"num_workers": [1, 2], "resize_interval_s": 0}, **fields},
        )
        (tmp_path / "train.json").write_text(spec.to_json())
        arguments = [sys.executable, "-c", RUN, str(tmp_path / "train.json"), address]
        with subprocess.Popen(
            arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Running(process, log)
            finally:
                process.kill()

    return running


@pytest.mark.parametrize(
    "later_s", [0.0, pytest.param(LATER_S, marks=pytest.mark.slow)], ids=["deadline first", "node first"]
)
def test_workers_that_are_asked_because_of_their_node_and_of_the_deadline_end_with_one_answer(
    run: Callable[..., Any], tmp_path: Path, later_s: float
) -> None:
    """A third node has room; nobody is started there, as the answer ends the run."""
    with several_nodes() as cluster:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        grace_at = time.time() + later_s
        with run(cluster.address, grace_at, 100.0, failure={"max_preemptions": 0}) as running:
            running.wait_for("begin", 2)
            if later_s == 0:
                running.wait_for("asked", 2)
            else:
                assert time.time() < grace_at
                assert running.said("asked") == []
            drain(cluster.address, node_id(nodes[0]), int((time.time() + 600) * 1000))
            running.wait_for("drained", 2)
            cluster.add_node(num_cpus=1)
            time.sleep(max(0.0, grace_at + 1 - time.time()))
            (tmp_path / "go").touch()
            outcome = running.outcome()
    assert (outcome["status"], outcome["ended_by"]) == ("completed", "deadline")
    assert sorted(running.said("begin")) == [[0, 2, 0], [1, 2, 0]]
    assert {step for _, step in running.said("stored")} == {outcome["metrics"]["step"]}


@pytest.mark.slow
def test_where_a_node_goes_in_the_grace_period_the_others_are_asked_again(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    with several_nodes() as cluster:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        with run(cluster.address, time.time(), 150.0) as running:
            running.wait_for("asked", 2)
            drain(cluster.address, node_id(nodes[0]), int((time.time() + 3) * 1000))
            running.wait_for("drained", 2)
            cluster.remove_node(nodes[0], allow_graceful=False)
            running.wait_for("asked", 3)
            (tmp_path / "go").touch()
            outcome = running.outcome()
    assert (outcome["status"], outcome["ended_by"]) == ("completed", "deadline")
    assert running.said("begin")[2:] == [[0, 1, 0]]
    assert {step for _, step in running.said("stored")} == {outcome["metrics"]["step"]}


@pytest.mark.slow
def test_workers_that_have_just_grown_in_number_are_asked_as_the_others_were(
    run: Callable[..., Any], tmp_path: Path
) -> None:
    with several_nodes() as cluster:
        cluster.add_node(num_cpus=1)
        grace_at = time.time() + LATER_S
        with run(cluster.address, grace_at, 60.0) as running:
            running.wait_for("begin", 1)
            cluster.add_node(num_cpus=1)
            (tmp_path / "go").touch()
            time.sleep(max(0.0, grace_at - 1 - time.time()))
            (tmp_path / "save").touch()
            running.wait_for("begin", 3)
            assert time.time() > grace_at, "they begin in the grace period"
            outcome = running.outcome()
    first = running.said("stored")[0][1]
    assert (outcome["status"], outcome["ended_by"]) == ("completed", "deadline")
    assert sorted(running.said("begin")) == [[0, 1, 0], [0, 2, first], [1, 2, first]]
    assert outcome["metrics"]["step"] > first
    assert [each["workers"] for each in outcome["history"]] == [1, 2]


@pytest.mark.slow
def test_a_run_that_has_lost_its_last_node_ends_at_its_deadline_with_its_last_checkpoint(
    run: Callable[..., Any],
) -> None:
    with several_nodes() as cluster:
        node = cluster.add_node(num_cpus=1)
        ends_at = time.time() + LATER_S + 10
        with run(cluster.address, ends_at - 1, 1.0, {"save_at": 3}, max_failures=3) as running:
            running.wait_for("stored", 1)
            cluster.remove_node(node, allow_graceful=False)
            assert time.time() < ends_at - 2
            outcome = running.outcome()
    assert (outcome["status"], outcome["ended_by"]) == ("completed", "deadline")
    assert outcome["metrics"] == {"step": 3}
    assert len(running.said("begin")) == 1
    assert 0 <= outcome["ended_at"] - ends_at < 10
