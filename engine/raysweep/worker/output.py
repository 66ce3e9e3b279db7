"""What an attempt writes goes to a file of its own: the descriptors 1 and 2 point there while it runs.

So C code and child processes are heard too, a line costs what it costs in a file, and whatever ends the
process, the kernel has what was written. Somebody else stores it: see `keeper`.
"""

from __future__ import annotations

import ctypes
import logging
import os
import sys
from contextlib import suppress
from pathlib import Path
from typing import Final, TextIO

from raysweep.messages import Job
from raysweep.worker.spool import DONE, RUN, SPARE, attempt_path, become_owner, make_spool

_STDOUT: Final = 1
_STDERR: Final = 2
_LINE_BUFFERED: Final = 1
log = logging.getLogger("raysweep")


class Output:
    """Where the output of attempts goes. This one leaves it where it goes anyway."""

    def begin(self, job: Job) -> None:
        """The attempt begins; what is written from now on is its."""

    def end(self, last_words: str = "") -> None:
        """It is over; `last_words` are written to its log."""


class CapturedOutput(Output):
    """Output into the files of a spool, by the one process that runs the attempts.

    What goes wrong here is said once, and costs the trial nothing but its log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = ""
        self._lock = -1
        self._file = -1
        self._now: Path | None = None
        self._kept: tuple[int, int] | None = None
        self._is_broken = False

    def begin(self, job: Job) -> None:
        """See `Output`."""
        if self._is_broken:
            return
        try:
            self._redirect(job)
        except OSError as error:
            self._give_up(error)

    def end(self, last_words: str = "") -> None:
        """See `Output`."""
        if self._now is None:
            return
        try:
            _flush()
            if last_words:
                os.write(self._file, last_words.encode("utf-8", "replace"))
            self._restore()
        except OSError as error:
            self._give_up(error)

    def _redirect(self, job: Job) -> None:
        if self._kept is None:
            make_spool(self._folder)
            self._owner, self._lock = become_owner(self._folder)
            self._kept = os.dup(_STDOUT), os.dup(_STDERR)
            _write_lines()
        _flush()
        spare = self._folder / f"{self._owner}.{SPARE}"
        if self._file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            # It may become an object of the storage as it is; until then, the folder is closed to others.
            self._file = os.open(spare, flags, 0o666)
        now = attempt_path(self._folder, f"{job.trial:05d}", job.attempt, self._owner, RUN)
        os.rename(spare, now)
        self._now = now
        os.dup2(self._file, _STDOUT)
        os.dup2(self._file, _STDERR)

    def _restore(self) -> None:
        assert self._now is not None
        assert self._kept is not None
        for kept, descriptor in zip(self._kept, (_STDOUT, _STDERR), strict=True):
            os.dup2(kept, descriptor)
        now, self._now = self._now, None
        if os.fstat(self._file).st_size == 0:
            os.rename(now, self._folder / f"{self._owner}.{SPARE}")
            return
        os.close(self._file)
        self._file = -1
        os.rename(now, now.with_suffix(f".{DONE}"))

    def _give_up(self, error: OSError) -> None:
        """No more logs from here: the folder is gone, or its disk is full."""
        self._is_broken, self._now = True, None
        if self._kept is not None:
            for kept, descriptor in zip(self._kept, (_STDOUT, _STDERR), strict=True):
                with suppress(OSError):
                    os.dup2(kept, descriptor)
        log.warning("what trials print here is not kept any more: %s", error)


def _write_lines() -> None:
    """Each line leaves at once, in one write: Python buffers what goes to files, and so does C.

    Ray's own streams write twice a line. Handlers of `logging` may hold these: they go where 2 points.
    """
    sys.stdout, sys.stderr = _line_stream(_STDOUT), _line_stream(_STDERR)
    with suppress(AttributeError, OSError, ValueError):
        libc = ctypes.CDLL(None)
        stream = ctypes.c_void_p.in_dll(libc, "stdout")
        libc.setvbuf(stream, None, _LINE_BUFFERED, 0)


def _line_stream(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush() -> None:
    """Have the kernel take all that Python and C hold back."""
    for stream in {sys.stdout, sys.stderr}:
        # A trial may have closed or replaced them.
        with suppress(Exception):
            stream.flush()
    with suppress(AttributeError, OSError):
        ctypes.CDLL(None).fflush(None)
