"""Divides the slots of a cluster among the sweeps that share it. Pure: equal claims give equal parts.

The order, which every controller computes for itself from the same claims:

1. A higher `priority` gets all that it wants before a lower one gets anything.
2. Of equal priority, sweeps get the slots without which they would miss their deadline, the nearest deadline
   first.
3. The rest is divided by `weight`, by each sweep's largest part of one resource (dominant resource
   fairness), so that sweeps with slots of different shapes can share.
4. What a sweep does not want goes to the others. No sweep gets less than its part rounded down, or more than
   that rounded up, while others want slots. Who gets the slot more is the sweep that has had the least of
   late for its weight: 50 sweeps on 8 slots take turns.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from heapq import heapify, heappop, heappush
from itertools import groupby
from math import floor, inf
from typing import Final

Bundle = Mapping[str, float]
_EPSILON: Final = 1e-6
_TURN: Final = 0.25
"""A sweep keeps a slot until it has had so much more of late than one that wants it: starts cost time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Claim:
    """The claim of one sweep to the cluster. Numbers are slots unless they say otherwise."""

    owner: str
    """The sweep's name in the register."""
    bundle: Bundle
    """The resources of one slot: amounts by Ray's names."""
    weight: float = 1.0
    priority: int = 0
    deadline: float | None = None
    """Unix seconds."""
    needed: int = 0
    """The number that it needs from now on to be done by its deadline; 0: it has none, or not known."""
    wants: int = 0
    """The number that it could use, if it were alone."""
    holds: int = 0
    """The number that have a place."""
    held: Bundle = field(default_factory=dict)
    """The resources that these take."""
    used: float = 0.0
    """Its mean number of slots of late, divided by its weight."""
    shape: Sequence[Bundle] = ()
    """The bundles of one slot, which may lie on several nodes; empty: one, which is `bundle`."""
    places: Mapping[str, int] = field(default_factory=dict)
    """The number of its slots on each node."""
    off: Sequence[str] = ()
    """Nodes on which it places nothing."""
    has_labels: bool = False
    """True if its slots need nodes with labels; none is cleared for them."""

    @property
    def bundles(self) -> Sequence[Bundle]:
        """The bundles of one slot."""
        return self.shape or (self.bundle,)


@dataclass(frozen=True, slots=True, kw_only=True)
class Part:
    """The slots that a sweep may have."""

    slots: int
    is_hurried: bool = False
    """True if it gives what it has beyond that back at once, to a sweep with a nearer deadline."""


def divide(claims: Iterable[Claim], total: Bundle) -> dict[str, Part]:
    """The part of each sweep, by owner.

    Args:
        claims: The claims of all sweeps that share the cluster.
        total: What they can have together. Resources that it does not name are 0.
    """
    claims = sorted(claims, key=lambda claim: (-claim.priority, claim.owner))
    free, slots = dict(total), dict[str, int]()
    for _, same in groupby(claims, key=lambda claim: claim.priority):
        slots |= _divide_among(list(same), free, total)
    return {
        claim.owner: Part(slots=slots[claim.owner], is_hurried=_is_hurried(claim, claims, slots))
        for claim in claims
    }


def _divide_among(claims: Sequence[Claim], free: dict[str, float], total: Bundle) -> dict[str, int]:
    """The slots of claims of one priority; what they get is taken from `free`."""
    slots = dict.fromkeys((claim.owner for claim in claims), 0)

    def take(claim: Claim, count: int) -> None:
        slots[claim.owner] += count
        for name, amount in claim.bundle.items():
            free[name] = free.get(name, 0.0) - count * amount

    for claim in sorted(claims, key=lambda claim: (_deadline(claim), claim.owner)):
        take(claim, _fitting(claim, min(claim.needed, claim.wants), free))
    ideal = _ideal_slots(claims, slots, free, total)
    for claim in claims:
        take(claim, _fitting(claim, floor(ideal[claim.owner] + _EPSILON) - slots[claim.owner], free))

    def rank(claim: Claim) -> tuple[bool, float, float, str]:
        count = slots[claim.owner]
        remainder = round(ideal[claim.owner] - count, 6)
        used = claim.used - (_TURN / claim.weight if claim.holds > count else 0.0)
        return remainder <= 0, round(used, 6), -remainder, claim.owner

    hungry = [(rank(claim), claim) for claim in claims if slots[claim.owner] < claim.wants]
    heapify(hungry)
    while hungry:
        _, claim = heappop(hungry)
        if _fitting(claim, 1, free):
            take(claim, 1)
            if slots[claim.owner] < claim.wants:
                heappush(hungry, (rank(claim), claim))
    return slots


