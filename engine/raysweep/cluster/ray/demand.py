"""Finds resource requests that cannot be met: those of workers, and those that trials made of Ray.

A trial that starts Ray tasks, actors or placement groups can wait for ever: for resources that it or its
siblings hold, or that the cluster does not have. Ray keeps waiting. All facts come from the control store
in two calls; the dashboard is not needed.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raysweep.cluster.placement import Holdings, Waiting
from raysweep.cluster.ray.preflight import show, show_all
from raysweep.cluster.sharing.register import Sight
from raysweep.raycompat import cluster
from raysweep.raycompat.cluster import Bundle, Demand, WaitingGroup

_EPSILON = 1e-6


@dataclass(frozen=True, slots=True, kw_only=True)
class _Sight:
    """The holdings of this sweep, and the free and total resources of the cluster, at one moment."""

    held: Holdings
    free: Bundle
    total: Bundle

    @classmethod
    def of(cls, held: Holdings) -> _Sight:
        available = cluster.free_by_node()
        # Groups that have no place yet hold nothing.
        placed = _placed(available)
        groups = {group: bundles for group, bundles in held.groups.items() if group in placed}
        return cls(
            held=replace(held, groups=groups),
            free=_sum(map(_plain, available.values())),
            total=_sum(map(_plain, cluster.total_by_node().values())),
        )

    @property
    def own(self) -> Bundle:
        return _sum(bundle for bundles in self.held.groups.values() for bundle in bundles)


def look_for_waiting(held: Holdings) -> list[Waiting]:
    """The demands of this sweep's trials that wait at present."""
    sight = _Sight.of(held)
    load = cluster.read_load()
    found = [_of_demand(demand, sight) for demand in load.demands]
    found += [_of_group(group, sight) for group in load.groups]
    return [item for item in found if item is not None]


def look_for_room() -> tuple[Bundle, set[str]] | None:
    """The free resources of the cluster, and the placement groups with a place; None: nodes may be added."""
    if cluster.can_grow():
        return None
    available = cluster.free_by_node()
    return _sum(map(_plain, available.values())), _placed(available)


def look_at_all() -> Sight:
    """The free resources of each node, the total, and the placement groups that have a place."""
    available = cluster.free_by_node()
    placed: dict[str, set[str]] = {}
    for node, amounts in available.items():
        for group in _placed({node: amounts}):
            placed.setdefault(group, set()).add(node)
    free = {node: _plain(amounts) for node, amounts in available.items()}
    return Sight(free=free, total=_sum(map(_plain, cluster.total_by_node().values())), placed=placed)


def _placed(available: Mapping[str, Bundle]) -> set[str]:
    return {_group_of(name) for node in available.values() for name in node if "_group_" in name}


def explain_place(asked: Sequence[Bundle], held: Holdings) -> str:
    """Explain why a worker of this sweep has no place: its request, the free resources, the others' parts."""
    return f"a worker waits for a place: it asks for {show_all(asked)}; {_balance(_Sight.of(held))}"


def _of_demand(demand: Demand, sight: _Sight) -> Waiting | None:
    held, shape = sight.held, demand.shape
    if not (demand.ready or demand.infeasible) or not shape:
        return None
    group = next((_group_of(name) for name in shape if "_group_" in name), "")
    asked = {name.partition("_group_")[0]: amount for name, amount in shape.items()}
    asked.pop("bundle", None)
    key = "/".join(f"{name}={amount}" for name, amount in sorted(shape.items()))
    if group in held.groups:
        return _of_own_group(key, asked, held.groups[group])
    if group or not demand.infeasible or not held.owns_cluster:
        return None
    problem = f"a task or actor asks for {show(asked)}, which no node has; {_balance(sight)}; ask for less"
    return Waiting(key=key, problem=problem, can_never=True)


def _of_own_group(key: str, asked: Bundle, bundles: Sequence[Bundle]) -> Waiting | None:
    """Something that a trial started inside its own resources, of which it keeps the first bundle itself."""
    if any(_fits(asked, bundle) for bundle in bundles[1:]):
        return None  # it waits for another of the trial's own
    problem = (
        f"a trial has started a task or actor that asks for {show(asked)} inside the trial's own resources"
        f" ({show_all(bundles)}), of which the trial itself holds the first bundle: it can never run;"
        " give the trial a second bundle for it (resources.bundles), or start it with num_cpus=0"
    )
    return Waiting(key=key, problem=problem, can_never=True)


def _of_group(group: WaitingGroup, sight: _Sight) -> Waiting | None:
    trial = sight.held.workers.get(group.creator)
    if trial is None:
        return None
    asked, total, own = group.bundles, sight.total, sight.own
    can_never = any(
        amount > total.get(name, 0.0) - own.get(name, 0.0) + _EPSILON for name, amount in _sum(asked).items()
    )
    problem = (
        f"trial {trial} asked for a placement group of {show_all(asked)}, which has no place;"
        f" {_balance(sight)}; ask for less, or lower max_concurrent_trials"
    )
    return Waiting(key=group.group_id, problem=problem, can_never=can_never)


def _balance(sight: _Sight) -> str:
    free, total, own = sight.free, sight.total, sight.own
    names = [name for name in total if name in ("CPU", "GPU") or name in own]
    others = {name: total[name] - free.get(name, 0.0) - own.get(name, 0.0) for name in names}
    others = {name: amount for name, amount in others.items() if amount > _EPSILON}
    text = f"free is {show({name: free.get(name, 0.0) for name in names})},"
    text += f" this sweep holds {show(own)} in {len(sight.held.groups)} placement groups"
    return text + (f", others hold {show(others)}" if others else "")


def _plain(resources: Bundle) -> Bundle:
    """Without the names that Ray makes for placement groups and nodes."""
    return {name: amount for name, amount in resources.items() if "_group_" not in name and ":" not in name}


def _sum(bundles: Iterable[Bundle]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return total


def _fits(asked: Bundle, bundle: Bundle) -> bool:
    return all(amount <= bundle.get(name, 0.0) + _EPSILON for name, amount in asked.items())


def _group_of(name: str) -> str:
    """The placement group in `CPU_group_<id>` or `CPU_group_<index>_<id>`."""
    return name.rpartition("_")[2]
