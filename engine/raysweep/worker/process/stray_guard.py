"""Ends what a worker's trials have started when the worker itself is killed.

A process that dies by SIGKILL cannot clean up, and Ray ends only its direct children. So each worker marks
its descendants, and a guard outside its family (a shell that reads from a pipe) sees the worker's death and
ends every process with the mark.

The mark is the soft limit RLIMIT_RTTIME: each worker sets a random one, of thousands of years. A process
inherits it, forked or executed, whatever its session, environment and parent are, and `/proc/<pid>/limits`
shows it. The kernel applies it only to real-time scheduling. ADR 106 has the alternatives.

This file is also the guard's program: as such it imports nothing of raysweep.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

RLIMIT_RTTIME = 15
_FIELD = b"Max realtime timeout"
_SIGKILL = 9
END_S = 5.0
LOOK_S = 0.02
# The shell outlives the worker: it leads a session, and its parent has ended. Most workers leave nothing:
# that is found out without Python, once the worker itself, which has the mark too, is gone.
_FIND = 'grep -qs " $4 " /proc/[0-9]*/limits'
_GUARD = f'exec 3<&0; {{ read -r _; sleep 0.1; {_FIND}; [ $? -eq 1 ] || exec "$0" "$@"; }} <&3 3<&- &'
_open: list[int] = []


def guard_descendants() -> None:
    """From now on, what this process starts ends with it, however it ends (Linux). Once a process."""
    import resource
    import subprocess

    if _open or sys.platform != "linux":
        return
    ours = 1 << 60 | int.from_bytes(os.urandom(7))
    hard = resource.getrlimit(RLIMIT_RTTIME)[1]
    if hard != resource.RLIM_INFINITY:  # real-time programs are limited here: leave that alone
        return
    read, write = os.pipe()
    _open.append(write)
    # A fork that lives on must not keep the pipe open.
    os.register_at_fork(after_in_child=_close)
    with suppress(OSError):
        subprocess.run(
            ["/bin/sh", "-c", _GUARD, sys.executable, "-I", "-S", __file__, str(ours)],
            stdin=read,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
            check=False,
        )
        resource.setrlimit(RLIMIT_RTTIME, (ours, hard))
    os.close(read)


@contextmanager
def unmarked() -> Iterator[None]:
    """Start processes in here without the mark of this process."""
    if not _open:
        yield
        return
    import resource

    marked = resource.getrlimit(RLIMIT_RTTIME)
    resource.setrlimit(RLIMIT_RTTIME, (marked[1], marked[1]))
    try:
        yield
    finally:
        resource.setrlimit(RLIMIT_RTTIME, marked)


def _close() -> None:
    while _open:
        with suppress(OSError):
            os.close(_open.pop())


def end_marked(mark: int, within_s: float = END_S) -> None:
    """End all processes with this mark, and those that they start meanwhile."""
    deadline = time.monotonic() + within_s
    while (found := find_marked(mark)) and time.monotonic() < deadline:
        for pid in found:
            with suppress(OSError):
                os.kill(pid, _SIGKILL)
        time.sleep(LOOK_S)


def find_marked(mark: int) -> list[int]:
    """The processes with this mark that have not ended."""
    needle = b"%d" % mark
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with suppress(OSError), open(f"/proc/{name}/limits", "rb") as file:
            line = next((line for line in file if line.startswith(_FIELD)), b"")
            if needle in line.split() and not _has_ended(name):
                found.append(int(name))
    return found


def _has_ended(name: str) -> bool:
    with open(f"/proc/{name}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0] == b"Z"


if __name__ == "__main__":
    end_marked(int(sys.argv[1]))
