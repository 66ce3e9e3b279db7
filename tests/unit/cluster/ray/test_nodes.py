"""The room for trials, where the cluster may grow."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raysweep.cluster.preparation import make_setup, shaped
from raysweep.cluster.ray import nodes
from raysweep.cluster.ray.preflight import Node
from raysweep.errors import InfeasibleResourcesError, SpecError
from raysweep.raycompat.cluster import NodeKind
from raysweep.runs.folder import SweepFolder
from raysweep.space.amounts import Needs
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store

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


# -- gangs whose workers take what their configs say ------------------------------------------------------

GIB = 2**30


def gang(**scaling: Any) -> SweepSpec:
    each = {"num_workers": 2, "resources": {"cpu": 1, "memory": GIB}}
    return SweepSpec.model_validate(
        {
            "name": "t",
            "trainable": "m:f",
            "metric": "loss",
            "mode": "min",
            "param_space": {"x": {"choice": [1, 2]}},
            "scaling": {**each, "by_config": {"resources": {"cpu": "x"}}, **scaling},
        }
    )


@pytest.fixture
def two_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 4 CPUs and 8 GiB each."""
    total = {"CPU": 4.0, "memory": 8.0 * GIB}
    both = [Node(name=name, total=total, labels={}, node_id=name) for name in ("a", "b")]
    # As above: the control store stands behind these.
    monkeypatch.setattr(nodes, "live_nodes", lambda: both)
    monkeypatch.setattr(nodes, "draining_nodes", dict)


@pytest.mark.usefixtures("two_nodes")
@pytest.mark.parametrize(
    ("scaling", "beyond"),
    [
        ({}, {"cpu=5", "cpu=2 num_workers=5", f"memory={9 * GIB}", f"cpu=2 memory={6 * GIB} num_workers=3"}),
        (
            {"placement_strategy": "STRICT_PACK"},
            {
                "cpu=3",
                "cpu=5",
                "cpu=2 num_workers=4",
                "cpu=2 num_workers=5",
                f"memory={6 * GIB}",
                f"memory={9 * GIB}",
                f"cpu=2 memory={6 * GIB} num_workers=3",
            },
        ),
    ],
)
def test_all_workers_of_a_gang_must_have_room_with_what_each_takes(
    scaling: dict[str, Any], beyond: set[str]
) -> None:
    within = {"cpu=3", "cpu=2 num_workers=4", f"memory={6 * GIB}", "cpu=2"}
    asked = within | {"cpu=5", "cpu=2 num_workers=5", f"memory={9 * GIB}"}
    asked.add(f"cpu=2 memory={6 * GIB} num_workers=3")
    room = nodes.find_room(gang(**scaling), sizes=asked)
    assert set(room.beyond) == beyond
    assert room.memory_bytes == 8 * GIB


def test_workers_are_told_what_each_of_them_takes(tmp_path: Path) -> None:
    """Their threads, the CPUs that they are pinned to and their GPUs follow from it."""
    spec = gang(resources={"cpu": 1, "gpu": 0.5})
    server = cast("Any", SimpleNamespace(host="h", port=1, token="t"))
    usual = make_setup(spec, SweepFolder(open_store(tmp_path), "a-1"), server)
    assert usual.place.is_sized, "what tune.with_resources asks for is not what each trial has"
    for size, own, total in (
        ("", (1.0, 0.5), {"CPU": 2.0, "GPU": 1.0}),
        ("cpu=3 gpu=2 num_workers=3", (3.0, 2.0), {"CPU": 9.0, "GPU": 6.0}),
    ):
        told = shaped(usual, spec.shape_for(Needs(size=size)))
        assert (told.cpus, told.gpus) == own
        assert not told.hides_gpus
        assert told.place.resources == total
