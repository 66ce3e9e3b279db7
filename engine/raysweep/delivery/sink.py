"""One callback on its thread: gives it each event in order, tries again, and notes how far it came.

An event is tried again for as long as the sweep runs where what the callback writes to is down
(`SinkDownError`, a lost connection, a full disk). What fails otherwise is tried `TRIES` times, then given
up and counted. A failed `flush` is tried in the same way; where it is given up, so are the events since the
last one, and the callback is made anew.
"""

from __future__ import annotations

import errno
import logging
import socket
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from raysweep.delivery.cursor import Cursor, CursorFile
from raysweep.delivery.feed import Feed, Item, Key
from raysweep.delivery.shared import Behind, SharedEvents
from raysweep.documents.code import user_code
from raysweep.errors import RaysweepError, StorageError, one_line
from raysweep.hooks.base import Callback, SinkDownError
from raysweep.hooks.events import HOOKS

BATCH: Final = 500
TRIES: Final = 3
PAUSE_S: Final = 0.5
MAX_PAUSE_S: Final = 30.0
CURSOR_S: Final = 1.0
"""The seconds between two notes of the place in the journal."""
_WAIT_S: Final = 0.5
_PASSING: Final = frozenset(
    {errno.ENOSPC, errno.EDQUOT, errno.EIO, errno.ESTALE, errno.ENETUNREACH, errno.EHOSTUNREACH}
)
"""Errors of files and sockets that pass by themselves."""
log = logging.getLogger("raysweep")


class _Leave(Exception):
    pass


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkReport:
    """The result of a callback; `left`: events that were not delivered, None where that is not known."""

    name: str
    left: int | None
    skipped: int
    error: str


