"""Flushes writes to disk. Callers that wait at the same time share one flush."""

from __future__ import annotations

import asyncio
from concurrent.futures import Executor

from raysweep.storage.journal.writer import JournalWriter


class Durability:
    """The journal's, on the event loop; `thread` waits for the writer."""

    def __init__(self, writer: JournalWriter, thread: Executor) -> None:
        self._writer = writer
        self._thread = thread
        self._flush: asyncio.Future[None] | None = None

    async def reach(self) -> None:
        """Wait until all that was written before this call is durable: for two puts at most.

        A flush that is under way when a record is written may end with the put before the record's own.

        Raises:
            FencedError, StorageUnavailableError: What ended the writing.
        """
        target = self._writer.written
        while self._writer.durable < target:
            if self._flush is None or self._flush.done():
                loop = asyncio.get_running_loop()
                self._flush = loop.run_in_executor(self._thread, self._writer.flush)
            # One who asks may be cancelled; the others continue waiting.
            await asyncio.shield(self._flush)
