"""Nodes that are drained, die, or make every trial fail, in a cluster of several nodes on one machine."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.core import decode
from raysweep.core.vocabulary.events import Event, TimerFired, TrialsRecalled
from raysweep.runs.folder import SweepFolder
from raysweep.specs.identity import sweep_id
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import wait_for
from tests.faults.nodes import driving, node_id, read_log, several_nodes
from tests.insides import drain

pytestmark = [pytest.mark.ray, pytest.mark.faults]
Spec = Callable[..., rs.SweepSpec]


@pytest.fixture(scope="module")
def loads(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Where `loads_once` looks, in every worker of the cluster."""
    folder = tmp_path_factory.mktemp("loads")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAYSWEEP_TEST_LOADS", str(folder))
        yield folder


@pytest.fixture(scope="module")
def cluster(loads: Path) -> Iterator[Any]:
    with several_nodes() as cluster:
        yield cluster


@pytest.fixture
def log(tmp_path: Path) -> Path:
    (tmp_path / "bad_nodes").touch()
    path = tmp_path / "log"
    path.touch()
    return path


@pytest.fixture
def make(tmp_path: Path, log: Path) -> Spec:
    """A spec of trials that run in steps; `space` overrides how many, how long, how often they checkpoint."""

    def make(num_samples: int, space: dict[str, Any] | None = None, **failure: Any) -> rs.SweepSpec:
        fixed = {"steps": 10, "step_s": 0.2, "every": 1, "log": str(log)}
        return rs.SweepSpec(
            name="t",
            trainable="tests.engine.trouble:steady",
            param_space={**fixed, "bad_nodes": str(log.parent / "bad_nodes"), **(space or {})},
            metric="loss",
            mode="min",
            num_samples=num_samples,
            failure={"backoff_initial_s": 0.05, "backoff_max_s": 0.1, "max_failures": 0, **failure},
            storage_path=str(tmp_path / "sweeps"),
        )

    return make


@pytest.fixture
def two_nodes(cluster: Any) -> tuple[Any, Any]:
    """Two nodes with room for one trial each; what is left of them is there for the next test."""
    while len(cluster.worker_nodes) < 2:
        cluster.add_node(num_cpus=1)
    first, second = cluster.worker_nodes
    return first, second


def starts(log: Path) -> list[list[str]]:
    return [line[1:] for line in read_log(log) if line[0] == "start"]


def steps_of(log: Path, trial: int) -> list[int]:
    return [int(line[2]) for line in read_log(log) if line[0] == "step" and int(line[1]) == trial]


def wait_for_step(log: Path, node: str, step: int) -> int:
    """Wait until a trial on this node has made so many steps; its number."""
    done = wait_for(
        lambda: [
            line[1]
            for line in read_log(log)
            if line[0] == "step" and line[3] == node and int(line[2]) >= step
        ]
    )
    return int(done[0])


@pytest.mark.timeout(600)
@pytest.mark.servers
def test_a_drained_node_loses_no_step(cluster: Any, two_nodes: Any, make: Spec, log: Path) -> None:
    """The trial there is asked for a checkpoint, which it would not have made by itself, and moves."""
    going = node_id(two_nodes[0])
    with driving(
        make(3, {"steps": 15, "step_s": 0.3, "every": 100}, max_worker_deaths=0), cluster.address
    ) as driver:
        moved = wait_for_step(log, going, 3)
        drain(cluster.address, going, int((time.time() + 30) * 1000))
        outcome = driver.outcome()
    cluster.remove_node(two_nodes[0], allow_graceful=False)
    assert outcome.counts == {"completed": 3}
    assert outcome[moved].attempts[0].end == "preempted", "the fault has fired"
    assert steps_of(log, moved) == list(range(1, 16)), "no step is lost, none is done twice"
    seen = starts(log)
    moved_at = next(n for n, line in enumerate(seen) if int(line[0]) == moved and line[1] == "2")
    assert all(line[2] != going for line in seen[moved_at:]), "nothing starts there any more"
    assert any("is about to go" in note for note in outcome.notes)


@pytest.mark.timeout(600)
@pytest.mark.servers
def test_a_node_that_dies_costs_no_budget(cluster: Any, two_nodes: Any, make: Spec, log: Path) -> None:
    """SIGKILL of the raylet and all its processes."""
    dying = node_id(two_nodes[1])
    # Many steps: on a busy machine it takes seconds until all processes of a node are gone.
    with driving(make(3, {"steps": 40}, max_worker_deaths=0), cluster.address) as driver:
        lost = wait_for_step(log, dying, 8)
        done = steps_of(log, lost)[-1]
        cluster.remove_node(two_nodes[1], allow_graceful=False)
        outcome = driver.outcome()
    assert outcome.counts == {"completed": 3}
    first = outcome[lost].attempts[0]
    assert first.end == "lost"
    assert first.error is not None
    assert first.error.kind == "preempted"
    again = next(line for line in starts(log) if int(line[0]) == lost and line[1] == "2")
    # Up to three checkpoints were on their way, and the word of one that had arrived.
    assert int(again[3]) >= done - 5, "it resumes from its last checkpoint"
    assert steps_of(log, lost).count(1) == 1, "it did not begin anew"


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_node_that_makes_trials_fail_is_left_out(
    cluster: Any, two_nodes: Any, make: Spec, log: Path
) -> None:
    bad = node_id(two_nodes[0])
    (log.parent / "bad_nodes").write_text(bad)
    spec = make(12, {"steps": 2}, max_failures=1, breaker_trials=3)
    with driving(spec, cluster.address) as driver:
        outcome = driver.outcome()
    assert outcome.status == "completed", outcome.why
    failed_on = [a.node for t in outcome.trials for a in t.attempts if a.error is not None]
    assert set(failed_on) == {bad}, "the fault has fired, there and nowhere else"
    assert len(failed_on) <= 5
    assert outcome.counts.get("completed", 0) >= 10
    assert any(f"node {bad} gets no more trials" in note for note in outcome.notes)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_no_node_left_is_an_error_that_can_be_retried(
    cluster: Any, two_nodes: Any, make: Spec, log: Path
) -> None:
    with driving(make(3, placement_timeout_s=5), cluster.address) as driver:
        wait_for_step(log, node_id(two_nodes[0]), 1)
        for node in two_nodes:
            cluster.remove_node(node, allow_graceful=False)
        code, said = driver.finish(timeout_s=240)
    assert (code, said["error"]) == (1, "ClusterLostError")
    assert "for 5 s no node could hold a trial" in said["message"]
    # With nodes back, the same key continues.
    more = cluster.add_node(num_cpus=2)
    try:
        with driving(make(3, placement_timeout_s=5), cluster.address) as driver:
            outcome = driver.outcome()
    finally:
        cluster.remove_node(more, allow_graceful=False)
    assert outcome.counts == {"completed": 3}
    assert outcome.generation == 2


