"""The room for trials, where the cluster may grow."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.cluster import nodes
from raysweep.cluster.preflight import Node
from raysweep.errors import InfeasibleResourcesError, SpecError
from raysweep.raycompat.cluster import NodeKind
from raysweep.spec import SweepSpec

SMALL = Node(name="head", total={"CPU": 1.0, "memory": 2.0**30}, labels={}, node_id="a")


@pytest.fixture
def kinds(monkeypatch: pytest.MonkeyPatch) -> list[NodeKind]:
    """The kinds of node that the cluster's configuration names: none, until a test adds some."""
    found: list[NodeKind] = []
    # The cluster's control store stands behind these three; everything else is real.
    monkeypatch.setattr(nodes, "live_nodes", lambda: [SMALL])
    monkeypatch.setattr(nodes, "draining_nodes", dict)
    monkeypatch.setattr(nodes, "node_kinds", lambda: found)
    return found


def spec(**fields: Any) -> SweepSpec:
    plain: dict[str, Any] = {"name": "t", "trainable": "m:f", "metric": "loss", "mode": "min"}
    plain |= {"param_space": {"x": {"uniform": [0, 1]}}, "resources": {"cpu": 4}}
    return SweepSpec.model_validate(plain | fields)


def test_what_no_node_holds_is_refused(kinds: list[NodeKind]) -> None:
    kinds.append(NodeKind(name="big", resources={"CPU": 8}, max_count=2))
    with pytest.raises(InfeasibleResourcesError, match="largest node has 1"):
        nodes.find_room(spec())


def test_an_autoscaled_cluster_is_asked_for_all_that_may_run_at_once(kinds: list[NodeKind]) -> None:
    room = nodes.find_room(spec(autoscaled=True, max_concurrent_trials=6))
    assert (room.slots, room.nodes, room.memory_bytes) == (6, 1, 0)
    kinds.append(NodeKind(name="big", resources={"CPU": 8}, max_count=None))
    assert nodes.find_room(spec(autoscaled=True, max_concurrent_trials=6)).slots == 6


def test_what_no_kind_of_node_could_hold_is_refused(kinds: list[NodeKind]) -> None:
    kinds.append(NodeKind(name="big", resources={"CPU": 8}, max_count=0))
    kinds.append(NodeKind(name="mid", resources={"CPU": 3}, max_count=5))
    with pytest.raises(InfeasibleResourcesError, match="largest node has 3"):
        nodes.find_room(spec(autoscaled=True, max_concurrent_trials=6))
    split = {"bundles": [{"CPU": 3}] * 2, "strategy": "STRICT_SPREAD"}
    assert nodes.find_room(spec(autoscaled=True, max_concurrent_trials=6, resources=split)).slots == 6


def test_it_must_be_said_how_far_the_cluster_is_to_grow() -> None:
    with pytest.raises(SpecError, match=r"autoscaled.*max_concurrent_trials"):
        spec(autoscaled=True)
