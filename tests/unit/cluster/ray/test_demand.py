"""What waits in vain, from Ray's own messages: which of it is this sweep's, and which can never be had."""

from __future__ import annotations

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from raysweep.cluster.cluster_watch import DemandWatch
from raysweep.cluster.placement import Holdings, Waiting
from raysweep.cluster.ray.actors import ActorPool
from raysweep.cluster.ray.demand import (
    _of_demand,
    _of_group,
    _plain,
    _Sight,
    explain_place,
    look_for_waiting,
)
from raysweep.raycompat import cluster
from raysweep.raycompat.cluster import Demand, Load, WaitingGroup
from raysweep.specs.trial.resources import resources_of
from raysweep.specs.trial.scaling import Driver, Scaling
from raysweep.specs.trial.shape import Shape

GROUP = "a1b2"
ACTOR = "0102"


def sight(*bundles: Mapping[str, float], owns_cluster: bool = False, **changes: Any) -> _Sight:
    """A cluster of 8 CPUs, 3 of them free, where the sweep has one group."""
    held = Holdings(groups={GROUP: bundles}, workers={ACTOR: "00007"}, owns_cluster=owns_cluster)
    return _Sight(**({"held": held, "free": {"CPU": 3.0}, "total": {"CPU": 8.0}} | changes))


def demand(shape: Mapping[str, float], *, ready: int = 0, infeasible: int = 0) -> Demand:
    return Demand(shape=shape, ready=ready, infeasible=infeasible)


def group(*bundles: Mapping[str, float], creator: str = ACTOR) -> WaitingGroup:
    return WaitingGroup(group_id="0a", creator=creator, bundles=bundles)


def waiting(key: str, *, can_never: bool) -> Waiting:
    return Waiting(key=key, problem=key, can_never=can_never)


# -- how long -----------------------------------------------------------------------------------------


def test_what_waits_long_enough_is_stuck() -> None:
    watch, item = DemandWatch(10.0), waiting("a", can_never=False)
    assert watch.find_stuck([item], 100.0) is None
    assert watch.find_stuck([item], 109.9) is None
    assert watch.find_stuck([item], 110.0) == item


def test_what_was_away_begins_anew() -> None:
    watch, item = DemandWatch(10.0), waiting("a", can_never=False)
    watch.find_stuck([item], 100.0)
    watch.find_stuck([], 105.0)
    assert watch.find_stuck([item], 110.0) is None
    assert watch.find_stuck([item], 120.0) == item


def test_what_can_never_be_had_comes_first() -> None:
    watch = DemandWatch(1.0)
    items = [waiting("a", can_never=False), waiting("b", can_never=True), waiting("c", can_never=False)]
    watch.find_stuck(items, 0.0)
    assert watch.find_stuck(items, 1.0) == items[1]


# -- tasks and actors ---------------------------------------------------------------------------------


def test_a_task_inside_a_trials_own_resources_that_hold_the_trial_alone() -> None:
    found = _of_demand(
        demand({f"CPU_group_{GROUP}": 1, f"bundle_group_{GROUP}": 0.001}, ready=1), sight({"CPU": 2})
    )
    assert found is not None
    assert found.can_never
    assert found.key == f"CPU_group_{GROUP}=1/bundle_group_{GROUP}=0.001"
    assert "asks for {CPU: 1} inside the trial's own resources ({CPU: 2})" in found.problem


@pytest.mark.parametrize(("second", "is_stuck"), [(1.0, False), (0.9, True)])
def test_a_second_bundle_that_is_large_enough_is_waited_for(second: float, is_stuck: bool) -> None:
    found = _of_demand(demand({f"CPU_group_1_{GROUP}": 1}, ready=1), sight({"CPU": 1}, {"CPU": second}))
    assert (found is not None) == is_stuck


def test_a_bundle_without_what_is_asked_for_does_not_do() -> None:
    asked = demand({f"GPU_group_{GROUP}": 1}, ready=1)
    assert _of_demand(asked, sight({"CPU": 1}, {"CPU": 1})) is not None
    assert _of_demand(asked, sight({"CPU": 1}, {"GPU": 1})) is None


@pytest.mark.parametrize(
    ("asked", "owns_cluster", "is_stuck"),
    [
        (demand({"CPU": 99}, infeasible=1), True, True),
        (demand({"CPU": 99}, infeasible=1), False, False),
        (demand({"CPU": 99}, ready=1), True, False),
        (demand({"CPU": 99}), True, False),
        (demand({}, infeasible=1), True, False),
        (demand({"CPU_group_other": 1}, infeasible=1), True, False),
    ],
)
def test_what_no_node_has_is_the_sweeps_trouble_on_its_own_cluster(
    asked: Demand, owns_cluster: bool, is_stuck: bool
) -> None:
    found = _of_demand(asked, sight({"CPU": 1}, owns_cluster=owns_cluster))
    assert (found is not None) == is_stuck
    if found is not None:
        assert (found.key, found.can_never) == ("CPU=99", True)
        assert "asks for {CPU: 99}, which no node has" in found.problem


