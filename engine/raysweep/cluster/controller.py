"""The controller: reads events, calls `step`, writes the journal, executes commands. It decides nothing.

Everything runs on one event loop. Slow work has threads: the journal's writer, and those of `Threads`.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from contextlib import suppress
from functools import partial
from typing import Any, Final

from raysweep import faultplan
from raysweep.cluster.checkpoint_deletion import Discards
from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.cluster_watch import ClusterWatch
from raysweep.cluster.preparation import make_setup, spec_fault
from raysweep.cluster.ray.connection import is_alone
from raysweep.cluster.ray.nodes import find_room_or_why
from raysweep.cluster.ray.shared_connection import RayConnection
from raysweep.cluster.search_thread import Asking
from raysweep.cluster.server import LinkServer
from raysweep.cluster.shared_flush import Durability
from raysweep.cluster.snapshots import Snapshots
from raysweep.cluster.threads import Threads
from raysweep.cluster.trial_logs import LogKeepers
from raysweep.cluster.worker_pool import SlotKeeper
from raysweep.core.loop import Loop
from raysweep.core.state.trial import trial_id
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import ClusterLostError, RaysweepError, StorageError, SweepDamagedError, SweepInterrupted
from raysweep.messages import FromWorker
from raysweep.outcome import Cancellation, SweepProgress
from raysweep.runs.ownership.sweep_claim import OnProgress, Ownership
from raysweep.runs.reading.progress import make_progress
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.writer import JournalWriter
from raysweep.worker.inline import InlineStage

HEARTBEAT_S: Final = 2.0
LOOK_S: Final = 30.0
"""How often it is seen whether the sweep's folder is still there."""
SHOW_S: Final = 0.5
LAST_WRITE_S: Final = 1.0
ROOM_S: Final = 0.05
log = logging.getLogger("raysweep")


