"""Says to the core how many slots other sweeps leave this one: looks at the register now and then."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Executor
from typing import Final

from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.sharing.division import Bundle, Claim
from raysweep.cluster.sharing.register import ALONE, Register, Share
from raysweep.core.handlers.sharing import needed_slots, wanted_slots
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import events as ev
from raysweep.specs import SweepSpec
from raysweep.threads import on_thread

LEAVE_S: Final = 2.0
log = logging.getLogger("raysweep")


class ShareWatch:
    """Emits `ShareChanged`. Looks are made on a thread, as the control store may be slow.

    `find_groups` lists the placement groups of the sweep's slots.
    """

    def __init__(
        self,
        spec: SweepSpec,
        state: SweepState,
        register: Register,
        find_groups: Callable[[], Mapping[str, Sequence[Bundle]]],
        emit: Callable[[ev.Event], None],
        threads: Executor,
        clock: SteadyClock,
    ) -> None:
        assert spec.share is not None, "the spec shares the cluster"
        self._share = spec.share
        self._bundle = dict(spec.shape.total)
        self._shape = tuple(spec.shape.bundles)
        self._has_labels = any(spec.shape.label_selectors)
        self._state = state
        self._register = register
        self._find_groups = find_groups
        self._emit = emit
        self._threads = threads
        self._clock = clock
        self._told = ALONE
        self._is_warned = False

    def see_first(self, capacity: int) -> None:
        """Look before the first slot is asked for; the cluster holds `capacity` of them."""
        self._tell(self._look(self._claim(capacity), {}))

    async def run(self) -> None:
        """Look for ever."""
        loop = asyncio.get_running_loop()
        while True:
            await asyncio.sleep(self._register.pause_s)
            claim, groups = self._claim(self._state.room.capacity), self._find_groups()
            self._tell(await loop.run_in_executor(self._threads, self._look, claim, groups))

    async def leave(self) -> None:
        """Give the part to the others: the sweep ends."""
        try:
            await on_thread(self._register.leave, within_s=LEAVE_S)
        except Exception as error:  # noqa: BLE001  whatever Ray raises while its control store is away
            log.warning("this sweep's lease on a part of the cluster stays for some seconds: %s", error)

    def _claim(self, capacity: int) -> Claim:
        state, at = self._state, self._clock.now()
        return Claim(
            owner="",
            bundle=self._bundle,
            shape=self._shape,
            off=[*state.room.draining, *state.room.excluded],
            has_labels=self._has_labels,
            weight=self._share.weight,
            priority=self._share.priority,
            deadline=state.clock.deadline_at,
            needed=needed_slots(state, at),
            wants=wanted_slots(state, capacity),
        )

    def _look(self, claim: Claim, groups: Mapping[str, Sequence[Bundle]]) -> Share | None:
        try:
            share = self._register.look(claim, groups)
        except Exception as error:  # noqa: BLE001  the same: the share stays as it is until it is known
            if not self._is_warned:
                log.warning("the register of sweeps that share the cluster was not read: %s", error)
            self._is_warned = True
            return None
        self._is_warned = False
        return share

    def _tell(self, share: Share | None) -> None:
        if share is None or share == self._told:
            return
        self._told = share
        at = self._clock.now()
        self._emit(
            ev.ShareChanged(
                at=at,
                slots=share.slots,
                beside=share.beside,
                is_hurried=share.is_hurried,
                kept=tuple(share.kept.items()),
            )
        )
