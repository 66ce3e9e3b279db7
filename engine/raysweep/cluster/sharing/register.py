"""The register of sweeps that share a cluster: leases in Ray's control store, one a sweep.

A lease says what a sweep wants and holds. Its controller renews it; one that is not renewed for `STALE_S` is
that of a dead controller, and the next sweep that reads it removes it. No two clocks are compared: each
reader counts for how long a lease has not changed. Every controller reads all leases and computes the same
division from them (`division`), so no process has to divide for the others.
"""

from __future__ import annotations

import json
import math
import os
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from hashlib import blake2b
from typing import Final

from raysweep.cluster.ray.waiting_order import Notes
from raysweep.cluster.ray.waiting_order import total as merge
from raysweep.cluster.sharing.clearing import clear_nodes
from raysweep.cluster.sharing.division import Bundle, Claim, Part, divide

PREFIX: Final = "raysweep-shares/"
LOOK_S: Final = 1.0
"""The seconds between two renewals of a lease and reads of the others, with up to ten sweeps."""
STALE_S: Final = 15.0
"""A lease not renewed for so long, or for five looks where there are many, is that of a dead controller."""
USE_S: Final = 300.0
"""The seconds back to which the mean of `Claim.used` reaches."""
_LOOKS: Final = 3
"""The looks of which the least counts as held by others: a slot that opens is in no lease for a moment."""
_WANTS_S: Final = 5.0
"""A sweep wants the most that it wanted in this time: between two trials it wants no less."""
_CLEAR_S: Final = 5.0
"""A node that is clear is kept so for so long, or until no sweep waits for a slot: Ray takes a moment."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Share:
    """The share that a sweep may have now. `slots` None: as much as it likes, as it is alone."""

    slots: int | None
    beside: int = 0
    """The number of other sweeps that share the cluster."""
    is_hurried: bool = False
    """As in `division.Part`."""
    kept: Mapping[str, int] = field(default_factory=dict)
    """The slots that it may keep on each node that is cleared for others; nodes not named: all."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """The cluster, as one look finds it."""

    free: Mapping[str, Bundle]
    """The free resources of each node."""
    total: Bundle
    """The resources in all."""
    placed: Mapping[str, Collection[str]]
    """The placement groups that have a place, and their nodes."""


ALONE: Final = Share(slots=None)
_FIELDS: Final = frozenset(each.name for each in fields(Claim))


class Register:
    """The leases of all sweeps, as one of them sees them. For a thread: `look` may block.

    Args:
        notes: The control store.
        sweep: Where the sweep is stored, and its id; leases of earlier controllers of it are removed.
        look_around: What the cluster has.
        clock: Seconds that never go back.
    """

    def __init__(
        self,
        notes: Notes,
        sweep: str,
        look_around: Callable[[], Sight],
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._notes = notes
        self._sweep = blake2b(sweep.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()
        self.owner = f"{self._sweep}/{os.urandom(4).hex()}"
        self._look_around = look_around
        self._clock = clock
        self._lock = threading.Lock()
        self._has_left = False
        self._renewals = 0
        self._seen: dict[str, tuple[int, float]] = {}
        self._others_hold: deque[Mapping[str, float]] = deque(maxlen=_LOOKS)
        self._wanted: deque[tuple[float, int]] = deque()
        self._used, self._used_at = 0.0, clock()
        self._kept: Mapping[str, int] = {}
        self._kept_at = 0.0
        self.sweeps = 1
        """The number of sweeps that the last look found, this one included."""

    @property
    def pause_s(self) -> float:
        """The seconds until the next look: the more sweeps, the longer, so that the store is spared."""
        return LOOK_S * max(1.0, self.sweeps / 10)

    def look(self, claim: Claim, groups: Mapping[str, Sequence[Bundle]]) -> Share:
        """Renew this sweep's lease, read the others', and compute its share.

        Args:
            claim: What the sweep wants; its owner, and what it holds and has used, are found here.
            groups: The bundles of the placement groups that it has asked for, by their ids.
        """
        with self._lock:
            if self._has_left:
                return ALONE
            sight = self._look_around()
            placed = [name for name in groups if name in sight.placed]
            held = merge(bundle for name in placed for bundle in groups[name])
            places = dict(Counter(node for name in placed for node in set(sight.placed[name])))
            own = self._hold(replace(claim, holds=len(placed), held=held, places=places))
            claims = [own, *self._read_others()]
            self.sweeps = len(claims)
            total = self._without_others(merge(sight.free.values()), sight.total, claims)
            if len(claims) == 1:
                return ALONE
            parts = divide(claims, total)
            part, kept = parts[own.owner], self._keep(claims, parts, clear_nodes(claims, parts, sight.free))
            return Share(slots=part.slots, beside=len(claims) - 1, is_hurried=part.is_hurried, kept=kept)

    def _keep(
        self, claims: Sequence[Claim], parts: Mapping[str, Part], kept: Mapping[str, Mapping[str, int]]
    ) -> Mapping[str, int]:
        """The slots that this sweep may keep; for a moment longer than needed, where a sweep still waits."""
        now, own = self._clock(), kept.get(self.owner, {})
        is_waiting = any(claim.holds < parts[claim.owner].slots for claim in claims if claim is not claims[0])
        if own:
            self._kept, self._kept_at = own, now
        elif not is_waiting or now - self._kept_at > _CLEAR_S:
            self._kept = {}
        return self._kept

    def leave(self) -> None:
        """The sweep ends: its part is the others'."""
        with self._lock:
            self._has_left = True
            self._notes.delete(PREFIX + self.owner)

    def _hold(self, claim: Claim) -> Claim:
        now = self._clock()
        rate = 1.0 - math.exp(-(now - self._used_at) / USE_S)
        self._used += rate * (claim.holds / claim.weight - self._used)
        self._used_at = now
        self._wanted.append((now, claim.wants))
        while now - self._wanted[0][0] > _WANTS_S:
            self._wanted.popleft()
        wants = max(count for _, count in self._wanted) if claim.wants else 0
        own = replace(claim, owner=self.owner, wants=wants, used=round(self._used, 4))
        self._renewals += 1
        lease = asdict(own) | {"renewals": self._renewals}
        self._notes.put(PREFIX + self.owner, json.dumps(lease))
        return own

    def _read_others(self) -> list[Claim]:
        found: list[Claim] = []
        keys = sorted(self._notes.keys(PREFIX))
        stale_s = max(STALE_S, 5 * LOOK_S * len(keys) / 10)
        for key in keys:
            if key == PREFIX + self.owner:
                continue
            if key.startswith(f"{PREFIX}{self._sweep}/"):
                self._notes.delete(key)  # of an earlier controller of this sweep, which is fenced
                continue
            claim = self._read(key, stale_s)
            if claim is not None:
                found.append(claim)
        self._seen = {key: seen for key, seen in self._seen.items() if key in keys}
        return found

    def _read(self, key: str, stale_s: float) -> Claim | None:
        text, now = self._notes.get(key), self._clock()
        try:
            lease = json.loads(text or "")
            renewals = int(lease.pop("renewals"))
            claim = Claim(**{name: value for name, value in lease.items() if name in _FIELDS})
            _check(claim)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # gone meanwhile, or of another version
        known, at = self._seen.get(key, (-1, now))
        self._seen[key] = (renewals, at if known == renewals else now)
        if known == renewals and now - at > stale_s:
            self._notes.delete(key)
            return None
        return claim

    def _without_others(self, free: Bundle, total: Bundle, claims: Collection[Claim]) -> Bundle:
        """The resources that the sweeps can have together: the total, without what others hold."""
        named = {name for claim in claims for name in claim.bundle}
        held = merge(claim.held for claim in claims)
        others = {name: total.get(name, 0.0) - free.get(name, 0.0) - held.get(name, 0.0) for name in named}
        self._others_hold.append(others)
        return {
            name: total.get(name, 0.0) - max(0.0, min(look.get(name, 0.0) for look in self._others_hold))
            for name in named
        }


def _check(claim: Claim) -> None:
    """Refuse what no controller of this version writes: it would fail in the division, in each controller.

    Raises: ValueError, TypeError, AttributeError.
    """
    texts, counts = [claim.owner, *claim.off], [claim.wants, claim.holds, claim.needed]
    counts += [claim.priority, *claim.places.values()]
    is_dated = claim.deadline is None or math.isfinite(claim.deadline)
    if not (all(isinstance(each, str) for each in texts) and all(type(each) is int for each in counts)):
        raise TypeError(f"{claim} is not a claim")
    numbers = [claim.weight, claim.wants, claim.holds, claim.needed, claim.used]
    numbers += [*claim.bundle.values(), *claim.held.values(), *claim.places.values()]
    numbers += [amount for bundle in claim.shape for amount in bundle.values()]
    are_amounts = all(math.isfinite(number) and number >= 0 for number in numbers)
    if not are_amounts or not is_dated or claim.weight <= 0:
        raise ValueError(f"{claim} is not a claim")
