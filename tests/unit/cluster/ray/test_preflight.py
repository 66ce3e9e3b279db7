"""Whether and how often a trial's resources fit on a cluster, as arithmetic on tables of nodes."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.cluster.ray.preflight import MAX_SLOTS, Node, count_slots
from raysweep.errors import InfeasibleResourcesError
from raysweep.specs import Resources
from raysweep.specs.trial.resources import resources_of
from raysweep.specs.trial.scaling import Scaling

pytest.importorskip("ray")
GIB = 2.0**30


def node(name: str = "a", *, labels: dict[str, str] | None = None, **total: float) -> Node:
    return Node(name=name, total={"node:10.0.0.1": 1.0, **total}, labels=labels or {})


def slots(nodes: list[Node], limit: int | None = None, **resources: Any) -> int:
    return count_slots(Resources(**resources).shape(), nodes, limit)


SMALL = [node("a", CPU=4, memory=8 * GIB), node("b", CPU=4, GPU=2, memory=8 * GIB)]


@pytest.mark.parametrize(
    ("resources", "expected"),
    [
        ({"cpu": 1}, 8),
        ({"cpu": 3}, 2),
        ({"cpu": 4}, 2),
        ({"cpu": 0.5}, 16),
        ({"cpu": 0.1}, 80),
        ({"cpu": 1, "gpu": 1}, 2),
        ({"cpu": 1, "gpu": 0.5}, 4),
        ({"cpu": 1, "memory": int(3 * GIB)}, 4),
        ({"bundles": [{"CPU": 1}, {"CPU": 1}]}, 4),
        ({"bundles": [{"CPU": 3}, {"CPU": 1}]}, 2),
        ({"bundles": [{"CPU": 3}, {"CPU": 3}], "strategy": "PACK"}, 1),
        ({"bundles": [{"CPU": 3}, {"CPU": 3}], "strategy": "SPREAD"}, 1),
        ({"bundles": [{"CPU": 2}, {"CPU": 2}], "strategy": "STRICT_PACK"}, 2),
        ({"bundles": [{"CPU": 2}, {"CPU": 2}], "strategy": "STRICT_SPREAD"}, 2),
        ({"bundles": [{"CPU": 3}, {"CPU": 3}], "strategy": "STRICT_SPREAD"}, 1),
    ],
)
def test_how_many_fit(resources: dict[str, Any], expected: int) -> None:
    assert slots(SMALL, **resources) == expected


def test_the_limit_bounds_the_count() -> None:
    assert slots(SMALL, limit=3, cpu=1) == 3
    assert slots(SMALL, limit=100, cpu=1) == 8
    assert slots([node(CPU=1e9)], cpu=1) == MAX_SLOTS


def test_custom_resources_and_labels() -> None:
    nodes = [
        node("a", CPU=4, magic=2, labels={"zone": "x", "kind": "big"}),
        node("b", CPU=4, labels={"zone": "y"}),
    ]
    assert slots(nodes, cpu=1, custom={"magic": 1}) == 2
    assert slots(nodes, cpu=1, label_selector={"zone": "x"}) == 4
    assert slots(nodes, cpu=1, label_selector={"zone": "!x"}) == 4
    assert slots(nodes, cpu=1, label_selector={"zone": "in(x, y)"}) == 8
    assert slots(nodes, cpu=1, label_selector={"zone": "!in(x,y)", "kind": "!big"} | {"zone": "y"}) == 4
    assert slots(nodes, cpu=1, label_selector={"zone": "x", "kind": "big"}) == 4


@pytest.mark.parametrize(
    ("resources", "field", "says"),
    [
        ({"cpu": 8}, "resources.cpu", "asks for 8 CPU; the largest node has 4; ask for at most 4"),
        ({"gpu": 3}, "resources.gpu", "asks for 3 GPU; the largest node has 2"),
        (
            {"cpu": 1, "memory": int(16 * GIB)},
            "resources.memory",
            "asks for 16 GiB of memory; the largest node has 8 GiB of",
        ),
        (
            {"cpu": 1, "custom": {"magic": 1}},
            "resources.custom.magic",
            "asks for 1 magic; the largest node has 0; no node offers 'magic'",
        ),
        (
            {"bundles": [{"CPU": 1}, {"CPU": 5}]},
            "resources.bundles[1].cpu",
            "asks for 5 CPU; the largest node has 4",
        ),
        (
            {"bundles": [{"CPU": 3}, {"CPU": 3}], "strategy": "STRICT_PACK"},
            "resources",
            "{CPU: 3} + {CPU: 3} placed STRICT_PACK, which the cluster cannot hold: a has {CPU: 4",
        ),
        (
            {"bundles": [{"CPU": 1}] * 3, "strategy": "STRICT_SPREAD"},
            "resources",
            "{CPU: 1} + {CPU: 1} + {CPU: 1} placed STRICT_SPREAD",
        ),
        ({"cpu": 1, "label_selector": {"zone": "x"}}, "resources.label_selector", "{'zone': 'x'}"),
    ],
)
def test_what_does_not_fit_is_told_in_numbers(resources: dict[str, Any], field: str, says: str) -> None:
    with pytest.raises(InfeasibleResourcesError) as caught:
        slots(SMALL, **resources)
    assert caught.value.field == field
    assert says in str(caught.value)
    assert "\n" not in str(caught.value)


def test_resources_that_no_node_has_together() -> None:
    nodes = [node("a", CPU=8), node("b", CPU=1, GPU=4)]
    with pytest.raises(InfeasibleResourcesError, match=r"no node has .CPU: 4, GPU: 1. together"):
        slots(nodes, cpu=4, gpu=1)


def test_an_empty_cluster() -> None:
    with pytest.raises(InfeasibleResourcesError):
        slots([], cpu=1)


def test_a_group_that_does_not_fit_takes_nothing() -> None:
    """Two of {3, 3} do not fit, but the one that is tried last must not use up the room."""
    nodes = [node("a", CPU=3), node("b", CPU=3), node("c", CPU=2)]
    assert slots(nodes, bundles=[{"CPU": 3}, {"CPU": 3}]) == 1
    assert slots(nodes, cpu=1) == 8


# Eight CPUs on one node, and on two.
EIGHT = [node("a", CPU=8)]
PAIR = [
    node("a", CPU=4, labels={"kind": "spot"}),
    node(
        "b",
        CPU=4,
        labels={"kind": "safe"},
    ),
]
FOUR = {"num_workers": 4, "resources": {"cpu": 1}, "driver": {}}


@pytest.mark.parametrize(
    ("nodes", "scaling", "expected"),
    [
        (EIGHT, FOUR, 2),
        (EIGHT, {**FOUR, "driver": {"cpu": 1}}, 1),
        (EIGHT, {**FOUR, "driver": {"data_cpus": 1}}, 1),
        (EIGHT, {**FOUR, "num_workers": 1, "driver": {"data_cpus": 1}}, 4),
        (PAIR, {**FOUR, "num_workers": 1, "driver": {"data_cpus": 3}}, 2),
        (EIGHT, {**FOUR, "resources": {"cpu": 0.5}}, 4),
        (EIGHT, {**FOUR, "num_workers": 8}, 1),
        (PAIR, FOUR, 2),
        (PAIR, {**FOUR, "num_workers": 2, "placement_strategy": "STRICT_SPREAD"}, 4),
        (PAIR, {**FOUR, "placement_strategy": "STRICT_PACK"}, 2),
        (PAIR, {**FOUR, "label_selector": {"kind": "spot"}}, 1),
        (PAIR, {**FOUR, "driver": {"cpu": 1, "label_selector": {"kind": "safe"}}}, 1),
        (
            PAIR,
            {
                **FOUR,
                "num_workers": 1,
                "label_selector": {"kind": "spot"},
                "driver": {"cpu": 0.5, "label_selector": {"kind": "safe"}},
            },
            4,
        ),
    ],
)
def test_as_many_drivers_run_as_their_workers_fit(
    nodes: list[Node], scaling: dict[str, Any], expected: int
) -> None:
    assert count_slots(resources_of(Scaling.model_validate(scaling)).shape(), nodes) == expected


@pytest.mark.parametrize(
    ("scaling", "field"),
    [
        ({"resources": {"cpu": 5}, "driver": {}}, "scaling.resources.cpu"),
        ({**FOUR, "driver": {"cpu": 5}}, "scaling.driver.cpu"),
        ({**FOUR, "driver": {"data_cpus": 5}}, "scaling.driver.data_cpus"),
        (
            {**FOUR, "driver": {"cpu": 1, "label_selector": {"kind": "none"}}},
            "scaling.driver.label_selector",
        ),
        ({**FOUR, "label_selector": {"kind": "none"}}, "scaling.label_selector"),
        ({**FOUR, "num_workers": 9}, "scaling"),
    ],
)
def test_a_run_that_can_never_start_is_refused_by_the_field_that_says_so(
    scaling: dict[str, Any], field: str
) -> None:
    with pytest.raises(InfeasibleResourcesError) as refused:
        count_slots(resources_of(Scaling.model_validate(scaling)).shape(), PAIR)
    assert refused.value.field == field
