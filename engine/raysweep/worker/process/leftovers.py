"""Leftovers of a trial in a process that runs others after it: put back, or the process is replaced.

The state before the first attempt, with the trainable loaded, counts as the right one. It is compared after
each attempt, which takes a few microseconds: so it holds what is cheap to look at. Libraries are looked at
only where they are imported, and as they were right after that. Nothing here imports one.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # as `signal`, without an enum for each value
import gc
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from types import ModuleType
from typing import Any, Final

from raysweep.messages import End, TrialNoted
from raysweep.trial.owners import watch_pools
from raysweep.worker.link import Link
from raysweep.worker.process.import_hooks import after_import
from raysweep.worker.process.libraries import LIBRARIES, Setting, Settings, end_runs, find_broken, find_runs
from raysweep.worker.process.syscalls import working_directory
from raysweep.worker.process.timers import armed_timers, disarm_timers

FIX: Final = "isolation: worker replaces the process then, and isolation: process gives each trial its own"
_SIGNALS: Final = tuple(
    map(int, (signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGUSR1, signal.SIGUSR2, signal.SIGPIPE,
              signal.SIGALRM, signal.SIGTERM, signal.SIGCHLD, signal.SIGVTALRM, signal.SIGPROF))
)  # fmt: skip
"""Those that programs set handlers of."""


class Leftovers:
    """Those of the attempts of one process. `can_replace`: it can end, and another one takes its place."""

    def __init__(self, *, can_replace: bool = True, has_gpus: bool = False) -> None:
        self._can_replace = can_replace
        self._has_gpus = has_gpus
        self._is_noted = False
        self._timers: list[int] = []
        self._runs: dict[str, Any] = {}
        self._settings: list[Settings] = []

    def begin(self) -> None:
        """An attempt is about to begin. What the first one finds is put back after each."""
        if not self._settings:
            self._note()

    def disarm(self) -> None:
        """User code has ended: its timers would end the next trial, or this process."""
        disarm_timers(self._timers)

    def clear(self, end: End, link: Link) -> str:
        """An attempt has ended: put back what it has changed. Why the process must be replaced, if so."""
        lasting = end_runs(end, self._runs)
        for settings in self._settings:
            try:
                lasting = settings.put_back() or lasting
            except Exception as error:  # noqa: BLE001  whatever it is, no other trial begins with it
                lasting = f"a setting that cannot be put back ({type(error).__name__}: {error})"
        lasting = lasting or find_broken(end, has_gpus=self._has_gpus)
        if lasting and not self._can_replace and not self._is_noted:
            self._is_noted = True
            text = f"it left {lasting}, with which the trials after it began: {FIX}"
            link.send(TrialNoted(*end.who, text=text))
        return lasting if self._can_replace else ""

    def _note(self) -> None:
        self._runs, self._timers = find_runs(), armed_timers()
        is_main = threading.current_thread() is threading.main_thread()
        self._settings.append(Settings((_PROCESS, *([_HANDLERS] * is_main))))
        for name, kind in LIBRARIES.items():
            after_import(name, partial(self._note_library, kind), key="leftovers")
        after_import("concurrent.futures.thread", watch_pools)

    def _note_library(self, kind: Callable[[ModuleType], Settings], module: ModuleType) -> None:
        self._settings.append(kind(module))


def _enter(folder: bytes | None) -> str:
    if folder is None:
        return ""
    try:
        os.chdir(folder)
    except OSError as error:
        return f"the working directory: {os.fsdecode(folder)} cannot be entered ({error.strerror})"
    return ""


def _put_variables(before: dict[bytes, bytes]) -> None:
    for name in _VARIABLES.keys() - before.keys():
        del os.environb[name]
    for name, value in before.items():
        if _VARIABLES.get(name) != value:
            os.environb[name] = value


def _put_handlers(before: list[Any]) -> str:
    lost = ""
    for number, handler in zip(_SIGNALS, before, strict=True):
        if _signal.getsignal(number) != handler:
            if handler is None:  # one that C had set
                lost = f"the handler of {signal.Signals(number).name}"
            else:
                signal.signal(number, handler)
    return lost


def _put_root_handlers(before: list[logging.Handler]) -> None:
    """One that goes is not closed: a module may keep it for the next trial."""
    root = logging.root
    for handler in [each for each in root.handlers if each not in before]:
        root.removeHandler(handler)
    for handler in [each for each in before if each not in root.handlers]:
        root.addHandler(handler)


def _put_stream(name: str, before: Any) -> None:
    with suppress(Exception):  # what it holds back is of the trial that has put it there
        getattr(sys, name).flush()
    if not getattr(before, "closed", False):
        setattr(sys, name, before)


def _put_root_level(before: int) -> None:
    logging.root.setLevel(before)


def _put_collector(before: bool) -> None:
    (gc.enable if before else gc.disable)()


_VARIABLES: Final[dict[bytes, bytes]] = vars(os.environ)["_data"]
"""As bytes: `os.environ` would decode all of them for each look."""


def _look(_: Any) -> tuple[Any, ...]:
    """The state that an attempt may change in the process, in one call: more calls would cost more."""
    root = logging.root
    return (
        working_directory(),
        _VARIABLES,
        root.handlers,
        root.level,
        root.manager.disable,
        sys.stdout,
        sys.stderr,
        gc.isenabled(),
        sys.getrecursionlimit(),
        socket.getdefaulttimeout(),
    )


_PUTS: Final[tuple[Callable[[Any], str | None], ...]] = (
    _enter,
    _put_variables,
    _put_root_handlers,
    _put_root_level,
    logging.disable,
    partial(_put_stream, "stdout"),
    partial(_put_stream, "stderr"),
    _put_collector,
    sys.setrecursionlimit,
    socket.setdefaulttimeout,
)
"""One for each value of `_look`."""


def _put_all(before: tuple[Any, ...]) -> str:
    lasting = ""
    for put, value, found in zip(_PUTS, before, _look(None), strict=True):
        if found != value:
            lasting = put(value) or lasting
    return lasting


_PROCESS: Final = Setting(
    _look,
    lambda _, before: _put_all(before),
    lambda found: (found[0], dict(found[1]), list(found[2]), *found[3:]),
)
_HANDLERS: Final = Setting(
    lambda _: list(map(_signal.getsignal, _SIGNALS)), lambda _, before: _put_handlers(before)
)
