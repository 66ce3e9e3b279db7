"""The estimate of a sweep's end, made now and then by a process beside the controller.

The controller's own loop does nothing for it but start that process and read its answer.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import time
from contextlib import suppress
from typing import Final

from raysweep.outcome.estimate import NOTHING, Expected
from raysweep.runs.reading.estimating import BUSY_SHARE, EVERY_S

TIMEOUT_S: Final = 300.0
"""A process that takes longer is killed: a storage may not answer."""
_KEPT_IN_MEMORY: Final = "memory://"
log = logging.getLogger("raysweep")


class Forecast:
    """Call `look` with each heartbeat; `newest` is what the last process said.

    One process at a time, at most one a minute; where one took long, the next comes later. The first comes
    after `every_s` seconds, so short sweeps have none. One that fails says nothing.
    """

    def __init__(self, storage_path: str, sweep_id: str, *, every_s: float = EVERY_S) -> None:
        self.newest: Expected = NOTHING
        self._command = [sys.executable, "-m", "raysweep.runs.reading.print_estimate", storage_path, sweep_id]
        self._is_readable = not storage_path.startswith(_KEPT_IN_MEMORY)
        self._every_s = every_s
        self._process: subprocess.Popen[bytes] | None = None
        self._begun_at = time.monotonic()
        self._due_at = self._begun_at + every_s

    def look(self) -> None:
        """Start a process where one is due; take its answer where it has ended. Does not wait."""
        now, process = time.monotonic(), self._process
        if process is None:
            if self._is_readable and now >= self._due_at:
                self._begun_at = now
                self._start()
            return
        if process.poll() is None:
            if now - self._begun_at > TIMEOUT_S:
                self.close()
                self._due_at = now + BUSY_SHARE * TIMEOUT_S
            return
        self._process = None
        self._due_at = now + max(self._every_s, BUSY_SHARE * (now - self._begun_at))
        assert process.stdout is not None
        with process.stdout, suppress(OSError, ValueError):
            said = process.stdout.read()
            if process.returncode == 0 and said:
                self.newest = Expected.model_validate(json.loads(said))

    def close(self) -> None:
        """End its process, if one runs."""
        process, self._process = self._process, None
        if process is not None:
            process.kill()
            process.wait()
            if process.stdout is not None:
                process.stdout.close()

    def _start(self) -> None:
        try:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
            )
        except OSError as error:
            self._is_readable = False
            log.warning("no process can be started to estimate the end of the sweep: %s", error)
