"""Clears a node for a slot that fits on none: how many slots the other sweeps may keep on each. Pure.

The division counts amounts, and a cluster is made of nodes: 16 sweeps' slots of one CPU that end by chance
leave no node empty for a slot of eight. So where a sweep waits for a slot that fits on no node, one node is
chosen, and the others give back so many slots there as it takes. The choice is the same in each controller:
the node where the fewest slots of sweeps within their share have to move, then the one that has most room.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import Final

from raysweep.cluster.sharing.division import Bundle, Claim, Part

_AHEAD: Final = 8
"""Nodes are chosen for so many slots of a sweep at a time."""
_EPSILON: Final = 1e-6


def clear_nodes(
    claims: Iterable[Claim], parts: Mapping[str, Part], free: Mapping[str, Bundle]
) -> dict[str, dict[str, int]]:
    """By owner, how many slots it may keep on the nodes that are cleared; nodes not named: all.

    The cost is that of the slots that wait, eight a sweep, times nodes and sweeps.

    Args:
        claims: The claims of all sweeps that share the cluster, with what they hold on each node.
        parts: What the division gives each of them.
        free: What each node has free.
    """
    claims = sorted(claims, key=lambda claim: (-claim.priority, claim.deadline or inf, claim.owner))
    nodes = _Nodes(claims, parts, free)
    for claim in claims:
        waiting = 0 if claim.has_labels else parts[claim.owner].slots - claim.holds
        for _ in range(min(_AHEAD, waiting)):
            for bundle in claim.bundles:
                nodes.take(claim, bundle)
    return nodes.kept


class _Nodes:
    """The nodes as they will be: what is taken from them, and what the sweeps keep there."""

    def __init__(
        self, claims: Sequence[Claim], parts: Mapping[str, Part], free: Mapping[str, Bundle]
    ) -> None:
        self._claims = claims
        self._is_over = {claim.owner: claim.holds > parts[claim.owner].slots for claim in claims}
        self._free = {node: dict(amounts) for node, amounts in free.items()}
        self._slots = {claim.owner: dict(claim.places) for claim in claims}
        self.kept: dict[str, dict[str, int]] = {}

    def take(self, claim: Claim, bundle: Bundle) -> None:
        """Take a bundle where it fits; else clear the node that is best for it. No node: nothing is done."""
        nodes = self._free.keys() - set(claim.off)
        node = min(nodes, key=lambda node: (*self._moves(claim, bundle, node), node), default=None)
        if node is None or self._moves(claim, bundle, node)[0] == inf or self._comes_next(claim, bundle):
            return
        for other in self._others(claim, is_over=True) + self._others(claim, is_over=False):
            self._give_back(other, bundle, node)
        for name, amount in bundle.items():
            self._free[node][name] = self._free[node].get(name, 0.0) - amount

    def _comes_next(self, claim: Claim, bundle: Bundle) -> bool:
        """True if it lacks room that the next slot of a sweep beyond its share gives, wherever that lies."""
        if any(not _lack(bundle, room) for room in self._free.values()):
            return False
        return any(
            not _lack(bundle, _sum(self._free[node], other.bundles[0]))
            for other in self._others(claim, is_over=True)
            for node, slots in self._slots[other.owner].items()
            if slots and node in self._free
        )

    def _moves(self, claim: Claim, bundle: Bundle, node: str) -> tuple[float, float, float]:
        """The lack of a bundle there: of sweeps within their share, of all; and the room beside it.

        In parts of the bundle. Infinite: it lacks something that no sweep would give.
        """
        room = self._free[node]
        left = sum(room.get(name, 0.0) / amount for name, amount in bundle.items() if amount > 0)
        lack = _lack(bundle, room)
        if not lack:
            return 0.0, 0.0, left
        beyond = self._with(room, self._others(claim, is_over=True), node)
        if _lack(bundle, self._with(beyond, self._others(claim, is_over=False), node)):
            return inf, inf, 0.0
        return _lack(bundle, beyond), lack, -left

    def _others(self, claim: Claim, *, is_over: bool) -> list[Claim]:
        """The sweeps beyond their share; or those within it that come after this one."""
        return [
            other
            for other in self._claims
            if other is not claim
            and self._is_over[other.owner] == is_over
            and (is_over or other.priority <= claim.priority)
        ]

    def _with(self, room: Bundle, others: Iterable[Claim], node: str) -> dict[str, float]:
        found = dict(room)
        for other in others:
            slots = self._slots[other.owner].get(node, 0)
            for name, amount in other.bundles[0].items() if slots else ():
                found[name] = found.get(name, 0.0) + slots * amount
        return found

    def _give_back(self, other: Claim, bundle: Bundle, node: str) -> None:
        """Have a sweep give back as many of its slots on the node as the bundle lacks."""
        room, slots = self._free[node], self._slots[other.owner].get(node, 0)
        freed = other.bundles[0]
        lacks = {name: amount - room.get(name, 0.0) for name, amount in bundle.items()}
        counts = [
            ceil(lack / freed[name] - _EPSILON)
            for name, lack in lacks.items()
            if lack > _EPSILON and freed.get(name, 0.0) > 0
        ]
        count = min(slots, max(counts, default=0))
        if count <= 0:
            return
        for name, amount in freed.items():
            room[name] = room.get(name, 0.0) + count * amount
        self._slots[other.owner][node] = self.kept.setdefault(other.owner, {})[node] = slots - count


def _sum(room: Bundle, bundle: Bundle) -> dict[str, float]:
    return {name: room.get(name, 0.0) + bundle.get(name, 0.0) for name in {*room, *bundle}}


def _lack(bundle: Bundle, room: Bundle) -> float:
    """The largest part of an amount that is not there; 0: the bundle fits."""
    lacks = [
        (amount - room.get(name, 0.0)) / amount
        for name, amount in bundle.items()
        if amount - room.get(name, 0.0) > _EPSILON
    ]
    return max(lacks, default=0.0)
