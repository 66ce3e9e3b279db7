"""Placement on a shared cluster, in the order in which sweeps began to wait.

Ray retries a waiting placement group after a pause of up to a second, but tries a new one at once. Among
waiting sweeps chance decides, and a sweep that is unlucky or needs more than the others can wait for ever.

So a sweep without a place writes a ticket into Ray's control store. It asks Ray for one group when its
ticket is first, or when the sweeps before it keep what they asked for. A sweep that has a place asks for
another only where there is room for it beside all tickets. A sweep that lost its controller stops renewing
its ticket, and the ticket expires. A running sweep keeps its places.
"""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Protocol

Bundle = Mapping[str, float]
PREFIX: Final = "raysweep-places/"
LOOK_S: Final = 0.5
STALE_S: Final = 15.0
"""A ticket that was not renewed for so long is that of a dead controller."""
_EPSILON: Final = 1e-6


@dataclass(frozen=True, slots=True, order=True)
class Ticket:
    """A sweep without a place: since when (Unix seconds), by whose name, and what it asks for."""

    since: float
    owner: str
    asked: Bundle = field(compare=False)

    @property
    def key(self) -> str:
        """Its name in the control store: in the order of waiting."""
        return f"{PREFIX}{self.since:017.6f}/{self.owner}"


def choose(
    wanted: Sequence[tuple[int, Bundle]],
    own: Ticket | None,
    others: Iterable[Ticket],
    pending: Sequence[Bundle],
    free: Bundle,
) -> list[int]:
    """Of the groups that are wanted, those to ask Ray for now, by number.

    Args:
        wanted: Number and resources of each group that Ray was not asked for yet.
        own: The ticket of this sweep; None: it has a place already.
        others: The tickets of others.
        pending: The groups that Ray was asked for and has not placed.
        free: What is free on the cluster.
    """
    others = list(others)
    kept, chosen = [*(ticket.asked for ticket in others), *pending], []
    before = [ticket.asked for ticket in others if own is not None and ticket < own]
    for number, asked in wanted:
        is_first = own is not None and not pending and number == wanted[0][0]
        if is_first and before and not has_room(asked, before, free):
            break
        if is_first or has_room(asked, kept, free):
            chosen.append(number)
            kept.append(asked)
    return chosen


def has_room(asked: Bundle, kept: Iterable[Bundle], free: Bundle) -> bool:
    """True if so much is free when others get what is kept for them."""
    kept = list(kept)
    return all(
        free.get(name, 0.0) - sum(each.get(name, 0.0) for each in kept) + _EPSILON >= amount
        for name, amount in asked.items()
    )


def total(bundles: Iterable[Bundle]) -> dict[str, float]:
    """All that a group asks for."""
    found: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            found[name] = found.get(name, 0.0) + amount
    return found


class Notes(Protocol):
    """Small texts that all drivers of a cluster see."""

    def put(self, key: str, value: str) -> None:
        """Write one."""
        ...

    def get(self, key: str) -> str | None:
        """One of them; None: it is gone."""
        ...

    def keys(self, prefix: str) -> list[str]:
        """Those whose key begins so."""
        ...

    def delete(self, key: str) -> None:
        """Remove one."""
        ...


class Tickets:
    """The tickets of all sweeps, as one of them sees them."""

    def __init__(self, notes: Notes, owner: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._notes = notes
        self._owner = owner
        self._clock = clock
        self._own: Ticket | None = None
        self._renewals = 0
        self._seen: dict[str, tuple[int, float]] = {}

    def hold(self, asked: Bundle, now: float) -> Ticket:
        """The own ticket, renewed; a new one where there was none."""
        ticket = self._own = Ticket(self._own.since if self._own else now, self._owner, asked)
        self._renewals += 1
        self._notes.put(ticket.key, json.dumps({"asked": dict(asked), "renewals": self._renewals}))
        return ticket

    def give_back(self) -> None:
        """This sweep waits no more."""
        if self._own is not None:
            self._notes.delete(self._own.key)
            self._own = None

    def read_others(self) -> list[Ticket]:
        """Those of living controllers, the first that waits first."""
        found: list[Ticket] = []
        for key in sorted(self._notes.keys(PREFIX)):
            if self._own is not None and key == self._own.key:
                continue
            ticket = self._read(key)
            if ticket is not None:
                found.append(ticket)
        return found

    def _read(self, key: str) -> Ticket | None:
        text, now = self._notes.get(key), self._clock()
        try:
            value = json.loads(text or "")
            since, owner = key.removeprefix(PREFIX).split("/")
            ticket = Ticket(float(since), owner, {name: float(n) for name, n in value["asked"].items()})
            renewals = int(value["renewals"])
        except (ValueError, KeyError, TypeError, AttributeError):
            return None  # gone meanwhile, or of another version
        known, at = self._seen.get(key, (-1, now))
        self._seen[key] = (renewals, at if known == renewals else now)
        if known == renewals and now - at > STALE_S:
            self._notes.delete(key)
            return None
        return ticket


class Places:
    """The groups that a sweep wants and has not asked Ray for. `look` and `tickets` may block."""

    def __init__(self, tickets: Tickets, look: Callable[[], tuple[Bundle, Collection[str]] | None]) -> None:
        self._tickets = tickets
        self._look = look
        self._lock = threading.Lock()
        self._has_left = False

    def decide(
        self, wanted: Sequence[tuple[int, Bundle]], asked_for: Mapping[str, Bundle], now: float
    ) -> tuple[list[int], bool]:
        """The groups to ask Ray for now; and whether to look again. For a thread.

        `asked_for`: the groups that Ray was asked for, by their ids.
        """
        with self._lock:
            return ([], False) if self._has_left else self._decide(wanted, asked_for, now)

    def _decide(
        self, wanted: Sequence[tuple[int, Bundle]], asked_for: Mapping[str, Bundle], now: float
    ) -> tuple[list[int], bool]:
        sight = self._look()
        if sight is None:  # an autoscaler acts on groups that wait
            self._tickets.give_back()
            return [number for number, _ in wanted], False
        free, placed = sight
        pending = [bundle for group, bundle in asked_for.items() if group not in placed]
        own = None
        if len(pending) < len(asked_for):
            self._tickets.give_back()
        elif pending or wanted:
            own = self._tickets.hold(pending[0] if pending else wanted[0][1], now)
        chosen = choose(wanted, own, self._tickets.read_others(), pending, free)
        return chosen, own is not None or len(chosen) < len(wanted)

    def leave(self) -> None:
        """The sweep ends. For a thread."""
        with self._lock:
            self._has_left = True
            self._tickets.give_back()
