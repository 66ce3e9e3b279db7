"""Ctrl-C and SIGTERM while a sweep runs: heard in one place, acted upon where that breaks nothing.

| when it comes                     | what it does                                                         |
|-----------------------------------|----------------------------------------------------------------------|
| before Ray, or while following    | KeyboardInterrupt, there                                             |
| while Ray starts or ends          | waits: an interrupted start can end in a crash of Ray's C++ core     |
| from the claim to the controller  | waits for the controller                                             |
| while the controller runs         | first: trials end cleanly, the sweep is left; second: at once        |
| the fourth of one run             | KeyboardInterrupt, wherever it is: whatever hangs, a person gets out |
"""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Protocol

from raysweep.documents.code import user_code

SIGNALS: Final = (signal.SIGINT, signal.SIGTERM)
INSISTS: Final = 4
"""The number of signals in one run that mean a person who wants to get out at any price."""


class Interruptible(Protocol):
    """The parts of the controller that interrupts call, from any thread and at any time."""

    def interrupt(self, name: str = "Ctrl-C") -> None:
        """End the trials cleanly and leave the sweep resumable. `name`: for the sweep's notes."""

    def cancel(self, reason: str) -> None:
        """Cancel the sweep within two seconds."""


class Interrupts:
    """Hands requests to end on, from a signal or from a thread that waits, to the controller.

    `breaks_off`: an interrupt that comes before there is a controller ends the run by `check`; else it is
    kept for the controller.
    """

    def __init__(self, *, breaks_off: bool = False) -> None:
        # A signal may come while its own thread is in here.
        self._lock = threading.RLock()
        self._early: list[Callable[[Interruptible], None]] = []
        self._controller: Interruptible | None = None
        self._breaks_off = breaks_off
        self._given: list[Callable[[Interruptible], None]] = []

    @property
    def is_taken(self) -> bool:
        """True if there is a controller that gets them."""
        return self._controller is not None

    def interrupt(self, name: str = "Ctrl-C") -> None:
        """Do as Ctrl-C does: the sweep can be resumed. `name`: what it is called in the sweep's notes."""
        self._hand_on(lambda controller: controller.interrupt(name))

    def cancel(self, reason: str) -> None:
        """Cancel the sweep, quickly: see `EndRequests.cancel`."""
        self._hand_on(lambda controller: controller.cancel(reason))

    def pass_to(self, controller: Interruptible) -> None:
        """From now on it gets them, those of earlier included."""
        with self._lock:
            self._controller, early = controller, self._early
            self._early = []
        for request in early:
            request(controller)

    def check(self) -> None:
        """Raise KeyboardInterrupt for one that was not taken, unless it is kept for the controller."""
        if self._breaks_off and self._early:
            raise KeyboardInterrupt

    def begin_next(self) -> None:
        """Another run follows one that ended by itself: it gets what came too late for that one."""
        with self._lock:
            self._controller, self._early, self._given = None, self._given, []

    @contextmanager
    def keeping(self) -> Iterator[None]:
        """In here what comes is kept for the controller, which is about to be there."""
        breaks_off, self._breaks_off = self._breaks_off, False
        try:
            yield
        finally:
            self._breaks_off = breaks_off

    def _hand_on(self, request: Callable[[Interruptible], None]) -> None:
        with self._lock:
            controller = self._controller
            (self._early if controller is None else self._given).append(request)
        if controller is not None:
            request(controller)


_listening: Final[list[Interrupts]] = []
"""Those of all sweeps that run in this process, on whatever thread."""


@contextmanager
def heard_by(interrupts: Interrupts, *, is_here: bool) -> Iterator[None]:
    """On the main thread SIGINT and SIGTERM are interrupts in here, of the sweeps on other threads too.

    On other threads it handles no signals: Python has them on the main thread only.

    Also where asyncio has a handler of its own for Ctrl-C, which would cancel the task that waits here and
    lose the outcome. `is_here`: the sweep runs on this thread, and what comes before its controller may be
    raised on the spot, by the handler that was there before.
    """
    before: dict[int, Any] = {}
    count = 0

    def hear(number: int, frame: FrameType | None) -> None:
        nonlocal count
        count += 1
        user_code.note_signal()
        for each in _listening:
            each.interrupt(signal.Signals(number).name)
        if count >= INSISTS:
            raise KeyboardInterrupt
        if is_here and not interrupts.is_taken:
            _raise_early(interrupts, before[number], number, frame)

    _listening.append(interrupts)
    try:
        with _handled(hear, before):
            yield
    finally:
        _listening.remove(interrupts)


def _raise_early(interrupts: Interrupts, before: Any, number: int, frame: FrameType | None) -> None:
    try:
        interrupts.check()
    except KeyboardInterrupt:
        if callable(before):
            before(number, frame)  # that of an orchestrator raises what it knows again
        raise


@contextmanager
def signals_wait() -> Iterator[None]:
    """On the main thread SIGINT and SIGTERM wait for the end of the context, then do what they always do."""
    before: dict[int, Any] = {}
    waiting: list[int] = []

    def keep(number: int, frame: FrameType | None) -> None:
        user_code.note_signal()
        waiting.append(number)
        if len(waiting) >= INSISTS:
            waiting.clear()
            raise KeyboardInterrupt

    try:
        with _handled(keep, before):
            yield
    finally:
        if waiting:
            signal.raise_signal(waiting[0])


@contextmanager
def _handled(handle: Callable[[int, FrameType | None], None], before: dict[int, Any]) -> Iterator[None]:
    """Both signals have this handler in here, and then again the one of before, whatever Ray has set."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    for number in map(int, SIGNALS):
        found = signal.getsignal(number)
        if found is not None:  # else it was set by C code, and could not be set again
            before[number] = found
            signal.signal(number, handle)
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
