"""Ends the processes that a trial started, in whatever session they are, once the trial is over.

The process that runs the trial, and the fork server above it, are subreapers (prctl(2)): a descendant whose
parent has ended becomes their child and not that of init, so a walk over children finds every descendant.
A trial without children costs one system call.

Processes that were there before the trial stay: those that the worker or the user's module has started. In a
worker that runs trial after trial (`keeps_pools`) these stay too, as objects of this process own them and the
next trial may use them: pools of `multiprocessing`, `concurrent.futures` and joblib, managers, W&B's service,
and what a class of Ray Tune has started that `reuse_actors` keeps.

The death of a whole worker is not seen from inside it: see `strayguard`.
"""

from __future__ import annotations

import ctypes
import logging
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any, Final

from raysweep.worker.process.stray_guard import unmarked
from raysweep.worker.process.syscalls import has_children

_PR_SET_CHILD_SUBREAPER: Final = 36
_prctl: Final = getattr(ctypes.CDLL(None), "prctl", None)
END_S: Final = 5.0
"""A process that has not ended so long after SIGKILL hangs in the kernel."""
LOOK_S: Final = 0.001
SHOWN: Final = 8
_TRACKERS: Final = (
    "multiprocessing.resource_tracker",
    "joblib.externals.loky.backend.resource_tracker",
    "loky.backend.resource_tracker",
)
_POOLS: Final = ("PoolWorker", "LokyProcess", "Manager-")
_SERVICES: Final = frozenset({"wandb-core"})
log = logging.getLogger("raysweep")
_lock: Final = threading.Lock()
_adopting: Final = {0}
"""The processes that are subreapers: a fork of one is none."""


def adopt(is_on: bool = True) -> None:
    """Have descendants whose parent has ended become children of this process (Linux)."""
    if _prctl is not None:
        _prctl(_PR_SET_CHILD_SUBREAPER, int(is_on), 0, 0, 0)


@contextmanager
def unrelated() -> Iterator[None]:
    """A process that is started in here, and whose parent has ended by the end, outlives this process."""
    with _lock, unmarked():
        adopt(False)
        try:
            yield
        finally:
            if os.getpid() in _adopting:
                adopt()


class Descendants:
    """The processes of one attempt after the other. `keeps_pools`: see the module.

    `keeps_all` says after an attempt whether its processes serve the next one.
    """

    def __init__(self, *, keeps_pools: bool = False, keeps_all: Callable[[], bool] = lambda: False) -> None:
        self._keeps_pools = keeps_pools
        self._keeps_all = keeps_all
        self._before: frozenset[int] = frozenset()
        self._may_have_children = True
        _adopting.add(os.getpid())
        adopt()

    def begin(self) -> None:
        """An attempt begins: the processes that run now are kept.

        Where the attempt before left none, nothing is looked up: only user code starts processes here.
        """
        if self._may_have_children:
            self._before = frozenset(children_of(os.getpid()) if has_children() else ())

    def end(self) -> str:
        """End what the attempt has left running; a line that names it, for the attempt's log."""
        self._may_have_children = has_children()
        if not self._may_have_children:
            self._before = frozenset()
            return ""
        if self._keeps_all():
            return ""
        ended: dict[int, str] = {}
        deadline = time.monotonic() + END_S
        with _lock:
            while (found := self._find()) and time.monotonic() < deadline:
                for pid in found:
                    _kill(pid, ended)
                time.sleep(LOOK_S)
        if found:
            log.warning("processes of a trial did not end after SIGKILL: %s", found)
        return _line(list(ended.values()))

    def _find(self) -> list[int]:
        """The attempt's processes; of dead ones, those that are still to be waited for."""
        kept = self._before | (_pooled() if self._keeps_pools and has_children() else set())
        found: list[int] = []
        unseen = [os.getpid()]
        while unseen:
            children = [pid for pid in children_of(unseen.pop()) if pid not in kept]
            if self._keeps_pools:
                children = [pid for pid in children if _name(pid) not in _SERVICES]
            found += children
            unseen += children
        return found


def children_of(pid: int) -> list[int]:
    """The children of a process (of each of its threads), dead ones included."""
    found: list[int] = []
    with suppress(OSError):
        for thread in os.listdir(f"/proc/{pid}/task"):
            with suppress(OSError), open(f"/proc/{pid}/task/{thread}/children", "rb") as file:
                found += map(int, file.read().split())
    return found


def _kill(pid: int, ended: dict[int, str]) -> None:
    with suppress(OSError):
        if _state(pid) != "Z":
            ended.setdefault(pid, _name(pid) or "?")
        os.kill(pid, signal.SIGKILL)
    with suppress(OSError):  # it is the child of another, which is about to be ours
        os.waitpid(pid, os.WNOHANG)


def _pooled() -> set[int]:
    """The processes of pools that live in this process, and the helpers of `multiprocessing`."""
    found = {
        getattr(getattr(sys.modules.get(name), "_resource_tracker", None), "_pid", None) for name in _TRACKERS
    }
    server: Any = sys.modules.get("multiprocessing.forkserver")
    found.add(getattr(getattr(server, "_forkserver", None), "_forkserver_pid", None))
    processes: Any = sys.modules.get("multiprocessing.process")
    for process in list(getattr(processes, "_children", ())):
        if any(name in process.name for name in _POOLS):
            found.add(process.pid)
    executors: Any = sys.modules.get("concurrent.futures.process")
    for manager in list(getattr(executors, "_threads_wakeups", ())):
        found.update(getattr(manager, "processes", None) or ())
    return {pid for pid in found if isinstance(pid, int)}


def _state(pid: int) -> str:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read().rpartition(b")")[2].split()[0].decode()


def _name(pid: int) -> str:
    try:
        with open(f"/proc/{pid}/comm", encoding="utf-8", errors="replace") as file:
            return file.read().strip()
    except OSError:
        return ""


def _line(names: list[str]) -> str:
    if not names:
        return ""
    shown = ", ".join(names[:SHOWN]) + (", …" if len(names) > SHOWN else "")
    count = "1 process" if len(names) == 1 else f"{len(names)} processes"
    return f"\n[raysweep: ended {count} that the trial had left running: {shown}]\n"
