"""The controller: reads events, calls `step`, writes the journal, executes commands. It decides nothing.

Everything runs on one event loop. Slow work has threads: the journal's writer, and those of `Threads`.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from contextlib import suppress
from functools import partial
from typing import Any, Final

from raysweep import faultplan
from raysweep.cluster.checkpoint_deletion import Discards
from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.cluster_watch import ClusterWatch
from raysweep.cluster.control.background import Background
from raysweep.cluster.control.backpressure import Backpressure
from raysweep.cluster.control.end_requests import EndRequests
from raysweep.cluster.control.forecast import Forecast
from raysweep.cluster.control.heartbeat import Heartbeat
from raysweep.cluster.control.sweep_exit import SweepExit
from raysweep.cluster.control.timer import CoreTimer
from raysweep.cluster.control.tracebacks import Tracebacks
from raysweep.cluster.evaluators import Evaluators
from raysweep.cluster.placement import Placement, Room
from raysweep.cluster.preparation import make_setup
from raysweep.cluster.search_thread import Asking
from raysweep.cluster.server import LinkServer
from raysweep.cluster.shared_flush import Durability
from raysweep.cluster.sharing.watch import ShareWatch
from raysweep.cluster.snapshots import Snapshots
from raysweep.cluster.threads import Threads
from raysweep.cluster.trial_logs import LogKeepers
from raysweep.cluster.worker_pool import SlotKeeper
from raysweep.core.loop import Loop
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import StorageError, SweepInterrupted
from raysweep.messages import FromWorker
from raysweep.outcome import SweepProgress
from raysweep.runs.ownership.sweep_claim import OnProgress, Ownership
from raysweep.space.amounts import Size
from raysweep.specs import SweepSpec
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.writer import JournalWriter
from raysweep.worker.inline import InlineStage

LAST_WRITE_S: Final = 1.0
FIRST_PLACE_S: Final = 5.0
"""The wait of the start for the places of evaluations; longer, trials wait for theirs."""
log = logging.getLogger("raysweep")


class Controller:
    """Runs one sweep from its claim to its end. Its parts are in `cluster/control/` and beside this file.

    `requests` takes interrupts and cancellations from any thread, at any time.
    """

    def __init__(
        self,
        held: Ownership,
        placement: Placement,
        on_progress: OnProgress | None,
        stage: InlineStage | None = None,
        note: str = "",
    ) -> None:
        self._stage, self._note = stage, note
        self.state = held.state
        self._held = held
        self._clock = SteadyClock(held.started.at)
        self._now = self._clock.now
        self._placement = placement
        self._carry: dict[type, Callable[[Any], None]] = {}
        self._evaluators: Evaluators | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._threads = Threads()
        self._writer = JournalWriter(
            held.journal.backend,
            held.claim.generation,
            held.claim.next_number,
            self.abort,
            sweep_id=held.folder.sweep_id,
            writer=held.claim.writer,
            on_note=log.warning,
        )
        self._core = Loop(self.state, self._writer.write, lambda command: self._carry[type(command)](command))
        self._background = Background(self._fail)
        self._timer = CoreTimer(self._fire, self._now)
        self._durability = Durability(self._writer, self._threads.flushing)
        checkpoints = CheckpointStore(held.folder.store, held.folder.sweep_id)
        self._discards = Discards(checkpoints, self._writer, held.discarded, held.find_pins)
        self._asking = Asking(held.searcher, self.emit, self._fail, self._now)
        self._snapshots = Snapshots(held.folder, self._writer, held.state, self._discards.undeleted)
        self._heartbeat = Heartbeat(
            held,
            self._clock,
            self._background,
            self._threads.beating,
            self.emit,
            on_progress,
            Forecast(held.folder.store.url, held.folder.sweep_id),
        )
        self.requests = EndRequests(
            self.emit,
            self._now,
            hurry=lambda: self._slots.hurry(),
            leave_at_once=lambda: self._fail(SweepInterrupted(held.folder.sweep_id)),
        )

    def run_to_end(self) -> None:
        """Run until the sweep has ended and its journal is durable.

        Raises:
            SweepInterrupted: Ctrl-C or SIGTERM: the sweep can be resumed.
            TrainableImportError, ClusterLostError: No worker could be started; the sweep can be resumed.
            FencedError: A newer controller has the sweep.
            StorageUnavailableError: The journal could not be written for too long.
        """
        try:
            # An ended sweep is here only for its outcome, before which its controller died.
            if self.state.phase != "ended" or self._held.started.is_reopening:
                asyncio.run(self._run())
        finally:
            try:
                self._close_writer()
            finally:
                self._threads.shut_down()
                self._snapshots.close()

    @property
    def last_segment(self) -> int:
        """The number of the last segment of the journal that is durable."""
        return self._writer.next_number - 1

    def progress(self) -> SweepProgress:
        """The progress as of now, by the wall clock."""
        return self._heartbeat.progress()

    def _close_writer(self) -> None:
        if not self.requests.is_at_once:
            self._writer.close()
            return
        # Asked to end at once: what cannot be written in a moment is done again by the next run.
        with suppress(StorageError):
            self._writer.close(timeout_s=LAST_WRITE_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        with self._placement.telling(self.abort):
            await self._run_connected()

    async def _run_connected(self) -> None:
        await self._open()
        if self._evaluators is not None:
            await self._evaluators.open(FIRST_PLACE_S)
        beat = self._background.watch(self._heartbeat.run(self._look))
        watches = [self._background.watch(self._watch.run())]
        try:
            self._begin()
            if self._share is not None:
                watches.append(self._background.watch(self._share.run()))
            if self._evaluators is not None and not self._evaluators.is_placed:
                self._background.spawn(self._await_evaluators(self._evaluators))
            self.requests.begin()
            await self._done
        finally:
            beat.cancel()
            for watch in watches:
                watch.cancel()
            await self._close()

    async def _open(self) -> None:
        """Start the link's server, and make the parts that need it."""
        self._server = LinkServer(self._take_messages, self._take_gone, self._take_connected)
        self._logs = LogKeepers(self._server)
        await self._server.start(self._placement.host)
        self._backpressure = Backpressure(
            self.state, self._writer, self._server, self._background, self.emit, self._now
        )
        spec = self._held.asked.spec
        if spec.evaluate is not None:
            self._evaluators = self._placement.make_evaluators(spec, self._held.folder, self._take_evaluation)
        # The claim's event is not taken yet where this controller is the first.
        known = self.state.clock.started_at
        begun_at = known if known is not None else self._held.started.at
        self._slots = SlotKeeper(
            spec,
            self._placement,
            make_setup(spec, self._held.folder, self._server, begun_at),
            self._server,
            self.emit,
            Tracebacks(self._held.folder, self._background, self._threads.keeping).keep,
            now=self._now,
            evaluators=self._evaluators,
            stage=self._stage,
        )
        self._watch = ClusterWatch(
            self.state,
            self._placement,
            self._slots.find_holdings,
            self._slots.avoid,
            self._slots.pool.remove_orphans,
            self.emit,
            self._threads.watching,
            self._clock,
            self._find_room,
            self._note,
        )
        self._share = self._make_share(spec)
        self._carry |= self._make_carry()
        plan = faultplan.current()
        if plan is not None:
            self._carry = {
                kind: plan.watch_command(kind.__name__, carry) for kind, carry in self._carry.items()
            }

    def _make_share(self, spec: SweepSpec) -> ShareWatch | None:
        """The watch of the slots that other sweeps leave this one; None: it does not share the cluster."""
        if spec.share is None:
            return None
        folder = self._held.folder
        register = self._placement.find_register(f"{folder.store.url}/{folder.sweep_id}")
        if register is None:
            return None
        return ShareWatch(
            spec,
            self.state,
            register,
            self._slots.pool.find_groups,
            self.emit,
            self._threads.watching,
            self._clock,
        )

    def _make_carry(self) -> dict[type[cmd.Command], Callable[[Any], None]]:
        """The functions that carry out each command of the core."""
        leaving = SweepExit(
            self.state,
            self._background,
            self._durability,
            self._discards,
            sweep_id=self._held.folder.sweep_id,
            address=self._placement.address,
            now=self._now,
            end_workers=self._slots.close_all,
            delete_discarded=self._delete_discarded,
            emit=self.emit,
            fail=self._fail,
            done=self._done,
        )
        return self._slots.carry | {
            cmd.SuggestConfigs: self._asking.ask,
            cmd.TellSearch: self._asking.tell,
            cmd.TellRung: self._asking.tell,
            cmd.AnswerReport: self._answer,
            cmd.DeleteCheckpoint: self._delete_checkpoint,
            cmd.SetTimer: self._timer.set,
            cmd.EndSweep: leaving.end,
            cmd.LeaveSweep: leaving.leave,
        }

    async def _close(self) -> None:
        """End the workers and the link; the journal's writer is closed after the loop."""
        self._core.end()
        self._asking.close()
        if self._placement.find_loss() is None:  # else workers end by themselves, and a call of Ray hangs
            await self._leave_cluster()
        await self._logs.finish(is_hurried=self.requests.is_hurried)
        await self._server.close()
        self._timer.cancel()

    async def _leave_cluster(self) -> None:
        self._slots.close_all()
        if self._evaluators is not None:
            self._evaluators.close()
        await self._slots.pool.leave()
        if self._share is not None:
            await self._share.leave()
        await asyncio.get_running_loop().run_in_executor(
            self._threads.watching, self._slots.pool.remove_last_orphans
        )

    def _begin(self) -> None:
        held = self._held
        with self._core.gathering():
            self._core.begin(held.started)
            if held.changed is not None:
                self._core.emit(held.changed)
            room = self._find_room(self.state.spec, self.state.room.excluded)
            if self._share is not None:
                self._share.see_first(room.slots if room is not None else 0)
            self._watch.see_room(room)
        self._slots.flush()

    async def _await_evaluators(self, evaluators: Evaluators) -> None:
        """Trials get their places once evaluations have theirs: none waits for one that waits for it."""
        await evaluators.open()
        self._watch.see_room(self._find_room(self.state.spec, self.state.room.excluded))

    def _find_room(
        self, spec: SweepSpec, excluded: Collection[str], sizes: Collection[Size] = ()
    ) -> Room | None:
        """The room for trials: none while evaluations have no place. None: it is too early to say so."""
        if self._evaluators is not None and not self._evaluators.is_placed:
            if not self._evaluators.is_late:
                return None
            return Room(slots=0, nodes=0, memory_bytes=0, problem=self._evaluators.problem)
        return self._placement.find_room_or_why(spec, excluded, sizes)

    def emit(self, event: ev.Event) -> None:
        """Take an event; it is applied at once, or when the one being applied is done."""
        if self._core.is_draining:
            self._core.emit(event)
            return
        try:
            self._core.emit(event)
        except Exception as error:  # noqa: BLE001  it ends the sweep, and `run_to_end` raises it
            self._fail(error)
        self._slots.flush()

    def abort(self, error: BaseException) -> None:
        """End at once, from any thread: what the journal holds stays, the sweep is not ended."""
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._fail, error)

    def _fail(self, error: BaseException) -> None:
        self._core.end()
        if not self._done.done():
            self._done.set_exception(error)

    # -- from outside ------------------------------------------------------------------------------

    def _take_messages(self, worker: str, messages: list[FromWorker]) -> None:
        if self._done.done():
            return
        try:
            with self._core.gathering():
                self._slots.take(worker, messages)
        except Exception as error:  # noqa: BLE001  a bug must end the sweep, not one connection
            self._fail(error)
        self._slots.flush()
        self._backpressure.hold_if_crowded()

    def _take_evaluation(self, number: int, metrics: dict[str, Any], problem: str) -> None:
        if self._done.done():
            return
        try:
            with self._core.gathering():
                self._slots.take_evaluation(number, metrics, problem)
        except Exception as error:  # noqa: BLE001  as above
            self._fail(error)
        self._slots.flush()

    def _take_gone(self, worker: str) -> None:
        self._logs.gone(worker)
        self._slots.take_worker_gone(worker)

    def _take_connected(self, worker: str) -> None:
        self._logs.connected(worker)
        self._slots.take_worker_connected(worker)

    # -- commands ----------------------------------------------------------------------------------

    def _answer(self, command: cmd.AnswerReport) -> None:
        async def answer() -> None:
            await self._durability.reach()
            self._slots.answer(command)

        self._background.spawn(answer())

    def _delete_checkpoint(self, command: cmd.DeleteCheckpoint) -> None:
        self._discards.add(command.uri)

    # -- at their time -----------------------------------------------------------------------------

    def _fire(self) -> None:
        self._backpressure.see_storage()
        self.emit(ev.TimerFired(at=self._now()))

    def _look(self) -> None:
        """With each heartbeat: has the wall clock moved, does the journal lag, is anything due?"""
        if self._clock.has_moved(self.state.clock.ahead_s) and self.state.phase != "ended":
            self.emit(ev.ClockMoved(at=self._now(), ahead_s=self._clock.ahead_s()))
        self._backpressure.see_storage()
        self._delete_discarded()
        self._snapshots.look()

    def _delete_discarded(self) -> None:
        due = self._discards.take_due()
        if due:
            self._background.spawn_on(self._threads.deleting, partial(self._discards.delete, due))