@pytest.fixture
def two_nodes_for_two(cluster: Any) -> Iterator[tuple[Any, Any]]:
    """Two nodes with room for two trials each, and no other."""
    for node in list(cluster.worker_nodes):
        cluster.remove_node(node, allow_graceful=False)
    nodes = cluster.add_node(num_cpus=2), cluster.add_node(num_cpus=2)
    yield nodes
    for node in nodes:
        if node in cluster.worker_nodes:
            cluster.remove_node(node, allow_graceful=False)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.servers
def test_a_node_that_dies_in_the_tail_leaves_room_on_the_other(
    cluster: Any, two_nodes_for_two: Any, make: Spec, log: Path
) -> None:
    """One trial has ended and its place is free: what the dead node ran goes there, one after the other."""
    spec = make(1, {"steps": {"grid_search": [25, 25, 25, 2]}}, max_worker_deaths=0)
    with driving(spec, cluster.address) as driver:
        wait_for(lambda: len(steps_of(log, 3)) == 2 and all(len(steps_of(log, n)) > 4 for n in range(3)))
        home = {int(line[0]): line[2] for line in starts(log)}
        dying = next(node for node in two_nodes_for_two if node_id(node) != home[3])
        lost = [trial for trial in range(3) if home[trial] == node_id(dying)]
        cluster.remove_node(dying, allow_graceful=False)
        outcome = driver.outcome()
    assert outcome.counts == {"completed": 4}
    assert len(lost) == 2
    assert all(outcome[trial].attempts[0].end == "lost" for trial in lost), "the fault has fired"


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.servers
def test_a_node_where_replacements_cannot_load_is_left_to_the_others(
    cluster: Any, two_nodes: Any, make: Spec, loads: Path
) -> None:
    """Each trial has an actor of its own; on one node only the first of them can import the trainable."""
    (loads / "bad").write_text(node_id(two_nodes[0]))
    spec = make(8).replace(trainable="tests.engine.loads_once:train", isolation="actor")
    with driving(spec, cluster.address) as driver:
        outcome = driver.outcome()
    assert (loads / "refused").exists(), "the fault has fired"
    assert outcome.counts == {"completed": 8}, outcome.notes
    assert any("could not be started" in note for note in outcome.notes), outcome.notes


def events_of(spec: rs.SweepSpec, kind: type[Event]) -> list[Event]:
    """What the journal of the sweep holds of this kind."""
    journal = SweepFolder(open_store(spec.storage_path), sweep_id(spec.name, "k")).journal()
    return [event for event in map(decode, journal.contents().records) if isinstance(event, kind)]


@pytest.mark.timeout(600)
@pytest.mark.servers
def test_a_retry_is_not_handed_out_in_circles(cluster: Any, two_nodes: Any, make: Spec, log: Path) -> None:
    """The trial failed on one node, would rather try the other, and that one is busy for long."""
    spec = make(12, {"long_s": 5.0}, max_failures=1).replace(trainable="tests.engine.seam:short_but_two")
    with driving(spec, cluster.address) as driver:
        outcome = driver.outcome()
    assert outcome.counts == {"completed": 12}
    assert [attempt.end for attempt in outcome[11].attempts] == ["failed", "completed"], "the fault has fired"
    assert len(events_of(spec, TrialsRecalled)) < 20


@pytest.mark.timeout(600)
@pytest.mark.servers
def test_a_wait_for_room_while_a_trial_runs_costs_no_events(
    cluster: Any, two_nodes: Any, make: Spec, log: Path
) -> None:
    """All nodes are about to go, and the trial there does not hear of it: its end is waited for, quietly."""
    spec = make(1, {"long_s": 12.0}, placement_timeout_s=1.0).replace(trainable="tests.engine.seam:sleeps")
    with driving(spec, cluster.address) as driver:
        wait_for(lambda: starts(log) or None)
        for node in two_nodes:
            drain(cluster.address, node_id(node), int((time.time() + 90) * 1000))
        outcome = driver.outcome()
    for node in two_nodes:
        cluster.remove_node(node, allow_graceful=False)
    assert any("is about to go" in note for note in outcome.notes), "the fault has fired"
    assert outcome.counts == {"completed": 1}
    assert len(events_of(spec, TimerFired)) < 50
