"""The CPUs, the memory and the GPUs of this machine, and what sweeps of this process hold of them.

The counts are this process's: another process that runs a sweep here counts the whole machine as well, as two
embedded Rays would.
"""

from __future__ import annotations

import math
import os
import socket
import threading
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from raysweep.specs.trial.shape import Bundle
from raysweep.worker.host.nvidia import DriverError, find_driver

_EPSILON: Final = 1e-6
_CGROUP: Final = Path("/sys/fs/cgroup")


@dataclass(frozen=True, slots=True, kw_only=True)
class Given:
    """The holdings of one group: of each bundle the amounts, and the names of its GPUs."""

    bundles: tuple[Bundle, ...]
    gpus: tuple[tuple[str, ...], ...]


class Machine:
    """The total and free resources; thread-safe. Amounts are in Ray's keys.

    `on_free` of each user is called, on whichever thread, after something was given back.
    """

    def __init__(self, cpus: float, memory_bytes: float, gpus: Sequence[str]) -> None:
        self.name = socket.gethostname()
        self.total: dict[str, float] = {"CPU": cpus, "memory": memory_bytes}
        if gpus:
            self.total["GPU"] = float(len(gpus))
        self._free = dict(self.total)
        self._gpus = dict.fromkeys(gpus, 1.0)
        self._users: list[Callable[[], None]] = []
        self._lock = threading.Lock()

    @property
    def free(self) -> dict[str, float]:
        """The resources that are free now."""
        with self._lock:
            return dict(self._free)

    def join(self, on_free: Callable[[], None]) -> None:
        """Have it called when something is given back."""
        with self._lock:
            self._users.append(on_free)

    def part(self, on_free: Callable[[], None]) -> None:
        """Call it no more."""
        with self._lock:
            self._users.remove(on_free)

    def take(self, bundles: Sequence[Bundle]) -> Given | None:
        """Take all of these bundles; None, and nothing taken: they are not free."""
        with self._lock:
            wanted = _sum(bundles)
            if any(amount > self._free.get(name, 0.0) + _EPSILON for name, amount in wanted.items()):
                return None
            before = dict(self._gpus)
            gpus = [self._take_gpus(bundle.get("GPU", 0.0)) for bundle in bundles]
            if None in gpus:
                self._gpus = before
                return None
            for name, amount in wanted.items():
                self._free[name] -= amount
            return Given(bundles=tuple(bundles), gpus=tuple(each or () for each in gpus))

    def give_back(self, given: Given) -> None:
        """Free what `take` gave."""
        with self._lock:
            for name, amount in _sum(given.bundles).items():
                self._free[name] += amount
            for bundle, names in zip(given.bundles, given.gpus, strict=True):
                for name in names:
                    self._gpus[name] += min(1.0, bundle["GPU"])
            users = list(self._users)
        for call in users:
            call()

    def _take_gpus(self, amount: float) -> tuple[str, ...] | None:
        """Whole ones, or a part of the one that is fullest and has room for it."""
        part = min(1.0, amount)
        fits = sorted((left, name) for name, left in self._gpus.items() if left + _EPSILON >= part)
        names = tuple(name for _, name in fits[: math.ceil(amount - _EPSILON)])
        if len(names) < math.ceil(amount - _EPSILON):
            return None
        for name in names:
            self._gpus[name] -= part
        return names


def find_machine(cpus: float | None = None) -> Machine:
    """This machine. `cpus`: how many to use of it; default: as many as this process may."""
    return Machine(float(cpus or count_cpus()), float(memory_bytes()), find_gpus())


def count_cpus() -> int:
    """The CPUs that this process may use: by its affinity and its container's quota."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with suppress(OSError, ValueError):
        quota, period = (_CGROUP / "cpu.max").read_text().split()
        count = min(count, max(1, math.ceil(int(quota) / int(period))))
    return count


def memory_bytes() -> int:
    """The memory of this machine, or of its container."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    with suppress(OSError, ValueError):
        total = min(total, int((_CGROUP / "memory.max").read_text()))
    return total


def find_gpus() -> tuple[str, ...]:
    """The GPUs that this process may use, as CUDA_VISIBLE_DEVICES names them."""
    said = os.environ.get("CUDA_VISIBLE_DEVICES")
    if said is not None:
        names = (name.strip() for name in said.split(","))
        return tuple(name for name in names if name and name not in ("-1", "NoDevFiles"))
    driver = find_driver()
    if driver is None:
        return ()
    try:
        return tuple(str(number) for number in range(driver.count()))
    except DriverError:
        return ()


def _sum(bundles: Sequence[Bundle]) -> dict[str, float]:
    total: dict[str, float] = {}
    for bundle in bundles:
        for name, amount in bundle.items():
            total[name] = total.get(name, 0.0) + amount
    return total
