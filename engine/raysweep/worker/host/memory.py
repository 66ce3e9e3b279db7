"""The memory that a trial holds, and the end of one that holds too much. Linux; unknown elsewhere."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Final

from raysweep.messages import FailureFacts

INTERVAL_S: Final = 0.5
IDLE_INTERVAL_S: Final = 2.0
# A new maximum is worth a message only when it is this much above the last one.
_STEP: Final = 1.1
_STEP_BYTES: Final = 64 * 2**20
_PAGE_BYTES: Final = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
_EVENTS: Final = Path("/sys/fs/cgroup/memory.events")


def held_bytes(pid: int) -> int:
    """The memory that a process and its children hold (resident, without what files back); 0 if unknown."""
    total = 0
    with suppress(OSError, ValueError, IndexError):
        fields = Path(f"/proc/{pid}/statm").read_bytes().split()
        total = (int(fields[1]) - int(fields[2])) * _PAGE_BYTES
        for task in os.listdir(f"/proc/{pid}/task"):
            for child in Path(f"/proc/{pid}/task/{task}/children").read_text().split():
                total += held_bytes(int(child))
    return total


def count_kernel_ooms() -> int:
    """Processes of this container that the kernel has ended for want of memory; 0 where unknown."""
    with suppress(OSError, ValueError):
        for line in _EVENTS.read_text().splitlines():
            name, _, number = line.partition(" ")
            if name == "oom_kill":
                return int(number)
    return 0


def over_limit(held: int, limit_bytes: int) -> FailureFacts:
    """The failure of a trial that holds more than it may."""
    message = (
        f"the trial held {held / 2**30:.2f} GiB; its limit is {limit_bytes / 2**30:.2f} GiB"
        " (resources.memory times failure.memory_limit_factor)"
    )
    return FailureFacts(origin="memory", type="MemoryLimitExceeded", message=message, memory_bytes=held)


class MemoryWatch:
    """Looks at a process now and then: says each new maximum, and calls `on_excess` above the limit.

    `find` gives the process to look at now and its limit in bytes (None: no limit), or None if there is none.
    """

    def __init__(
        self,
        find: Callable[[], tuple[int, int | None] | None],
        on_maximum: Callable[[int], None],
        on_excess: Callable[[int, int], None],
    ) -> None:
        self._find = find
        self._on_maximum = on_maximum
        self._on_excess = on_excess
        self._said = 0
        self._pid = 0
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._run, name="raysweep-memory", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Stop looking."""
        self._closed.set()

    def _run(self) -> None:
        has_limit = False
        while not self._closed.wait(INTERVAL_S if has_limit else IDLE_INTERVAL_S):
            found = self._find()
            if found is not None:
                has_limit = found[1] is not None
                self._look(*found)

    def _look(self, pid: int, limit_bytes: int | None) -> None:
        if pid != self._pid:
            self._pid, self._said = pid, 0
        held = held_bytes(pid)
        if limit_bytes is not None and held > limit_bytes:
            self._on_excess(held, limit_bytes)
        if held > max(self._said * _STEP, self._said + _STEP_BYTES):
            self._said = held
            self._on_maximum(held)
