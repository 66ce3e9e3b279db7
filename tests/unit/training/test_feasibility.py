"""Workers that no cluster can hold are refused, with the numbers."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import InfeasibleResourcesError
from raysweep.specs import Scaling
from raysweep.training.feasibility import check_nodes, check_scaling

NODES = [{"CPU": 4.0, "GPU": 1.0}, {"CPU": 2.0}]


@pytest.mark.parametrize(
    "fields",
    [
        {"num_workers": 6},
        {"num_workers": 4, "placement_strategy": "STRICT_PACK"},
        {"num_workers": 2, "placement_strategy": "STRICT_SPREAD"},
        {"num_workers": 60, "resources": {"cpu": 0.1}},
        {"num_workers": 1, "resources": {"cpu": 4, "gpu": 1}},
    ],
)
def test_what_fits_passes(fields: dict[str, Any]) -> None:
    check_scaling(Scaling(**fields), NODES)


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        ({"num_workers": 7}, "7 workers of {CPU: 1} can never run: there is room for 6 on 2 nodes"),
        ({"num_workers": 5, "placement_strategy": "STRICT_PACK"}, "on one node: there is room for 4"),
        (
            {"num_workers": 3, "placement_strategy": "STRICT_SPREAD"},
            "on nodes of their own: there is room for 2",
        ),
        ({"num_workers": 2, "resources": {"cpu": 0, "gpu": 1}}, "room for 1 on 2 nodes: {GPU: 1}, {GPU: 0}"),
        ({"num_workers": 2, "resources": {"cpu": 3}}, "set num_workers to 1 or less"),
        ({"num_workers": 1, "resources": {"cpu": 0, "custom": {"tpu": 1}}}, "ask for less"),
    ],
)
def test_what_does_not_fit_is_refused_with_the_numbers(fields: dict[str, Any], says: str) -> None:
    with pytest.raises(InfeasibleResourcesError) as caught:
        check_scaling(Scaling(**fields), NODES)
    assert says in str(caught.value)


def test_of_a_range_the_smaller_number_has_to_fit() -> None:
    check_scaling(Scaling(num_workers=(6, 60)), NODES)
    with pytest.raises(InfeasibleResourcesError, match=r"7 workers of .* set num_workers to \[6, 60\], or"):
        check_scaling(Scaling(num_workers=(7, 60)), NODES)


def test_only_nodes_with_the_labels_count() -> None:
    nodes = [
        {"Resources": {"CPU": 4.0}, "Labels": {"kind": "small"}},
        {"Resources": {"CPU": 2.0}, "Labels": {"kind": "big"}},
        {"Resources": {"CPU": 1.0}},
    ]
    check_nodes(Scaling(num_workers=7), nodes)
    check_nodes(Scaling(num_workers=2, label_selector={"kind": "big"}), nodes)
    with pytest.raises(InfeasibleResourcesError, match="room for 2 on 1 node:"):
        check_nodes(Scaling(num_workers=3, label_selector={"kind": "big"}), nodes)
    with pytest.raises(InfeasibleResourcesError, match=r"^scaling\.label_selector: no live node has .*big"):
        check_nodes(Scaling(label_selector={"kind": "huge"}), nodes)
