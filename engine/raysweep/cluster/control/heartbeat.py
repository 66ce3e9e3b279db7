"""The controller's heartbeat: writes the progress, reads requests to cancel, checks the folder."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from concurrent.futures import Executor
from typing import Final

from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.control.background import Background
from raysweep.cluster.control.forecast import Forecast
from raysweep.core.vocabulary import events as ev
from raysweep.errors import StorageError, SweepDamagedError
from raysweep.outcome import Cancellation, SweepProgress
from raysweep.outcome.estimate import NOTHING
from raysweep.runs.ownership.sweep_claim import OnProgress, Ownership
from raysweep.runs.reading.progress import make_progress

HEARTBEAT_S: Final = 2.0
"""The seconds between two heartbeats: the progress is written, and a request to cancel is read."""
LOOK_S: Final = 30.0
"""The seconds between two checks of the sweep's folder."""
SHOW_S: Final = 0.5
"""The seconds between two calls that show the caller the progress."""
log = logging.getLogger("raysweep")


class Heartbeat:
    """One beat at a time, on `thread`: a storage that does not answer delays beats and nothing else.

    `emit` gets requests to cancel that other processes stored; `forecast` makes the estimates that are in the
    progress. Each outage of the storage is logged once.
    """

    def __init__(
        self,
        held: Ownership,
        clock: SteadyClock,
        background: Background,
        thread: Executor,
        emit: Callable[[ev.Event], None],
        on_progress: OnProgress | None,
        forecast: Forecast | None = None,
    ) -> None:
        self._held = held
        self._clock = clock
        self._background = background
        self._thread = thread
        self._emit = emit
        self._on_progress = on_progress
        self._cancellation = held.old_cancellation
        self._looked_at = 0.0
        self._is_written = True
        self._forecast = forecast

    def progress(self) -> SweepProgress:
        """The progress as of now, by the wall clock: other machines compare it with theirs."""
        held, at = self._held, self._clock.now() + self._clock.ahead_s()
        made = make_progress(
            held.state, sweep_id=held.folder.sweep_id, holder=held.holder, at=at, total=held.searcher.total
        )
        expected = self._forecast.newest if self._forecast is not None else NOTHING
        if expected == NOTHING or not made.is_at_work:
            return made
        return made.model_copy(update={"estimate": expected.estimate, "slow": expected.slow})

    async def run(self, look: Callable[[], None]) -> None:
        """Beat until cancelled. `look` is called every `SHOW_S` seconds, before the progress is shown."""
        try:
            await self._run(look)
        finally:
            if self._forecast is not None:
                self._forecast.close()

    async def _run(self, look: Callable[[], None]) -> None:
        written_at = 0.0
        beat: asyncio.Task[None] | None = None
        while True:
            at = self._clock.now()
            look()
            progress = self.progress()
            if self._on_progress is not None:
                self._on_progress(progress)
            if at - written_at >= HEARTBEAT_S and (beat is None or beat.done()):
                written_at = at
                beat = self._background.watch(self._beat(progress))
            await asyncio.sleep(SHOW_S)

    async def _beat(self, progress: SweepProgress) -> None:
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(self._thread, self._write, progress)
        if self._forecast is not None:
            await loop.run_in_executor(self._thread, self._forecast.look)
        if self._clock.now() - self._looked_at >= LOOK_S:
            self._looked_at = self._clock.now()
            await loop.run_in_executor(self._thread, self._look_at_folder)
        self._take(await loop.run_in_executor(self._thread, self._read_cancellation))

    def _write(self, progress: SweepProgress) -> None:
        try:
            self._held.folder.write_progress(progress)
            self._is_written = True
        except StorageError as error:
            self._warn("progress was not written: %s", error)
            self._is_written = False

    def _look_at_folder(self) -> None:
        try:
            self._held.folder.check_is_there(self._held.claim.number)
        except SweepDamagedError:
            raise
        except StorageError as error:
            self._warn("the sweep's folder could not be checked: %s", error)

    def _read_cancellation(self) -> Cancellation | None:
        try:
            return self._held.folder.read_cancellation()
        except StorageError as error:
            self._warn("cancel.json was not read: %s", error)
            return None

    def _warn(self, text: str, error: StorageError) -> None:
        if self._is_written:  # else this outage is in the log already
            log.warning(text, error)

    def _take(self, asked: Cancellation | None) -> None:
        if asked is None or asked == self._cancellation:
            return
        self._cancellation = asked
        if asked.concerns(self._held.asked.job_number):
            by = f" (by {asked.by})" if asked.by else ""
            self._emit(ev.CancelRequested(at=self._clock.now(), reason=f"{asked.reason or 'cancelled'}{by}"))
