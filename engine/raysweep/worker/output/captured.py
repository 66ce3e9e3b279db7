"""Captures an attempt's output in a file of its own: descriptors 1 and 2 point there while it runs.

So C code and child processes are heard too, a line costs what it costs in a file, and whatever ends the
process, the kernel has what was written. Another process stores it: see `log_store`.
"""

from __future__ import annotations

import ctypes
import logging
import mmap
import os
import sys
import tempfile
from contextlib import suppress
from pathlib import Path
from typing import Any, Final, TextIO

from raysweep.messages import Job
from raysweep.worker.output.spool import (
    DONE,
    MARK_BYTES,
    NO_MARK,
    OUT,
    OWNER,
    become_owner,
    make_mark,
    make_spool,
)
from raysweep.worker.process.syscalls import FileFacts, file_of

_STDOUT: Final = 1
_STDERR: Final = 2
_LINE_BUFFERED: Final = 1
_LIBC: Final = ctypes.CDLL(None)
log = logging.getLogger("raysweep")


def _streams() -> tuple[Any, tuple[ctypes.c_void_p, ...]]:
    """A function for the bytes that a stream of C holds back; and its standard streams."""
    # A call that gives up the GIL costs ten times this one: other threads take it. It never blocks.
    libc = ctypes.PyDLL(None)
    try:
        return libc.__fpending, tuple(ctypes.c_void_p.in_dll(libc, name) for name in ("stdout", "stderr"))
    except (AttributeError, ValueError):  # no libc of Linux
        return None, ()


_PENDING, _STREAMS = _streams()


class Output:
    """The output of attempts. This class leaves it where it goes anyway."""

    def begin(self, job: Job) -> None:
        """The attempt begins; what is written from now on is its. What one has closed is open again."""
        if getattr(sys.stdout, "closed", False):
            sys.stdout = _line_stream(_STDOUT)
        if getattr(sys.stderr, "closed", False):
            sys.stderr = _line_stream(_STDERR)

    def end(self, last_words: str = "") -> None:
        """It is over; `last_words` are written to its log."""

    def rest(self) -> None:
        """No attempt follows at once: what is written from now on belongs to no attempt."""

    def settle(self, last_words: str = "") -> None:
        """A process that was forked from this one, and ran an attempt, has ended; `last_words`: see `end`."""

    def close(self) -> None:
        """This process runs no more attempts."""