class Controller:
    """Runs one sweep from its claim to its end."""

    def __init__(
        self,
        held: Ownership,
        connection: RayConnection,
        on_progress: OnProgress | None,
        stage: InlineStage | None = None,
    ) -> None:
        self._stage = stage
        self.state = held.state
        self._held = held
        self._clock = SteadyClock(held.started.at)
        self._now = self._clock.now
        self._connection = connection
        self._on_progress = on_progress
        self._carry: dict[type, Callable[[Any], None]] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._threads = Threads()
        self._has_pulse = True
        self._looked_at = 0.0
        self._tasks: set[asyncio.Task[None]] = set()
        self._ending: asyncio.Task[None] | None = None
        self._interrupts = 0
        self._early_interrupts: deque[str] = deque()
        self._early_cancel: str | None = None
        self._has_begun = self._is_hurried = False
        self._cancellation = held.old_cancellation
        self._error: BaseException | None = None
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
        self._durability = Durability(self._writer, self._threads.flushing)
        checkpoints = CheckpointStore(held.folder.store, held.folder.sweep_id)
        self._discards = Discards(checkpoints, self._writer, held.discarded, held.find_pins)
        self._asking = Asking(held.searcher, self.emit, self._fail, self._now)
        self._snapshots = Snapshots(held.folder, self._writer, held.state, self._discards.undeleted)

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

    def _close_writer(self) -> None:
        if self._interrupts < 2:
            self._writer.close()
            return
        # Asked to end at once: what cannot be written in a moment is done again by the next run.
        with suppress(StorageError):
            self._writer.close(timeout_s=LAST_WRITE_S)

    async def _run(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._done: asyncio.Future[None] = self._loop.create_future()
        self._server = LinkServer(self._take_messages, self._take_gone, self._take_connected)
        self._logs = LogKeepers(self._server)
        await self._server.start(self._connection.host)
        spec = self._held.asked.spec
        self._slots = SlotKeeper(
            spec,
            make_setup(spec, self._held.folder, self._server),
            self._server,
            self.emit,
            self._keep_traceback,
            now=self._now,
            owns_cluster=lambda: self._connection.is_embedded and is_alone(),
            stage=self._stage,
        )
        self._watch = ClusterWatch(
            self.state,
            self._slots.find_holdings,
            self._slots.avoid,
            self._slots.pool.orphans,
            self.emit,
            self._threads.watching,
            self._clock,
        )
        self._carry |= self._slots.carry | {
            cmd.SuggestConfigs: self._asking.ask,
            cmd.TellSearch: self._asking.tell,
            cmd.TellRung: self._asking.tell,
            cmd.AnswerReport: self._answer,
            cmd.DeleteCheckpoint: self._delete_checkpoint,
            cmd.SetTimer: self._set_timer,
            cmd.EndSweep: self._end,
            cmd.LeaveSweep: self._leave,
        }
        plan = faultplan.current()
        if plan is not None:
            self._carry = {
                kind: plan.watch_command(kind.__name__, carry) for kind, carry in self._carry.items()
            }
        beat, watch = self._watched(self._beat()), self._watched(self._watch.run())
        try:
            self._begin()
            self._take_interrupts()
            self._take_cancel()
            await self._done
        finally:
            beat.cancel()
            watch.cancel()
            self._asking.close()
            self._slots.close_all()
            await self._slots.pool.leave()
            watching = self._threads.watching
            await self._loop.run_in_executor(watching, self._slots.pool.orphans.remove_last)
            await self._logs.finish(is_hurried=self._is_hurried or self._interrupts > 1)
            await self._server.close()
            if self._timer is not None:
                self._timer.cancel()

    def _begin(self) -> None:
        held = self._held
        with self._core.gathering():
            self._core.begin(held.started)
            if held.changed is not None:
                self._core.emit(held.changed)
            self._watch.see_room(find_room_or_why(self.state.spec, self.state.room.excluded))
        self._slots.flush()
        self._has_begun = True

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

    def interrupt(self, name: str = "Ctrl-C") -> None:
        """From any thread or signal, at any time: what Ctrl-C does."""
        self._early_interrupts.append(name)
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take_interrupts)

    def cancel(self, reason: str) -> None:
        """From any thread, at any time: cancel the sweep within two seconds, for this process is to end."""
        self._early_cancel = reason
        if self._loop is not None and not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._take_cancel)

    def _take_cancel(self) -> None:
        if self._early_cancel is None or not self._has_begun:
            return
        reason, self._early_cancel = self._early_cancel, None
        self._is_hurried = True
        self._slots.hurry()
        self.emit(ev.CancelRequested(at=self._now(), reason=reason))

    def _take_interrupts(self) -> None:
        while self._early_interrupts and self._has_begun:
            self._interrupt(self._early_interrupts.popleft())

    def abort(self, error: BaseException) -> None:
        """End at once, from any thread: what the journal holds stays, the sweep is not ended."""
        self._error = error
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
        if self._writer.is_crowded and not self._server.is_held:
            self._server.hold_back(True)
            self._spawn(self._let_go_when_there_is_room())

    async def _let_go_when_there_is_room(self) -> None:
        """The journal lags behind: what workers report waits with them, so memory here is bounded."""
        while self._writer.is_crowded:  # noqa: ASYNC110  the writer is a thread and knows of no loop
            await asyncio.sleep(ROOM_S)
        self._server.hold_back(False)

    def _take_gone(self, worker: str) -> None:
        self._logs.gone(worker)
        self._slots.take_worker_gone(worker)

    def _take_connected(self, worker: str) -> None:
        self._logs.connected(worker)
        self._slots.take_worker_connected(worker)

    def _keep_traceback(self, trial: int, attempt: int, text: str) -> str:
        """Store a whole traceback in the background; where it will be, below the sweep's folder."""
        path = f"errors/{trial_id(trial)}-{attempt}.txt"

        def put() -> None:
            try:
                self._held.folder.write_text(path, text)
            except StorageError as error:
                log.warning("the traceback of trial %s was not stored: %s", trial_id(trial), error)

        self._spawn(self._off_loop(self._threads.keeping, put))
        return path

    def _interrupt(self, name: str) -> None:
        self._interrupts += 1
        if self._interrupts == 1:
            log.info("%s: ending the running trials; once more to end at once", name)
            self.emit(ev.InterruptRequested(at=self._now(), reason=f"interrupted by {name}"))
        else:
            self._fail(SweepInterrupted(self._held.folder.sweep_id))

    # -- commands ----------------------------------------------------------------------------------

    def _answer(self, command: cmd.AnswerReport) -> None:
        self._when_durable(lambda: self._slots.answer(command))

    def _delete_checkpoint(self, command: cmd.DeleteCheckpoint) -> None:
        self._discards.add(command.uri)

    def _delete_discarded(self) -> None:
        due = self._discards.take_due()
        if due:
            self._spawn(self._off_loop(self._threads.deleting, partial(self._discards.delete, due)))

    async def _off_loop(self, thread: Executor, call: Callable[[], None]) -> None:
        await asyncio.get_running_loop().run_in_executor(thread, call)

    def _when_durable(self, then: Callable[[], None]) -> None:
        async def wait() -> None:
            if await self._is_durable():
                then()
                self._slots.flush()

        self._spawn(wait())

    async def _is_durable(self) -> bool:
        """Wait until all that happened so far is in the journal; False: that failed, and the sweep ends."""
        try:
            await self._durability.reach()
        except RaysweepError as error:
            self._fail(error)
            return False
        return True

    async def _settle(self) -> None:
        """Wait for what was begun in the background: answers, and checkpoints to delete."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = self._watched(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _watched(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """A task whose error ends the sweep: Ray may be gone."""

        def check(task: asyncio.Task[None]) -> None:
            error = None if task.cancelled() else task.exception()
            if error is not None:
                self._fail(error)

        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(check)
        return task

    def _set_timer(self, command: cmd.SetTimer) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer = None
        if command.at is not None:
            self._timer = asyncio.get_running_loop().call_later(
                max(0.0, command.at - self._now()), self._fire
            )

    def _see_storage(self) -> None:
        """Say when the journal begins to lag behind, and when it has caught up: silence is no sign then."""
        is_stalled = self._server.is_held or self._writer.is_stalled
        if is_stalled != self.state.controller.is_stalled and not self._is_over:
            self.emit(ev.StorageStalled(at=self._now(), is_over=not is_stalled))

    def _see_clock(self) -> None:
        """Say when the wall clock was set, or the machine slept: deadlines go by it."""
        if self._clock.has_moved(self.state.clock.ahead_s) and not self._is_over:
            self.emit(ev.ClockMoved(at=self._now(), ahead_s=self._clock.ahead_s()))

    @property
    def _is_over(self) -> bool:
        return self.state.phase == "ended" or self._done.done()

    def _fire(self) -> None:
        self._timer = None
        self._see_storage()
        self.emit(ev.TimerFired(at=self._now()))

    def _end(self, command: cmd.EndSweep) -> None:
        self._ending = self._watched(self._end_slowly())

    async def _end_slowly(self) -> None:
        self._slots.close_all()
        if self._discards:
            await self._is_durable()
        self.emit(ev.SweepEnded(at=self._now()))
        if self._discards and await self._is_durable():
            self._delete_discarded()
        await self._settle()
        if not self._done.done():
            self._done.set_result(None)

    def _leave(self, command: cmd.LeaveSweep) -> None:
        self._ending = self._watched(self._leave_slowly(command))

    async def _leave_slowly(self, command: cmd.LeaveSweep) -> None:
        await self._settle()
        if self.state.end.fault == "spec":
            self._fail(spec_fault(self.state))
        elif self.state.end.fault == "infrastructure":
            self._fail(
                ClusterLostError(
                    self._connection.address, command.why, "run it again with the same key to resume"
                )
            )
        else:
            self._fail(SweepInterrupted(self._held.folder.sweep_id))

    # -- heartbeat ---------------------------------------------------------------------------------

    async def _beat(self) -> None:
        written_at = 0.0
        pulse: asyncio.Task[None] | None = None
        while True:
            at = self._now()
            self._see_clock()
            self._see_storage()
            self._delete_discarded()
            self._snapshots.look()
            progress = self.progress()
            if self._on_progress is not None:
                self._on_progress(progress)
            if at - written_at >= HEARTBEAT_S and (pulse is None or pulse.done()):
                written_at = at
                pulse = self._watched(self._beat_once(progress))
            await asyncio.sleep(SHOW_S)

    async def _beat_once(self, progress: SweepProgress) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._threads.beating, self._write_progress, progress)
        if self._now() - self._looked_at >= LOOK_S:
            self._looked_at = self._now()
            await loop.run_in_executor(self._threads.beating, self._look_at_folder)
        await self._look_for_cancellation()

    def _look_at_folder(self) -> None:
        try:
            self._held.folder.check_is_there(self._held.claim.number)
        except SweepDamagedError:
            raise
        except StorageError as error:
            if self._has_pulse:  # else that was said
                log.warning("whether the sweep's folder is there was not seen: %s", error)

    def progress(self) -> SweepProgress:
        """The progress as of now, by the wall clock: other machines compare it with theirs."""
        held, at = self._held, self._now() + self._clock.ahead_s()
        return make_progress(
            self.state, sweep_id=held.folder.sweep_id, holder=held.holder, at=at, total=held.searcher.total
        )

    def _write_progress(self, progress: SweepProgress) -> None:
        try:
            self._held.folder.write_progress(progress)
            self._has_pulse = True
        except StorageError as error:
            if self._has_pulse:  # once an outage
                log.warning("progress was not written: %s", error)
            self._has_pulse = False

    async def _look_for_cancellation(self) -> None:
        loop = asyncio.get_running_loop()
        asked = await loop.run_in_executor(self._threads.beating, self._read_cancellation)
        if asked is None or asked == self._cancellation or self._done.done():
            return
        self._cancellation = asked
        if asked.concerns(self._held.asked.job_number):
            by = f" (by {asked.by})" if asked.by else ""
            self.emit(ev.CancelRequested(at=self._now(), reason=f"{asked.reason or 'cancelled'}{by}"))

    def _read_cancellation(self) -> Cancellation | None:
        try:
            return self._held.folder.read_cancellation()
        except StorageError as error:
            if self._has_pulse:  # else that was said
                log.warning("cancel.json was not read: %s", error)
            return None
