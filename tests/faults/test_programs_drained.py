"""Programs on a node that is drained: they move to another node with their checkpoint, and leave nothing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.core.vocabulary.events import NodeDraining
from tests.engine.conftest import wait_for
from tests.engine.programs import (
    ASHA,
    EPOCHS,
    KINDS,
    are_exact,
    events_of,
    parent_of,
    program_of,
    reached,
    rows_of,
    running,
    spec_of,
)
from tests.faults.nodes import driving, node_id, several_nodes
from tests.insides import drain
from tests.sampling import sampled

pytestmark = [pytest.mark.ray, pytest.mark.faults, pytest.mark.timeout(1200)]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    with several_nodes() as cluster:
        yield cluster


@pytest.mark.servers
@pytest.mark.parametrize("kind", sampled(KINDS, lambda kind: kind == "shell"))
def test_a_program_on_a_drained_node_moves_with_its_checkpoint_and_leaves_nothing(
    kind: str, cluster: Any, storage: Path, tmp_path: Path
) -> None:
    while len(cluster.worker_nodes) < 2:
        cluster.add_node(num_cpus=1)
    fields, script = program_of(kind, tmp_path)
    spec = spec_of(storage, **fields, num_samples=3, scheduler=ASHA, failure={"max_worker_deaths": 0})
    pids = tmp_path / "pids"
    (pids / "hold").touch()
    with driving(spec, cluster.address) as driver:
        going = node_of(wait_for(lambda: reached(pids / "0", 2), 600), cluster)
        drain(cluster.address, node_id(going), int((time.time() + 120) * 1000))
        wait_for(lambda: events_of(storage, NodeDraining))
        (pids / "hold").unlink()
        outcome = driver.outcome()
        assert not running(str(script)), "while the node is still there"
    cluster.remove_node(going, allow_graceful=False)
    moved = outcome.trials[0]
    assert (moved.num_attempts, moved.attempts[0].end) == (2, "preempted"), "the drain came in time"
    assert moved.attempts[0].node == node_id(going)
    assert moved.attempts[1].node != node_id(going)
    for trial in outcome.trials:
        rows = rows_of(storage, trial.number)
        assert are_exact(rows)
        assert rows[-1]["epoch"] == EPOCHS or trial.state == "stopped"
    first, second = ([row for row in rows_of(storage, 0) if row["attempt"] == n] for n in (1, 2))
    assert second[0]["epoch"] == first[-1]["epoch"] + 1, "no epoch is lost, none is done twice"


def node_of(pid: int, cluster: Any) -> Any:
    """The node on which a process runs: one of its ancestors is the node's raylet."""
    raylets = {node.all_processes["raylet"][0].process.pid: node for node in cluster.worker_nodes}
    while pid not in raylets:
        pid = parent_of(pid)
    return raylets[pid]
