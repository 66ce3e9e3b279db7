"""raysweep.raycompat against a real Ray: the contracts that messages and signatures alone cannot hold."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.raycompat import cluster
from tests.engine.conftest import wait_for
from tests.insides import actor_states

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def test_what_nodes_have_and_have_free() -> None:
    (total,) = cluster.total_by_node().values()
    assert total["CPU"] == 2.0
    wait_for(lambda: [free.get("CPU") for free in cluster.free_by_node().values()] == [2.0])
    assert set(cluster.free_by_node()) == set(cluster.total_by_node())


def test_no_node_is_about_to_go_and_none_could_be_added() -> None:
    assert cluster.draining_nodes() == {}
    assert cluster.node_kinds() == []
    assert not cluster.can_grow()


def test_what_waits_is_seen_and_a_dead_actors_groups_are_found_and_removed() -> None:
    import ray
    from ray.util import placement_group, placement_group_table

    class Maker:
        def make(self, cpus: float) -> str:
            return str(placement_group([{"CPU": cpus}]).id.hex())

    maker: Any = ray.remote(num_cpus=0)(Maker).remote()  # type: ignore[attr-defined]
    actor = maker._actor_id.hex()
    placed, waits = ray.get([maker.make.remote(1), maker.make.remote(99)])
    asked = ray.remote(num_cpus=77)(int).remote()
    try:
        wait_for(lambda: [each.group_id for each in cluster.read_load().groups] == [waits])
        (group,) = cluster.read_load().groups
        assert (group.creator, list(group.bundles)) == (actor, [{"CPU": 99.0}])
        wait_for(
            lambda: [(d.shape, d.infeasible) for d in cluster.read_load().demands] == [({"CPU": 77.0}, 1)]
        )

        ray.kill(maker)
        wait_for(lambda: "ALIVE" not in actor_states())
        # Ray keeps them: that is why they are looked for.
        found = cluster.find_groups_of({actor})
        assert {group_id.hex() for group_id in found} == {placed, waits}
        for group_id in found:
            cluster.remove_group(group_id)
        wait_for(lambda: cluster.find_groups_of({actor}) == [])
        assert {placement_group_table()[name]["state"] for name in (placed, waits)} == {"REMOVED"}
    finally:
        ray.cancel(asked, force=True)
    wait_for(lambda: not cluster.read_load().demands)


def test_a_training_runs_and_one_that_waits_for_room_runs_when_there_is_some(tmp_path: Path) -> None:
    from ray.util import placement_group, remove_placement_group

    ended: list[rs.TrainOutcome] = []

    def run(key: str) -> None:
        fields: dict[str, Any] = {"name": "t", "storage_path": str(tmp_path), "max_failures": 0}
        spec = rs.TrainSpec(trainable="examples.quick:steps", config={"steps": 3, "start": 8.0}, **fields)
        ended.append(rs.run_training(spec, key=key))

    run("k")
    assert (ended[0].status, ended[0].metrics) == ("completed", {"loss": 1.0, "step": 3})
    wait_for(lambda: "ALIVE" not in actor_states())

    group = placement_group([{"CPU": 2}])
    ray_is_full = group.wait(30)
    assert ray_is_full
    thread = threading.Thread(target=run, args=("waits",))
    thread.start()
    wait_for(lambda: cluster.read_load().groups)
    remove_placement_group(group)
    thread.join()
    assert [outcome.status for outcome in ended] == ["completed", "completed"]
