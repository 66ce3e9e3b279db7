"""Processes of a storm: spawned, waited for, killed; and those that outlive what started them."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from tests.storms.workers import fork

_PR_SET_CHILD_SUBREAPER: Final = 36
_LIBC: Final = ctypes.CDLL(None)
POLL_S: Final = 0.01


class Process:
    """A forked child of this process."""

    def __init__(self, run: Callable[[], Any]) -> None:
        self.pid = fork(run)
        self._pidfd = os.pidfd_open(self.pid)
        self.exit_code: int | None = None

    def wait(self, timeout_s: float) -> int | None:
        """Its exit code, negative for a signal; None: it still runs."""
        import select

        if self.exit_code is None and select.select([self._pidfd], [], [], timeout_s)[0]:
            _, status = os.waitpid(self.pid, 0)
            self.exit_code = os.waitstatus_to_exitcode(status)
            os.close(self._pidfd)
        return self.exit_code

    def kill(self, number: int = signal.SIGKILL) -> None:
        """Send it a signal if it runs."""
        if self.exit_code is None:
            os.kill(self.pid, number)


def adopt_orphans() -> None:
    """From now on, descendants whose parents die become children of this process."""
    _LIBC.prctl(_PR_SET_CHILD_SUBREAPER, 1)


def descendants(pid: int) -> Iterator[int]:
    """The living descendants of a process."""
    children: dict[int, list[int]] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            with suppress(OSError, IndexError, ValueError):
                state, parent = (entry / "stat").read_text().rpartition(")")[2].split()[:2]
                if state not in "ZX":
                    children.setdefault(int(parent), []).append(int(entry.name))
    line = [pid]
    while line:
        for child in children.get(line.pop(), ()):
            line.append(child)
            yield child


def command_of(pid: int) -> str:
    """How the process was started, for a message."""
    with suppress(OSError):
        return Path(f"/proc/{pid}/cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace").strip()
    return "?"


def reap() -> None:
    """Collect adopted children that have ended."""
    with suppress(ChildProcessError):
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass


def wait_alone(timeout_s: float) -> list[int]:
    """The descendants of this process that are still there after a while."""
    end = time.monotonic() + timeout_s
    while True:
        left = list(descendants(os.getpid()))
        if not left or time.monotonic() > end:
            return left
        time.sleep(POLL_S)
        reap()


def kill_all(pids: list[int]) -> None:
    """End what is left, so that the next storm begins alone."""
    for pid in pids:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    wait_alone(2.0)