class CapturedOutput(Output):
    """Output into the files of a spool, by the one process that runs the attempts.

    An error here is logged once, and costs the trial nothing but its log.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._owner = ""
        self._file = -1
        self._shown: mmap.mmap | None = None
        self._mark = b""
        self._kept: tuple[int, int] | None = None
        self._opened: FileFacts | None = None
        """The file, as it was when it was opened."""
        self._stays = False
        """True if 1 and 2 still point to the file, which is empty, for the attempt that follows."""
        self._is_broken = False

    def prepare(self) -> None:
        """For a process that forks: what each of its children would have to do before its attempt.

        One of them runs at a time, and all are the same owner. Where that fails, each tries it by itself.
        """
        _flush()
        self._keep_streams()
        with suppress(OSError):
            tempfile.gettempdir()
            self._shown = self._own()
            self._open()

    def settle(self, last_words: str = "") -> None:
        """A child has ended. The file of one that could not name it becomes that of a dead process."""
        if self._shown is None:
            return
        with suppress(OSError):
            if (mark := self._shown[:]) != NO_MARK:
                os.write(self._file, last_words.encode())
                owner, lock = become_owner(self._folder)
                os.pwrite(lock, mark, 0)
                os.rename(self._path(OUT), self._folder / f"{owner}.{OUT}")
                os.close(lock)
                self._shown[:] = NO_MARK
            elif self._file >= 0 and not os.fstat(self._file).st_size:
                return
            self._close()
            self._open()

    def begin(self, job: Job) -> None:
        """See `Output`."""
        super().begin(job)
        if self._is_broken:
            return
        try:
            self._redirect(make_mark(job.trial, job.attempt))
        except OSError as error:
            self._give_up(error)

    def end(self, last_words: str = "") -> None:
        """See `Output`."""
        if not self._mark:
            return
        try:
            _flush()
            if last_words:
                os.write(self._file, last_words.encode("utf-8", "replace"))
            self._leave()
        except OSError as error:
            self._give_up(error)

    def rest(self) -> None:
        """See `Output`."""
        if self._stays and not self._mark:
            _flush()
            self._restore()

    def close(self) -> None:
        """See `Output`. The owner's files go: what was written has a name of its own by now."""
        self.rest()
        is_own = self._owner.startswith(f"{os.getpid()}-")
        # In one that forks, a child's attempt may be under way: who runs both may have been killed.
        if is_own and self._shown is not None and self._shown[:] == NO_MARK and not self._is_broken:
            with suppress(OSError):
                if self._file >= 0:
                    os.unlink(self._path(OUT))
                os.unlink(self._path(OWNER))

    def _path(self, kind: str) -> Path:
        return self._folder / f"{self._owner}.{kind}"

    def _keep_streams(self) -> None:
        if self._kept is None:
            self._kept = os.dup(_STDOUT), os.dup(_STDERR)
            _write_lines()

    def _own(self) -> mmap.mmap:
        """Become an owner in the spool; where the mark is written to."""
        make_spool(self._folder)
        self._owner, lock = become_owner(self._folder)
        os.pwrite(lock, NO_MARK, 0)
        # As memory, it is written without a call: the kernel has it all the same when the process ends.
        return mmap.mmap(lock, MARK_BYTES)

    def _redirect(self, mark: bytes) -> None:
        if self._stays and self._shown is not None:
            self._shown[:] = self._mark = mark
            return
        _flush()
        if self._shown is None:
            self._shown = self._own()
            self._keep_streams()
        # In this order: a process that finds the file knows whose it is.
        self._shown[:] = self._mark = mark
        if self._file < 0:
            self._open()
        os.dup2(self._file, _STDOUT)
        os.dup2(self._file, _STDERR)

    def _open(self) -> None:
        # It may become an object of the storage as it is; until then, the folder is closed to others.
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
        self._file = os.open(self._path(OUT), flags, 0o666)
        self._opened = file_of(self._file)

    def _close(self) -> None:
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _leave(self) -> None:
        """Leave the output; if nothing was written, 1 and 2 may stay: the next attempt saves four calls."""
        assert self._shown is not None
        mark, self._mark = self._mark, b""
        found = self._find(_STDOUT)
        size_bytes = found.size_bytes if found else os.fstat(self._file).st_size
        if size_bytes or found is None or self._find(_STDERR) is None:
            self._restore()
        else:
            self._stays = True
        if size_bytes:
            self._close()
            done = f"{mark.decode().strip()}.{self._owner}.{DONE}"
            os.rename(self._path(OUT), self._folder / done)
        self._shown[:] = NO_MARK

    def _find(self, descriptor: int) -> FileFacts | None:
        """The file, by a descriptor; None if an attempt has closed or redirected the descriptor."""
        found, opened = file_of(descriptor), self._opened
        return found if found and opened and found[:2] == opened[:2] else None

    def _restore(self) -> None:
        assert self._kept is not None
        self._stays = False
        os.dup2(self._kept[0], _STDOUT)
        os.dup2(self._kept[1], _STDERR)

    def _give_up(self, error: OSError) -> None:
        """No more logs from here: the folder is gone, or its disk is full."""
        self._is_broken, self._mark, self._stays = True, b"", False
        if self._kept is not None:
            os.dup2(self._kept[0], _STDOUT)
            os.dup2(self._kept[1], _STDERR)
        log.warning("what trials print here is not kept any more: %s", error)


def _write_lines() -> None:
    """Each line leaves at once, in one write: Python buffers what goes to files, and so does C.

    Ray's own streams write twice a line. Handlers of `logging` may hold these: they go where 2 points.
    """
    sys.stdout, sys.stderr = _line_stream(_STDOUT), _line_stream(_STDERR)
    with suppress(AttributeError, ValueError):  # no libc of Linux
        stream = ctypes.c_void_p.in_dll(_LIBC, "stdout")
        _LIBC.setvbuf(stream, None, _LINE_BUFFERED, 0)


def _line_stream(descriptor: int) -> TextIO:
    return open(descriptor, "w", buffering=1, encoding="utf-8", errors="backslashreplace", closefd=False)


def _flush() -> None:
    """Have the kernel take all that Python and C hold back."""
    # A trial may have closed or replaced them.
    with suppress(Exception):
        sys.stdout.flush()
    with suppress(Exception):
        sys.stderr.flush()
    if _holds_back():
        _LIBC.fflush(None)


def _holds_back() -> bool:
    """True if a standard stream of C holds something back; where that cannot be asked, it may."""
    return _PENDING is None or any(_PENDING(stream) for stream in _STREAMS)
