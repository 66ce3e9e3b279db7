"""The processes of one program: a session of their own, their output passed on, and their end.

What is written to stdout and stderr goes where the trial's own output goes, through pipes that threads empty,
so that a program never waits for a reader. The last of stderr is kept for the message of a failure.
"""

from __future__ import annotations

import os
import selectors
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import IO, Final

from raysweep.worker.process.descendants import children_of

TAIL_BYTES: Final = 64 * 1024
_READ_BYTES: Final = 64 * 1024
_JOIN_S: Final = 2.0
END_S: Final = 5.0
LOOK_S: Final = 0.05

Feed = Callable[[bytes], None]


class Pump(threading.Thread):
    """Passes one pipe on to a descriptor of this process, and keeps its end."""

    def __init__(self, pipe: IO[bytes], descriptor: int, feed: Feed | None, wake: Callable[[], None]) -> None:
        super().__init__(name="raysweep-program-output", daemon=True)
        self._pipe = pipe
        self._descriptor = descriptor
        self._feed = feed
        self._wake = wake
        self._tail = bytearray()

    def run(self) -> None:
        """Until the last process that holds the pipe has ended."""
        with suppress(OSError, ValueError):
            while received := os.read(self._pipe.fileno(), _READ_BYTES):
                self._pass_on(received)
                self._tail += received
                del self._tail[:-TAIL_BYTES]
                if self._feed is not None:
                    self._feed(received)
                    self._wake()

    def _pass_on(self, received: bytes) -> None:
        view = memoryview(received)
        with suppress(OSError):  # a full disk costs the log, not the program
            while view:
                view = view[os.write(self._descriptor, view) :]

    @property
    def tail(self) -> str:
        """The last of what was written."""
        return bytes(self._tail).decode("utf-8", "replace")


class ProgramProcess:
    """A program that runs; `selector` is woken by its end and its output.

    `mark`: a variable of `environment` whose value no other program has. Processes that left the program's
    session, and whose parent has ended, are found by it (Linux).
    """

    def __init__(
        self,
        command: Sequence[str],
        *,
        cwd: str,
        environment: Mapping[str, str],
        mark: str,
        on_stdout: Feed | None,
        selector: selectors.BaseSelector,
    ) -> None:
        self._selector = selector
        self._mark = f"{mark}={environment[mark]}".encode()
        self._reading, self._writing = os.pipe()
        os.set_blocking(self._reading, False)
        os.set_blocking(self._writing, False)
        selector.register(self._reading, selectors.EVENT_READ)
        try:
            self._process = subprocess.Popen(
                command,
                cwd=cwd,
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
                bufsize=0,
            )
        except BaseException:
            self._close_pipe()
            raise
        assert self._process.stdout is not None, "it was asked for"
        assert self._process.stderr is not None, "it was asked for"
        self._stdout = Pump(self._process.stdout, 1, on_stdout, self._wake)
        self._stderr = Pump(self._process.stderr, 2, None, self._wake)
        self._stdout.start()
        self._stderr.start()
        self._pidfd = -1
        with suppress(OSError, AttributeError):  # no Linux, or an old one: then the end is looked for
            self._pidfd = os.pidfd_open(self._process.pid)
            selector.register(self._pidfd, selectors.EVENT_READ)

    def _wake(self) -> None:
        with suppress(OSError):
            os.write(self._writing, b"\0")

    def calm(self) -> None:
        """Empty the pipe that woke the waiting one."""
        with suppress(OSError):
            while os.read(self._reading, 4096):
                pass

    @property
    def has_ended(self) -> bool:
        """True if the program has; processes that it started may run on until `kill`."""
        if self._process.returncode is not None:
            return True
        try:
            # Not waited for yet: until then no other process gets its number, which its group has.
            return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None
        except ChildProcessError:
            return True

    @property
    def stderr(self) -> str:
        """The last of its stderr."""
        return self._stderr.tail

    @property
    def output(self) -> str:
        """The last of what it wrote, stderr after stdout."""
        return self._stdout.tail[-4096:] + self._stderr.tail

    def signal(self, name: str) -> None:
        """Send a signal to all its processes that are in its group."""
        if self._process.returncode is None:
            with suppress(OSError):
                os.killpg(self._process.pid, signal.Signals[name])

    def await_end(self, within_s: float, meanwhile: Callable[[], None]) -> bool:
        """True if it ends within so many seconds; `meanwhile` is called again and again."""
        deadline = time.monotonic() + within_s
        while not self.has_ended:
            meanwhile()
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            self._selector.select(min(left_s, LOOK_S))
            self.calm()
        return True

    def find(self) -> set[int]:
        """Its processes, wherever they are; itself, unless it has ended."""
        return {self._process.pid, *_descendants(self._process.pid), *_marked(self._mark)}

    def kill(self) -> int | None:
        """End all its processes: its group, and the descendants that left it. Can be called again.

        Its exit code, below 0 the signal that ended it; None where it hangs in the kernel.
        """
        if self._process.returncode is not None:
            return self._process.returncode
        found = self.find()
        with suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pid in found:
            with suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        with suppress(subprocess.TimeoutExpired):
            self._process.wait(END_S)
        deadline = time.monotonic() + END_S
        while (left := _marked(self._mark)) and time.monotonic() < deadline:
            for pid in left:
                with suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.001)
        return self._process.returncode

    def drain(self) -> bool:
        """After its end: wait until what it wrote has been passed on; whether all of it has been."""
        for pump in (self._stdout, self._stderr):
            pump.join(_JOIN_S)
        return not self._stdout.is_alive()

    def close(self) -> None:
        """After its end: close its pipes."""
        for pipe in (self._process.stdout, self._process.stderr):
            if pipe is not None:
                pipe.close()
        if self._pidfd >= 0:
            with suppress(KeyError, ValueError):
                self._selector.unregister(self._pidfd)
            os.close(self._pidfd)
            self._pidfd = -1
        self._close_pipe()

    def _close_pipe(self) -> None:
        with suppress(KeyError, ValueError):
            self._selector.unregister(self._reading)
        for descriptor in (self._reading, self._writing):
            with suppress(OSError):
                os.close(descriptor)


def _marked(mark: bytes) -> list[int]:
    """The processes that have this variable and have not ended."""
    found: list[int] = []
    for name in filter(str.isdigit, os.listdir("/proc") if os.path.isdir("/proc") else ()):
        with suppress(OSError), open(f"/proc/{name}/environ", "rb") as file:
            if mark in file.read().split(b"\0"):
                found.append(int(name))
    return found


def _descendants(pid: int) -> list[int]:
    found: list[int] = []
    unseen = [pid]
    while unseen:
        children = children_of(unseen.pop())
        found += children
        unseen += children
    return found
