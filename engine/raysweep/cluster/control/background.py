"""Coroutines beside the controller's loop. An error in one of them ends the sweep: Ray may be gone."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor


class Background:
    """Starts coroutines on the running event loop; `fail` gets the error of each that raises."""

    def __init__(self, fail: Callable[[BaseException], None]) -> None:
        self._fail = fail
        self._tasks: set[asyncio.Task[None]] = set()

    def watch(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        """Start work that `settle` does not wait for."""
        task = asyncio.get_running_loop().create_task(work)
        task.add_done_callback(self._check)
        return task

    def spawn(self, work: Coroutine[None, None, None]) -> None:
        """Start work that must be done before the sweep ends."""
        task = self.watch(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def spawn_on(self, thread: Executor, call: Callable[[], None]) -> None:
        """Like `spawn`, for a call that blocks."""

        async def wait() -> None:
            await asyncio.get_running_loop().run_in_executor(thread, call)

        self.spawn(wait())

    async def settle(self) -> None:
        """Wait until all work of `spawn` is done, including work that starts meanwhile."""
        while self._tasks:
            await asyncio.wait(self._tasks)

    def _check(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self._fail(error)