def _fitting(claim: Claim, count: int, free: Bundle) -> int:
    """The number of slots, of `count`, that are free for a claim."""
    for name, amount in claim.bundle.items():
        if amount > 0:
            count = min(count, floor((free.get(name, 0.0) + _EPSILON) / amount))
    return max(0, count)


def _ideal_slots(
    claims: Sequence[Claim], granted: Mapping[str, int], free: Bundle, total: Bundle
) -> dict[str, float]:
    """The slots of each claim if slots could be split: all grow by their weights until something runs out.

    The level is slots by weight and largest part of a resource. It rises from one claim that begins or ends
    to grow to the next, or to where a resource is used up: the claims that need that one grow no more.
    """
    speed = {claim.owner: claim.weight / _dominant(claim.bundle, total) for claim in claims}
    ideal = {owner: float(count) for owner, count in granted.items()}
    turns = [(ideal[c.owner] / speed[c.owner], 0, c) for c in claims if c.wants > granted[c.owner]]
    turns += [(claim.wants / speed[claim.owner], 1, claim) for _, _, claim in turns]
    turns.sort(key=lambda turn: turn[:2])
    left, level = dict(free), 0.0
    growing: dict[str, Claim] = {}

    def settle(claim: Claim) -> None:
        if growing.pop(claim.owner, None) is not None:
            ideal[claim.owner] = level * speed[claim.owner]

    for at, is_end, claim in turns:
        while level < at and growing:
            rates = _rates(growing.values(), speed)
            end = min([at, *(level + max(0.0, left.get(name, 0.0)) / rate for name, rate in rates.items())])
            for name, rate in rates.items():
                left[name] = left.get(name, 0.0) - rate * (end - level)
            level = end
            for each in [each for each in growing.values() if _is_spent(each, left)]:
                settle(each)
        level = at
        if is_end:
            settle(claim)
        elif not _is_spent(claim, left):
            growing[claim.owner] = claim
    return ideal


def _rates(growing: Iterable[Claim], speed: Mapping[str, float]) -> dict[str, float]:
    """The amount of each resource that is taken while the level rises by one."""
    rates: dict[str, float] = {}
    for claim in growing:
        for name, amount in claim.bundle.items():
            if amount > 0:
                rates[name] = rates.get(name, 0.0) + amount * speed[claim.owner]
    return rates


def _is_spent(claim: Claim, left: Bundle) -> bool:
    """True if a resource that the claim needs is used up."""
    return any(amount > 0 and left.get(name, 0.0) <= _EPSILON for name, amount in claim.bundle.items())


def _dominant(bundle: Bundle, total: Bundle) -> float:
    """The largest part that one slot is of all that there is of a resource; 1 where there is none of it."""
    parts = [amount / max(total.get(name, 0.0), amount, _EPSILON) for name, amount in bundle.items()]
    return max(parts, default=1.0) or 1.0


def _deadline(claim: Claim) -> float:
    return inf if claim.deadline is None else claim.deadline


def _is_hurried(claim: Claim, claims: Sequence[Claim], slots: Mapping[str, int]) -> bool:
    """True if a sweep with a nearer deadline lacks slots that this one has beyond its part."""
    return claim.holds > slots[claim.owner] and any(
        _deadline(other) < _deadline(claim)
        and other.priority >= claim.priority
        and other.holds < min(other.needed, slots[other.owner])
        for other in claims
    )