class Sink:
    """See the module. `make` makes the callback, on the sink's thread; again after a `flush` was given up."""

    def __init__(
        self,
        name: str,
        make: Callable[[], Callback],
        file: CursorFile,
        cursor: Cursor,
        open_feed: Callable[[], Feed],
        events: SharedEvents,
        start: int,
    ) -> None:
        self.name = name
        self._make, self._file, self._open_feed, self._events = make, file, open_feed, events
        self._callback: Callback | None = None
        self._key: Key = cursor.key
        self._skipped = cursor.skipped
        self._ordinal = start
        """The ordinal of the last event that was delivered or passed over."""
        self._noted, self._noted_at = cursor, time.monotonic()
        self._error = ""
        self._own: Feed | None = None
        self._leaving, self._hurry = threading.Event(), threading.Event()
        self.is_done = False
        """True if all that there is was delivered, or given up."""
        self.moved_at = time.monotonic()
        """When it last got on, by the monotonic clock."""
        self._thread = threading.Thread(target=self._run, name=f"callback-{name}", daemon=True)

    def start(self) -> None:
        """Begin."""
        self._events.register(self.name, self._ordinal)
        self._thread.start()

    def hurry(self) -> None:
        """The sweep has ended: try again at once, and pause for a short time only."""
        self._hurry.set()

    def leave(self, wait_s: float) -> None:
        """Stop between two events, note the place, and close the callback; give up after `wait_s`."""
        self._leaving.set()
        self._thread.join(wait_s)

    def report(self, total: int | None) -> SinkReport:
        """Its result, of `total` events in all."""
        left = None if total is None else max(0, total - self._ordinal)
        return SinkReport(name=self.name, left=left, skipped=self._skipped, error=self._error)

    def _run(self) -> None:
        try:
            while not self.is_done:
                items = self._next()
                if items:
                    self._deliver(items)
                elif self._is_at_end():
                    self.is_done = True
                self._note(is_due=time.monotonic() - self._noted_at >= CURSOR_S)
        except _Leave:
            pass
        except Exception as error:
            log.exception("callback %s: not called any more", self.name)
            self._error = self._error or one_line(f"{type(error).__name__}: {error}", 300)
        finally:
            self._note(is_due=True)
            self._close()

    def _next(self) -> list[Item]:
        if self._leaving.is_set():
            raise _Leave
        if self._own is None:
            try:
                return self._events.take(self.name, self._ordinal, BATCH, _WAIT_S)
            except Behind:
                log.info("callback %s lags behind, and reads the journal by itself", self.name)
                self._own = self._open_feed()
        return self._read_own(self._own)

    def _read_own(self, feed: Feed) -> list[Item]:
        found: list[Item] = []
        try:
            found = feed.read(BATCH)
        except StorageError as error:
            self._error = str(error)
        if not found:
            self._leaving.wait(_WAIT_S)
        return [item for item in found if item.ordinal > self._ordinal]

    def _is_at_end(self) -> bool:
        if self._own is None:
            return self._events.is_complete
        return self._hurry.is_set() and self._own.has_ended and self._own.ordinal <= self._ordinal

    def _deliver(self, items: list[Item]) -> None:
        for item in items:
            if item.key > self._key and not self._attempt(lambda item=item: self._give(item)):  # type: ignore[misc]
                self._skipped += 1
        fresh = [item for item in items if item.key > self._key]
        if fresh and not self._attempt(self._flush):
            self._skipped += len(fresh)
            self._close()
        self._ordinal = items[-1].ordinal
        self._key = max(self._key, items[-1].key)
        self.moved_at = time.monotonic()

    def _attempt(self, call: Callable[[], None]) -> bool:
        """Call until it works; False: given up. Raises: _Leave."""
        failures, pause_s, is_said = 0, PAUSE_S, False
        while True:
            if self._leaving.is_set():
                raise _Leave
            try:
                user_code.call(call)
            except Exception as error:  # noqa: BLE001  a callback may raise anything
                self._error = one_line(_message(error), 300)
                failures += not is_down(error)
                if not is_said:
                    log.warning("callback %s: %s; it is called again", self.name, self._error)
                is_said = True
                if failures >= TRIES:
                    log.warning("callback %s: an event is given up: %s", self.name, self._error)
                    return False
            else:
                if is_said:
                    log.warning("callback %s: works again", self.name)
                    self._error = ""
                return True
            self._pause(pause_s)
            pause_s = min(2 * pause_s, MAX_PAUSE_S)

    def _pause(self, pause_s: float) -> None:
        """Wait; once the sweep has ended, half a second at most."""
        until = time.monotonic() + pause_s
        while (left_s := until - time.monotonic()) > 0:
            if self._leaving.wait(min(left_s, PAUSE_S)) or self._hurry.is_set():
                return

    def _made(self) -> Callback:
        if self._callback is None:
            self._callback = self._make()
        return self._callback

    def _give(self, item: Item) -> None:
        getattr(self._made(), HOOKS[type(item.event)])(item.event)

    def _flush(self) -> None:
        self._made().flush()

    def _close(self) -> None:
        callback, self._callback = self._callback, None
        if callback is None:
            return
        try:
            user_code.call(callback.close)
        except Exception as error:  # noqa: BLE001  a callback may raise anything
            log.warning("callback %s: close: %s", self.name, one_line(_message(error), 300))

    def _note(self, *, is_due: bool) -> None:
        cursor = Cursor(key=self._key, skipped=self._skipped)
        if not is_due or cursor == self._noted:
            return
        try:
            self._file.write(cursor)
        except StorageError as error:
            log.info("callback %s: its place is not noted: %s", self.name, error)
            return
        self._noted, self._noted_at = cursor, time.monotonic()


def is_down(error: Exception) -> bool:
    """True if it may work later without a change of the callback."""
    if isinstance(error, SinkDownError | ConnectionError | TimeoutError | socket.gaierror):
        return True
    if isinstance(error, RaysweepError):
        return error.retryable
    if isinstance(error, OSError) and error.errno in _PASSING:
        return True
    kinds = [base for base in type(error).__mro__ if base.__name__ in ("TransportError", "ConnectionError")]
    return any(base.__module__.partition(".")[0] in ("httpx", "httpcore", "requests") for base in kinds)


def _message(error: Exception) -> str:
    return str(error) if isinstance(error, RaysweepError) else f"{type(error).__name__}: {error}"
