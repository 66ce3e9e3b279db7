"""Starts a sweep that outlives the server, and waits only until it is refused, runs, or has ended."""

from __future__ import annotations

import socket
import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

from raysweep.mcp_server.commands import Ran, process_of, ran, refused
from raysweep.outcome import Holder

BEGIN_S: Final = 90.0
"""Seconds within which a sweep is in the storage: Ray has to start before it."""
ELSEWHERE_S: Final = 15.0
"""A sweep that another process runs is refused within this time, or followed."""
POLL_S: Final = 0.2


class Started:
    """The processes of sweeps that a server has started; they are not its to end."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, words: Sequence[str], runs_it: Callable[[], Holder | None]) -> Ran:
        """Start a command that runs a sweep.

        Args:
            words: As `command_line` makes them.
            runs_it: The process that runs the sweep, by the storage, and its host.

        Returns:
            Its document if it has ended by then, else `started`: false where another process runs it.
        """
        self._running = [each for each in self._running if each.poll() is None]
        if (problem := refused(words)) is not None:
            return problem
        # A file, not a pipe: the sweep writes on when this server is gone.
        with tempfile.TemporaryFile() as out:
            process = process_of(words, stdout=out, stderr=subprocess.DEVNULL)
            self._running.append(process)
            is_own = _is_own(process, runs_it)
            if is_own is None:
                return self._ended(process, out)
        return Ran(document={"started": is_own}, code=0)

    def _ended(self, process: subprocess.Popen[bytes], out: IO[bytes]) -> Ran:
        self._running.remove(process)
        out.seek(0)
        return ran(out.read(), process.returncode)


def _is_own(process: subprocess.Popen[bytes], runs_it: Callable[[], Holder | None]) -> bool | None:
    """Wait until a process runs the sweep: the started one? None: that has ended, refused perhaps."""
    begin, host = time.monotonic(), socket.gethostname()
    while process.poll() is None:
        took, runner = time.monotonic() - begin, runs_it()
        # Another host, or another container, may have a process of the same number.
        if (runner is not None and (runner.host, runner.pid) == (host, process.pid)) or took > BEGIN_S:
            return True
        if runner is not None and took > ELSEWHERE_S:
            return False
        time.sleep(POLL_S)
    return None
