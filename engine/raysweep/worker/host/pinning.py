"""CPUs of its own for a process: no two that ask for them on a node get the same.

Ray counts CPUs and gives none in particular. Here each CPU has a file that is locked by the process that is
pinned to it; the lock ends with the process, however it ends.
"""

from __future__ import annotations

import fcntl
import logging
import os
import tempfile
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from raysweep.documents.own_folder import make_own_folder

log = logging.getLogger("raysweep")
_SHARED: Final = Path("/dev/shm")
_TOPOLOGY: Final = "/sys/devices/system/cpu/cpu{}/topology/{}"
_held: list[int] = []
"""The locks of this process: open files."""


def pin(cpus: float, place: Path | None = None) -> Sequence[int]:
    """Have all threads of this process, and those to come, run on so many CPUs that no other is pinned to.

    Args:
        cpus: How many; nothing is done below 1.
        place: The folder with the locks; default: this user's on this machine.

    Returns: The CPUs; empty where there are not so many, which is logged.
    """
    count = int(cpus)
    if count < 1 or not hasattr(os, "sched_setaffinity"):
        return []
    allowed = sorted(os.sched_getaffinity(0))
    place = folder() if place is None else place
    try:
        make_own_folder(place)
    except OSError as error:
        log.warning("not pinned: %s", error)
        return []
    for candidates in [*_by_package(allowed), allowed]:
        taken = _take(candidates, count, place)
        if taken:
            _move(taken)
            return taken
    log.warning("not pinned: of this process's %d CPUs fewer than %d are free", len(allowed), count)
    return []


def folder() -> Path:
    """The folder where this user's processes lock CPUs."""
    base = _SHARED if _SHARED.is_dir() else Path(tempfile.gettempdir())
    return base / f"raysweep-cpus-{os.getuid()}"


def _by_package(cpus: Iterable[int]) -> list[list[int]]:
    """The CPUs of each socket, hardware threads of one core side by side."""
    found: dict[int, list[tuple[int, int]]] = {}
    for cpu in cpus:
        found.setdefault(_read(cpu, "physical_package_id"), []).append((_read(cpu, "core_id"), cpu))
    return [[cpu for _, cpu in sorted(each)] for _, each in sorted(found.items())]


def _read(cpu: int, what: str) -> int:
    try:
        return int(Path(_TOPOLOGY.format(cpu, what)).read_text())
    except (OSError, ValueError):
        return 0


def _take(candidates: Sequence[int], count: int, place: Path) -> list[int]:
    """Lock the first so many that are free; none where there are fewer."""
    taken: dict[int, int] = {}
    for cpu in candidates if len(candidates) >= count else ():
        try:
            lock = os.open(place / str(cpu), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o600)
        except OSError:
            continue
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(lock)
            continue
        taken[cpu] = lock
        if len(taken) == count:
            _held.extend(taken.values())
            return list(taken)
    for lock in taken.values():
        os.close(lock)
    return []


def _move(cpus: Sequence[int]) -> None:
    """The calling thread first: those that are started meanwhile have its CPUs."""
    os.sched_setaffinity(0, cpus)
    for thread in os.listdir("/proc/self/task"):
        with suppress(ProcessLookupError):  # it has ended
            os.sched_setaffinity(int(thread), cpus)
