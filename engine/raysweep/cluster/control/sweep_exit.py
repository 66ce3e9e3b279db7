"""The exit of a controller from its sweep: `EndSweep` ends it, `LeaveSweep` leaves it to be resumed."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from raysweep.cluster.checkpoint_deletion import Discards
from raysweep.cluster.control.background import Background
from raysweep.cluster.preparation import spec_fault
from raysweep.cluster.shared_flush import Durability
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import ClusterLostError, SweepInterrupted


class SweepExit:
    """Carries out the commands that end the controller's work: `done` gets a result, or `fail` the reason.

    `end_workers` ends every worker; `delete_discarded` starts to delete the checkpoints that are due;
    `address` names the cluster in errors.
    """

    def __init__(
        self,
        state: SweepState,
        background: Background,
        durability: Durability,
        discards: Discards,
        *,
        sweep_id: str,
        address: str,
        now: Callable[[], float],
        end_workers: Callable[[], None],
        delete_discarded: Callable[[], None],
        emit: Callable[[ev.Event], None],
        fail: Callable[[BaseException], None],
        done: asyncio.Future[None],
    ) -> None:
        self._state = state
        self._background = background
        self._durability = durability
        self._discards = discards
        self._sweep_id = sweep_id
        self._address = address
        self._now = now
        self._end_workers = end_workers
        self._delete_discarded = delete_discarded
        self._emit = emit
        self._fail = fail
        self._done = done
        self._task: asyncio.Task[None] | None = None

    def end(self, command: cmd.EndSweep) -> None:
        """End the workers and the sweep; the last checkpoints are deleted once their records are durable."""
        self._task = self._background.watch(self._end())

    def leave(self, command: cmd.LeaveSweep) -> None:
        """Leave the sweep as it is once background work is done; the error says why."""
        self._task = self._background.watch(self._leave(command.why))

    async def _end(self) -> None:
        self._end_workers()
        if self._discards:
            await self._durability.reach()
        self._emit(ev.SweepEnded(at=self._now()))
        if self._discards:
            await self._durability.reach()
            self._delete_discarded()
        await self._background.settle()
        if not self._done.done():
            self._done.set_result(None)

    async def _leave(self, why: str) -> None:
        await self._background.settle()
        self._fail(self._reason(why))

    def _reason(self, why: str) -> BaseException:
        if self._state.end.fault == "spec":
            return spec_fault(self._state)
        if self._state.end.fault == "infrastructure":
            return ClusterLostError(self._address, why, "run it again with the same key to resume")
        return SweepInterrupted(self._sweep_id)