# -- placement groups ---------------------------------------------------------------------------------


@pytest.mark.parametrize(("asked", "can_never"), [(3.0, False), (3.5, False), (3.6, True)])
def test_a_group_that_would_fit_if_others_went(asked: float, can_never: bool) -> None:
    """8 CPUs, of which the sweep's own trials hold 1: a group of 7 may have its turn, more cannot."""
    found = _of_group(group({"CPU": asked}, {"CPU": asked}), sight({"CPU": 1}))
    assert found is not None
    assert (found.key, found.can_never) == ("0a", can_never)
    assert found.problem.startswith("trial 00007 asked for a placement group of ")


def test_what_the_cluster_has_none_of_can_never_be_had() -> None:
    found = _of_group(group({"GPU": 1}), sight({"CPU": 1}))
    assert found is not None
    assert found.can_never


def test_other_peoples_groups_are_their_business() -> None:
    assert _of_group(group({"CPU": 1}, creator="09"), sight({"CPU": 1})) is None


def test_who_has_the_rest_is_said() -> None:
    """8 CPUs: 3 free, 2 in the sweep's group, 3 others'. What nobody else has is left out."""
    seen = sight(
        {"CPU": 2, "rack": 1}, free={"CPU": 3.0, "disk": 5.0}, total={"CPU": 8.0, "rack": 1.0, "disk": 9.0}
    )
    found = _of_group(group({"CPU": 4}), seen)
    assert found is not None
    assert "; free is {CPU: 3, rack: 0}, this" in found.problem
    assert (
        "holds {CPU: 2, rack: 1} in 1 placement groups, others hold {CPU: 3}; ask for less" in found.problem
    )


def test_nobody_else_is_named_who_has_nothing() -> None:
    found = _of_group(group({"CPU": 4}), sight({"CPU": 5}))
    assert found is not None
    assert "others" not in found.problem


def test_rays_own_names_do_not_count() -> None:
    assert _plain({"CPU": 2.0, "CPU_group_0_ab": 1.0, "node:10.0.0.1": 1.0}) == {"CPU": 2.0}


# -- all of it ----------------------------------------------------------------------------------------


def test_a_look_at_the_cluster(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ray's state is Ray's: two nodes, on which the sweep has one of its two groups."""
    ours = {f"CPU_group_0_{GROUP}": 0.0, f"bundle_group_{GROUP}": 999.0, "node:10.0.0.1": 1.0}
    free = {"one": {"CPU": 2.0} | ours, "two": {"CPU": 1.0}}
    total = {"one": {"CPU": 4.0, "node:10.0.0.1": 1.0}, "two": {"CPU": 4.0}}
    load = Load(
        demands=[demand({"CPU": 1}), demand({"CPU": 9}, infeasible=1)],
        groups=[group({"CPU": 7}), group({"CPU": 1}, creator="other")],
    )
    monkeypatch.setattr(cluster, "free_by_node", lambda: free)
    monkeypatch.setattr(cluster, "total_by_node", lambda: total)
    monkeypatch.setattr(cluster, "read_load", lambda: load)
    groups = {GROUP: [{"CPU": 2.0}], "not placed": [{"CPU": 6.0}]}
    held = Holdings(groups=groups, workers={ACTOR: "00007"}, owns_cluster=True)
    task, wanted = look_for_waiting(held)
    assert (task.key, task.can_never) == ("CPU=9", True)
    # What has no place holds nothing: 8 CPUs, of which the sweep holds 2.
    assert (wanted.key, wanted.can_never) == ("0a", True)
    assert (
        "free is {CPU: 3}, this sweep holds {CPU: 2} in 1 placement groups, others hold {CPU: 3}"
        in task.problem
    )
    assert explain_place([{"CPU": 5.0}], held) == (
        "a worker waits for a place: it asks for {CPU: 5}; free is {CPU: 3}, this sweep holds {CPU: 2}"
        " in 1 placement groups, others hold {CPU: 3}"
    )


def test_a_trial_that_takes_nothing_itself_holds_all_its_bundles_for_what_it_starts() -> None:
    held = ActorPool.find_groups(_pool_with(resources_of(Scaling(driver=Driver())).shape()))
    assert held == {GROUP: ({}, {"CPU": 1.0})}
    waits_for_the_one_before = demand({f"CPU_group_0_{GROUP}": 1}, ready=1)
    assert _of_demand(waits_for_the_one_before, sight(*held[GROUP])) is None


def _pool_with(shape: Shape) -> Any:
    group = SimpleNamespace(id=SimpleNamespace(hex=lambda: GROUP))
    return SimpleNamespace(_groups={0: group}, _shapes={0: shape})
