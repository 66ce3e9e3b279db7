"""What a process and all that came of it hold in memory, by /proc: Linux."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, Self

EVERY_S: Final = 0.5
_PROC: Final = Path("/proc")


class Watch:
    """While it is open, looks twice a second at a process (default: this one) and all its descendants.

    Sums of PSS: what several processes share counts once.
    """

    def __init__(self, every_s: float = EVERY_S, root: int | None = None) -> None:
        self._root = os.getpid() if root is None else root
        self.idle_bytes = 0
        """At the start."""
        self.most_bytes = 0
        self.most_processes = 0
        self.started: set[int] = set()
        """The processes that were seen and had not been there at the start."""
        self._every_s, self._there_before = every_s, set[int]()
        self._over, self._thread = threading.Event(), threading.Thread(target=self._follow, daemon=True)

    def __enter__(self) -> Self:
        self._there_before = set(family(self._root))
        self.idle_bytes = sum(map(pss_bytes, self._there_before))
        self._thread.start()
        return self

    def __exit__(self, *exc: object) -> None:
        self._over.set()
        self._thread.join()
        self.look()

    def _follow(self) -> None:
        while not self._over.wait(self._every_s):
            self.look()

    def look(self) -> None:
        """Count now."""
        there = set(family(self._root))
        self.started |= there - self._there_before
        self.most_processes = max(self.most_processes, len(there))
        self.most_bytes = max(self.most_bytes, sum(map(pss_bytes, there)))


def family(root: int) -> Iterator[int]:
    """The process and all its descendants."""
    children: dict[int, list[int]] = {}
    for process in _processes():
        with suppress(OSError, ValueError, IndexError):
            parent = int((_PROC / str(process) / "stat").read_text().rpartition(")")[2].split()[1])
            children.setdefault(parent, []).append(process)
    found = [root]
    while found:
        yield (process := found.pop())
        found += children.get(process, [])


def pss_bytes(process: int) -> int:
    """What the process holds, shared pages in equal parts; 0 where it is gone."""
    with suppress(OSError):
        for line in (_PROC / str(process) / "smaps_rollup").read_text().splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) * 1024
    return 0


def _processes() -> list[int]:
    return [int(entry.name) for entry in _PROC.iterdir() if entry.name.isdecimal()]
