"""Polls the cluster for nodes that will leave soon, room for trials, and requests that cannot be met."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from concurrent.futures import Executor
from dataclasses import dataclass, field
from typing import Final

from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.placement import Holdings, Placement, Room, Waiting
from raysweep.core.handlers.sizes import needed_sizes
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import events as ev
from raysweep.specs import SweepSpec

# The clouds that say at all when a node goes say so 30 s before it or earlier.
DRAIN_S: Final = 2.0
ROOM_S: Final = 10.0
DEMAND_S: Final = 5.0
# A deadlock ends the sweep only once its trials have been silent for long: the note is repeated until then.
SAY_AGAIN_S: Final = 30.0
FindRoom = Callable[[SweepSpec, Collection[str], Collection[str]], Room | None]
"""The room for trials; None: it is not known yet."""
log = logging.getLogger("raysweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class Sight:
    """One look at the cluster; None: this was not looked at."""

    draining: dict[str, float | None]
    room: Room | None
    waiting: list[Waiting] | None


@dataclass(slots=True)
class DemandWatch:
    """Remembers since when each thing has waited. `timeout_s`: what is younger is no trouble yet."""

    timeout_s: float
    _since: dict[str, float] = field(default_factory=dict)

    def find_stuck(self, waiting: Iterable[Waiting], at: float) -> Waiting | None:
        """The demand that has waited too long at time `at` (seconds); one that can never be had first."""
        present = {item.key: item for item in waiting}
        self._since = {key: self._since.get(key, at) for key in present}
        stuck = [item for key, item in present.items() if at - self._since[key] >= self.timeout_s]
        return min(stuck, key=lambda item: not item.can_never, default=None)


class ClusterWatch:
    """Emits events about the cluster; each look is made on a thread, as the control store may be slow.

    `find_holdings` lists what this sweep holds; `avoid` gets the nodes that leave soon;
    `remove_orphans` removes what ended workers left behind. `note`: for the user, with the first room.
    """

    def __init__(
        self,
        state: SweepState,
        placement: Placement,
        find_holdings: Callable[[], Holdings],
        avoid: Callable[[Collection[str]], None],
        remove_orphans: Callable[[], None],
        emit: Callable[[ev.Event], None],
        threads: Executor,
        clock: SteadyClock,
        find_room: FindRoom,
        note: str = "",
    ) -> None:
        self._state = state
        self._placement = placement
        self._find_holdings = find_holdings
        self._avoid = avoid
        self._remove_orphans = remove_orphans
        self._emit = emit
        self._threads = threads
        self._clock = clock
        self._find_room = find_room
        self._note = note
        self._demand = DemandWatch(state.rules.slots.placement_timeout_s)
        self._said_at: dict[str, float] = {}
        self._told: Room | None = None
        self._sizes: Collection[str] = ()

    def see_room(self, room: Room | None) -> None:
        """Tell the core of the room, at first and when it changes; None: it is not known yet."""
        if room is not None and room != self._told:
            self._told = room
            note, self._note = self._note, ""
            self._emit(
                ev.CapacityChanged(
                    at=self._clock.now(),
                    slots=room.slots,
                    nodes=room.nodes,
                    memory_bytes=room.memory_bytes,
                    problem=room.problem,
                    beyond=room.beyond,
                    note=note,
                )
            )

    async def run(self) -> None:
        """Look for ever."""
        loop = asyncio.get_running_loop()
        room_at = demand_at = self._clock.now()
        while True:
            await asyncio.sleep(min(DRAIN_S, self._demand.timeout_s))
            at = self._clock.now()
            sees_room = at - room_at >= ROOM_S or not self._state.room.capacity
            held = self._find_holdings() if at - demand_at >= min(DEMAND_S, self._demand.timeout_s) else None
            sizes = needed_sizes(self._state)
            sees_room = sees_room or any(size not in self._sizes for size in sizes)
            self._sizes = sizes
            try:
                sight = await loop.run_in_executor(self._threads, self._look, sees_room, held, sizes)
            except Exception as error:  # noqa: BLE001  whatever Ray raises while its control store is away
                log.warning("the cluster could not be looked at: %s", error)
                continue
            room_at = at if sees_room else room_at
            demand_at = at if held is not None else demand_at
            self._tell(sight, at)

    def _look(self, sees_room: bool, held: Holdings | None, sizes: Collection[str]) -> Sight:
        self._remove_orphans()
        draining = self._placement.find_draining()
        is_news = any(node not in self._state.room.draining for node in draining)
        room = None
        if sees_room or is_news:
            room = self._find_room(self._state.spec, list(self._state.room.excluded), sizes)
        return Sight(
            draining=draining,
            room=room,
            waiting=self._placement.find_waiting(held) if held is not None else None,
        )

    def _tell(self, sight: Sight, at: float) -> None:
        self._avoid(sight.draining)
        for node, deadline in sight.draining.items():
            if node not in self._state.room.draining:
                # Ray tells it by the wall clock.
                goes_at = None if deadline is None else deadline - self._clock.ahead_s()
                self._emit(ev.NodeDraining(at=at, node=node, deadline=goes_at, reason="drained"))
        self.see_room(sight.room)
        if sight.waiting is not None:
            self._tell_stuck(sight.waiting, at)

    def _tell_stuck(self, waiting: list[Waiting], at: float) -> None:
        stuck = self._demand.find_stuck(waiting, at)
        if stuck is None:
            return
        said_at = self._said_at.get(stuck.key)
        if said_at is None:
            log.warning("%s", stuck.problem)
        elif at - said_at < SAY_AGAIN_S or not stuck.can_never:
            return
        self._said_at[stuck.key] = at
        self._emit(ev.DemandStuck(at=at, problem=stuck.problem, can_never=stuck.can_never))
