"""Runs a slow searcher on a thread, so that the event loop continues.

Asks and tells are queued in the order of the core's commands and processed one at a time: an ask knows the
tells before it and no others, as if the loop had waited for it. No other code reads the searcher's state
while the thread runs.

The thread and the loop share one interpreter lock. Python hands it over after a switch interval, 5 ms by
default, and each call of the loop that releases the lock (every send, every select) waits for that again.
A full garbage collection holds it for 30 to 90 ms, and the short-lived objects of an Optuna study trigger
these. So while an ask is computed the interval is shorter, and the collector pauses.
"""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from queue import SimpleQueue
from typing import Final, TypeVar

from raysweep.cluster.suggestions import suggest, tell
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.documents.code import user_code
from raysweep.search import Searcher

SWITCH_INTERVAL_S: Final = 0.0005
# A sweep that ends does not wait for an ask under way: its answer is not needed.
_JOIN_S: Final = 0.2
Told = cmd.TellSearch | cmd.TellRung
Work = cmd.SuggestConfigs | Told
T = TypeVar("T")


class Asking:
    """Asks and tells a searcher: an adaptive one on a thread, any other at once, which is faster.

    `emit` gets the answers and `fail` what the searcher raised, both on the event loop; `now` is the
    controller's clock.
    """

    def __init__(
        self,
        searcher: Searcher,
        emit: Callable[[ev.ConfigsSuggested], None],
        fail: Callable[[BaseException], None],
        now: Callable[[], float],
    ) -> None:
        self._searcher = searcher
        self._emit = emit
        self._fail = fail
        self._now = now
        self._work: SimpleQueue[Work | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._is_over = False

    def ask(self, command: cmd.SuggestConfigs) -> None:
        """Have it suggest configs; the answer comes as one event."""
        if self._searcher.is_adaptive:
            self._submit(command)
        else:
            self._emit(suggest(self._searcher, command, self._now()))

    def tell(self, command: Told) -> None:
        """Have it know how a trial ended, or how far it had come."""
        if self._searcher.is_adaptive:
            self._submit(command)
        else:
            tell(self._searcher, command)

    def close(self) -> None:
        """Answer nothing any more. An ask under way comes to its end on its thread, and is dropped."""
        self._is_over = True
        self._work.put(None)
        if self._thread is not None:
            self._thread.join(_JOIN_S)

    def _submit(self, work: Work) -> None:
        if self._thread is None:
            loop = asyncio.get_running_loop()
            self._thread = threading.Thread(
                target=self._run, args=(loop,), name="raysweep-search", daemon=True
            )
            self._thread.start()
        self._work.put(work)

    def _run(self, loop: asyncio.AbstractEventLoop) -> None:
        while (work := self._work.get()) is not None and not self._is_over:
            try:
                self._do(work, loop)
            except BaseException as error:  # noqa: BLE001  it ends the sweep, as it would have on the loop
                self._call(loop, self._fail, user_code.as_exception(error))
                return

    def _do(self, work: Work, loop: asyncio.AbstractEventLoop) -> None:
        if not isinstance(work, cmd.SuggestConfigs):
            tell(self._searcher, work)
            return
        with _yielding:
            event = suggest(self._searcher, work, self._now())
        self._call(loop, self._answer, event)

    def _call(self, loop: asyncio.AbstractEventLoop, take: Callable[[T], None], argument: T) -> None:
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(self._unless_over, take, argument)

    def _unless_over(self, take: Callable[[T], None], argument: T) -> None:
        if not self._is_over:
            take(argument)

    def _answer(self, event: ev.ConfigsSuggested) -> None:
        # It happens now: what came while it was computed is in the journal already.
        self._emit(replace(event, at=self._now()))


class _Yielding:
    """While a thread is in it, others get the interpreter lock soon; for all sweeps of the process."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._inside = 0
        self._interval_s = 0.0
        self._collects = False

    def __enter__(self) -> None:
        with self._lock:
            self._inside += 1
            if self._inside == 1:
                self._interval_s, self._collects = sys.getswitchinterval(), gc.isenabled()
                sys.setswitchinterval(min(self._interval_s, SWITCH_INTERVAL_S))
                gc.disable()

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._inside -= 1
            if self._inside == 0:
                sys.setswitchinterval(self._interval_s)
                if self._collects:
                    gc.enable()


_yielding: Final = _Yielding()
