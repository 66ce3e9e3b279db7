"""Threads for slow work of the controller. Each kind of work has its own."""

from __future__ import annotations

from concurrent.futures import Executor, ThreadPoolExecutor
from typing import Final

# Each deletion is a few requests to the storage; trials that checkpoint often outrun one thread.
DELETING_THREADS: Final = 4
# One looks at a time; at the end, what is left is removed beside a look that does not come back.
WATCHING_THREADS: Final = 2


class Threads:
    """None of these stands in line behind another, however slow the storage or the control store is."""

    def __init__(self) -> None:
        self._all: list[ThreadPoolExecutor] = []
        self.flushing = self._make("flush")
        """Waits until the journal is durable: trials wait for that."""
        self.deleting = self._make("delete", DELETING_THREADS)
        """Removes checkpoints."""
        self.watching = self._make("watch", WATCHING_THREADS)
        """Looks at the cluster: a node's notice is short."""
        self.keeping = self._make("keep")
        """Stores tracebacks."""
        self.beating = self._make("heartbeat")
        """Writes the heartbeat, and looks for a cancellation."""

    def shut_down(self) -> None:
        """Wait for what is under way; what has not begun is dropped."""
        for executor in self._all:
            executor.shutdown(wait=False, cancel_futures=True)
        for executor in self._all:
            executor.shutdown(wait=True)

    def _make(self, name: str, threads: int = 1) -> Executor:
        executor = ThreadPoolExecutor(max_workers=threads, thread_name_prefix=f"raysweep-{name}")
        self._all.append(executor)
        return executor
