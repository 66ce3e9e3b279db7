"""The part of a cluster that a spec asks for."""

from __future__ import annotations

from typing import Any

import pytest

import raysweep as rs
from raysweep.specs.changes import changes


def make(**fields: Any) -> rs.SweepSpec:
    plain = {"name": "n", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}}
    return rs.SweepSpec(**plain | fields)  # type: ignore[arg-type]


def test_a_share_has_weight_one_and_no_priority_by_default() -> None:
    share = make(share={}).share
    assert share is not None
    assert (share.weight, share.priority) == (1.0, 0)
    assert make().share is None


def test_a_spec_without_a_share_is_written_without_one() -> None:
    assert "share" not in make().to_dict()
    written = make(share={"weight": 2}).to_dict()["share"]
    assert written == {"weight": 2.0, "priority": 0}
    assert make(share=written) == make(share={"weight": 2})


def test_a_share_does_not_make_another_sweep() -> None:
    assert make(share={"weight": 2}).digest() == make().digest()
    found = changes(make(), make(share={"weight": 2}))
    assert not found.unsafe
    assert [line.partition(":")[0] for line in found.safe] == ["share.weight", "share.priority"]


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"share": {"weight": 0}}, "share.weight: "),
        ({"share": {"weight": -1}}, "share.weight: "),
        ({"share": {"weight": float("inf")}}, "share.weight: "),
        ({"share": {"weight": float("nan")}}, "share.weight: "),
        ({"share": {"weight": True}}, "share.weight: "),
        ({"share": {"weight": "2"}}, "share.weight: "),
        ({"share": {"priority": 1.5}}, "share.priority: "),
        ({"share": {"priority": 10**6}}, "share.priority: "),
        ({"share": {"wieght": 2}}, "share.wieght: "),
        ({"share": 2}, "share: "),
        (
            {"share": {}, "autoscaled": True, "max_concurrent_trials": 4},
            "share: cannot be combined with autoscaled: ",
        ),
        ({"share": {}, "isolation": "inline", "max_concurrent_trials": 1}, "share: an inline sweep takes"),
    ],
)
def test_what_makes_no_sense_is_refused_in_one_line(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(rs.SpecError) as raised:
        make(**fields)
    assert str(raised.value).startswith(message)
    assert "\n" not in str(raised.value)
