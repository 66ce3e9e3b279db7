"""Starts a sweep that outlives the server, and waits only until it is refused, is stored, or has ended."""

from __future__ import annotations

import subprocess
import tempfile
import time
from collections.abc import Callable, Sequence
from typing import IO, Final

from raysweep.mcp_server.commands import Ran, process_of, ran, refused

BEGIN_S: Final = 90.0
"""Seconds within which a sweep is in the storage: Ray has to start before it."""
QUIET_S: Final = 2.0
"""A sweep that was stored before is refused, or has ended, within this time or a little later."""
POLL_S: Final = 0.2


class Started:
    """The processes of sweeps that a server has started; they are not its to end."""

    def __init__(self) -> None:
        self._running: list[subprocess.Popen[bytes]] = []

    def start(self, words: Sequence[str], is_running: Callable[[], bool]) -> Ran:
        """Start a command that runs a sweep.

        Args:
            words: As `command_line` makes them.
            is_running: Whether a process runs the sweep, by the storage.

        Returns:
            Its document if it has ended by then, else `{"started": true}`.
        """
        self._running = [each for each in self._running if each.poll() is None]
        if (problem := refused(words)) is not None:
            return problem
        # A file, not a pipe: the sweep writes on when this server is gone.
        with tempfile.TemporaryFile() as out:
            process = process_of(words, stdout=out, stderr=subprocess.DEVNULL)
            self._running.append(process)
            if not _has_begun(process, is_running):
                return self._ended(process, out)
        return Ran(document={"started": True}, code=0)

    def _ended(self, process: subprocess.Popen[bytes], out: IO[bytes]) -> Ran:
        self._running.remove(process)
        out.seek(0)
        return ran(out.read(), process.returncode)


def _has_begun(process: subprocess.Popen[bytes], is_running: Callable[[], bool]) -> bool:
    """Wait; False: the process has ended."""
    begin = time.monotonic()
    while process.poll() is None:
        took = time.monotonic() - begin
        if took > BEGIN_S or (took > QUIET_S and is_running()):
            return True
        time.sleep(POLL_S)
    return False
