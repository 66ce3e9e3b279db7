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

pytestmark = [pytest.mark.servers, pytest.mark.timeout(400)]
# The clocks by which the run ends are moved: the grace period begins when a test says so.
RUN = """
import sys
import time
from functools import partial
from pathlib import Path
import raysweep as rs
from raysweep.training import run

spec, address, moved_by = sys.argv[1:]
def moved(clock):
    return lambda: clock() + float(Path(moved_by).read_text() or 0)
run.ending_of = partial(run.ending_of, wall=moved(time.time), monotonic=moved(time.monotonic))
print(rs.run_training(spec, key="k", address=address).to_json())
"""
GRACE_AT_S, END_AT_S = 10_000.0, 20_000.0


class Running:
    """A process that runs `answering` on a cluster, and what its workers say."""

    def __init__(self, process: subprocess.Popen[str], log: Path, moved_by: Path) -> None:
        self._process = process
        self._log = log
        self._moved_by = moved_by

    def move_clock(self, seconds: float) -> None:
        """By so much it is later than it is."""
        new = self._moved_by.with_suffix(".new")
        new.write_text(str(seconds))
        new.replace(self._moved_by)

    def said(self, word: str) -> list[list[int]]:
        """The numbers after this word, of each line that begins with it."""
        return [[int(each) for each in words[1:]] for words in read_log(self._log) if words[0] == word]

    def wait_for(self, word: str, number: int, timeout_s: float = 150) -> None:
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
    """Runs `answering` with a grace period from GRACE_AT_S to END_AT_S, on a clock that is moved."""
    log, moved_by = tmp_path / "log", tmp_path / "moved_by"

    @contextmanager
    def running(address: str, config: dict[str, Any] | None = None, **fields: Any) -> Iterator[Running]:
        log.touch()
        moved_by.touch()
        files = {name: str(tmp_path / name) for name in ("log", "go", "save")}
        ends_at = datetime.fromtimestamp(time.time() + END_AT_S, UTC)
        spec = rs.TrainSpec(
            trainable="tests.engine.test_training_deadline:answering",
            config={**files, **(config or {})},
            stop={"deadline": ends_at.isoformat(), "grace_s": END_AT_S - GRACE_AT_S},
            storage_path=str(tmp_path / "runs"),
            **{
                "failure": {"max_failures": 0},
                "scaling": {"num_workers": [1, 2], "resize_interval_s": 0},
                **fields,
            },
        )
        (tmp_path / "train.json").write_text(spec.to_json())
        arguments = [sys.executable, "-c", RUN, str(tmp_path / "train.json"), address, str(moved_by)]
        with subprocess.Popen(
            arguments, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as process:
            try:
                yield Running(process, log, moved_by)
            finally:
                process.kill()

    return running


@pytest.mark.slow
@pytest.mark.parametrize("first", ["deadline", pytest.param("node", marks=pytest.mark.slow)])
def test_workers_that_are_asked_because_of_their_node_and_of_the_deadline_end_with_one_answer(
    run: Callable[..., Any], tmp_path: Path, first: str
) -> None:
    """A third node has room; nobody is started there, as the answer ends the run."""
    with several_nodes() as cluster:
        nodes = [cluster.add_node(num_cpus=1) for _ in range(2)]
        with run(cluster.address, failure={"max_failures": 0, "max_preemptions": 0}) as running:
            running.wait_for("begin", 2)
            if first == "deadline":
                running.move_clock(GRACE_AT_S)
                running.wait_for("asked", 2)
            drain(cluster.address, node_id(nodes[0]), int((time.time() + 600) * 1000))
            running.wait_for("drained", 2)
            cluster.add_node(num_cpus=1)
            running.move_clock(GRACE_AT_S)
            time.sleep(1)
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
        with run(cluster.address) as running:
            running.wait_for("begin", 2)
            running.move_clock(GRACE_AT_S)
            running.wait_for("asked", 2)
            drain(cluster.address, node_id(nodes[0]), int((time.time() + 600) * 1000))
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
        with run(cluster.address) as running:
            running.wait_for("begin", 1)
            cluster.add_node(num_cpus=1)
            (tmp_path / "save").touch()
            running.wait_for("begin", 3)
            (tmp_path / "go").touch()
            running.move_clock(GRACE_AT_S)
            outcome = running.outcome()
    first = running.said("stored")[0][1]
    assert (outcome["status"], outcome["ended_by"]) == ("completed", "deadline")
    assert sorted(running.said("begin")) == [[0, 1, 0], [0, 2, first], [1, 2, first]]
    assert outcome["metrics"]["step"] > first
    assert {each["workers"] for each in outcome["history"]} == {1, 2}


@pytest.mark.slow
def test_a_run_that_has_lost_its_last_node_ends_at_its_deadline_with_its_last_checkpoint(
    run: Callable[..., Any],
) -> None:
    with several_nodes() as cluster:
        node = cluster.add_node(num_cpus=1)
        with run(cluster.address, {"save_at": 3}, failure={"max_failures": 3}) as running:
            running.wait_for("stored", 1)
            cluster.remove_node(node, allow_graceful=False)
            time.sleep(5)  # the node's death is noticed, and room is waited for
            running.move_clock(END_AT_S)
            outcome = running.outcome()
    assert (outcome["status"], outcome["ended_by"]) == ("completed", "deadline")
    assert outcome["metrics"] == {"step": 3}
    assert len(running.said("begin")) == 1
