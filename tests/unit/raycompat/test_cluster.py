"""The control store's calls and messages, as raysweep.raycompat.cluster takes them."""

from __future__ import annotations

from typing import Any

import pytest
from ray._private.state import GlobalState
from ray._raylet import GlobalStateAccessor, PlacementGroupID
from ray.core.generated import gcs_pb2
from ray.core.generated.autoscaler_pb2 import ClusterConfig
from ray.util.placement_group import PlacementGroup

from raysweep.raycompat import cluster
from raysweep.raycompat.cluster import Demand, NodeKind, WaitingGroup
from tests.unit.raycompat.moved import parameters, ray_version

TABLE: Any = gcs_pb2.PlacementGroupTableData  # type: ignore[attr-defined]
ACTOR = b"\x01\x02"


class Answers:
    """Stands for `ray._private.state.state`: answers in Ray's own messages."""

    def __init__(
        self, *, usage: Any = None, groups: Any = (), config: Any = None, limits: Any = None
    ) -> None:
        self._usage, self._groups, self._config, self._limits = usage, groups, config, limits

    def _connect_and_get_accessor(self) -> Answers:
        return self

    def get_all_resource_usage(self) -> bytes:
        return bytes(self._usage.SerializeToString())

    def get_placement_group_table(self) -> list[bytes]:
        return [group.SerializeToString() for group in self._groups]

    def get_cluster_config(self) -> Any:
        return self._config

    def get_max_resources_from_cluster_config(self) -> Any:
        return self._limits

    def get_draining_nodes(self) -> dict[str, int]:
        return {"soon": 5500, "some day": 0}


@pytest.mark.parametrize(
    "name",
    [
        "_connect_and_get_accessor" if ray_version() > (2, 50) else "_check_connected",
        "available_resources_per_node",
        "get_cluster_config",
        "get_draining_nodes",
        "get_max_resources_from_cluster_config",
        "total_resources_per_node",
    ],
)
def test_the_state_has_what_is_called_without_arguments(name: str) -> None:
    assert parameters(getattr(GlobalState, name)) == ["self"]


@pytest.mark.parametrize("name", ["get_all_resource_usage", "get_placement_group_table"])
def test_the_accessor_has_what_is_called(name: str) -> None:
    assert callable(getattr(GlobalStateAccessor, name))


def test_what_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    usage: Any = gcs_pb2.ResourceUsageBatchData()  # type: ignore[attr-defined]
    demand = usage.resource_load_by_shape.resource_demands.add()
    demand.shape.update({"CPU": 2.0})
    demand.num_ready_requests_queued, demand.num_infeasible_requests_queued = 3, 4
    group = usage.placement_group_load.placement_group_data.add()
    group.placement_group_id, group.creator_actor_id = b"\x0a", ACTOR
    group.bundles.add().unit_resources.update({"GPU": 1.0})
    monkeypatch.setattr(cluster, "state", Answers(usage=usage))
    load = cluster.read_load()
    assert load.demands == [Demand(shape={"CPU": 2.0}, ready=3, infeasible=4)]
    assert load.groups == [WaitingGroup(group_id="0a", creator="0102", bundles=[{"GPU": 1.0}])]


def test_whose_groups_are_found(monkeypatch: pytest.MonkeyPatch) -> None:
    rows = [
        TABLE(placement_group_id=b"placed", creator_actor_id=ACTOR, state=TABLE.CREATED),
        TABLE(placement_group_id=b"waits", creator_actor_id=ACTOR, state=TABLE.PENDING),
        TABLE(placement_group_id=b"removed", creator_actor_id=ACTOR, state=TABLE.REMOVED),
        TABLE(placement_group_id=b"detached", creator_actor_id=ACTOR, state=TABLE.CREATED, is_detached=True),
        TABLE(placement_group_id=b"another's", creator_actor_id=b"\x03", state=TABLE.CREATED),
    ]
    monkeypatch.setattr(cluster, "state", Answers(groups=rows))
    assert cluster.find_groups_of({ACTOR.hex()}) == [b"placed", b"waits"]


def test_an_id_makes_a_group_that_can_be_removed(monkeypatch: pytest.MonkeyPatch) -> None:
    removed: list[PlacementGroup] = []
    monkeypatch.setattr(cluster, "remove_placement_group", removed.append)
    raw = PlacementGroupID.from_random().binary()
    cluster.remove_group(raw)
    assert removed[0].id.binary() == raw


def test_what_could_be_added(monkeypatch: pytest.MonkeyPatch) -> None:
    config: Any = ClusterConfig()
    config.node_group_configs.add(name="big", resources={"CPU": 8}, max_count=-1)
    config.node_group_configs.add(name="mid", resources={"CPU": 4}, max_count=2)
    monkeypatch.setattr(cluster, "state", Answers(config=config, limits={"CPU": 16}))
    assert cluster.node_kinds() == [
        NodeKind(name="big", resources={"CPU": 8}, max_count=None),
        NodeKind(name="mid", resources={"CPU": 4}, max_count=2),
    ]
    assert cluster.can_grow()
    monkeypatch.setattr(cluster, "state", Answers())
    assert cluster.node_kinds() == []
    assert not cluster.can_grow()


def test_which_nodes_are_about_to_go(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "state", Answers())
    assert cluster.draining_nodes() == {"soon": 5.5, "some day": None}
