"""raysweep.raycompat against a real Ray: the contracts that messages and signatures alone cannot hold."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.raycompat import cluster, tokens
from tests.engine.conftest import wait_for
from tests.insides import actor_states

pytestmark = [pytest.mark.ray, pytest.mark.usefixtures("ray_cluster")]


def test_what_nodes_have_and_have_free() -> None:
    (total,) = cluster.total_by_node().values()
    assert total["CPU"] == 2.0
    wait_for(lambda: [free.get("CPU") for free in cluster.free_by_node().values()] == [2.0])
    assert set(cluster.free_by_node()) == set(cluster.total_by_node())


def test_an_embedded_ray_is_open_where_this_process_requires_no_token() -> None:
    import ray

    address = ray.get_runtime_context().gcs_address
    assert tokens.is_open(address) is not tokens.refuses_calls_without()
    assert not tokens.is_open("127.0.0.1:1")


def test_no_node_is_about_to_go_and_none_could_be_added() -> None:
    assert cluster.draining_nodes() == {}
    assert cluster.node_kinds() == []
    assert not cluster.can_grow()


def test_what_waits_is_seen_and_a_dead_actors_groups_are_found_and_removed() -> None:
    """Ray keeps the groups of a dead actor: that is why they are looked for."""
    import ray
    from ray.util import placement_group, placement_group_table

    class Maker:
        def make(self, cpus: float) -> str:
            return str(placement_group([{"CPU": cpus}]).id.hex())

    maker: Any = ray.remote(num_cpus=0)(Maker).remote()  # type: ignore[attr-defined]
    actor = maker._actor_id.hex()
    placed, waits = ray.get([maker.make.remote(1), maker.make.remote(99)])
    asked: Any = ray.remote(num_cpus=77)(lambda: None).remote()
    try:
        wait_for(lambda: [each.group_id for each in cluster.read_load().groups] == [waits])
        (group,) = cluster.read_load().groups
        assert (group.creator, list(group.bundles)) == (actor, [{"CPU": 99.0}])
        wait_for(
            lambda: [(d.shape, d.infeasible) for d in cluster.read_load().demands] == [({"CPU": 77.0}, 1)]
        )

        ray.kill(maker)
        wait_for(lambda: "ALIVE" not in actor_states())
        found = cluster.find_groups_of({actor})
        assert {group_id.hex() for group_id in found} == {placed, waits}
        for group_id in found:
            cluster.remove_group(group_id)
        wait_for(lambda: cluster.find_groups_of({actor}) == [])
        assert {placement_group_table()[name]["state"] for name in (placed, waits)} == {"REMOVED"}
    finally:
        ray.cancel(asked, force=True)
    wait_for(lambda: not cluster.read_load().demands)
