"""The link of an attempt: what it says goes here, what it is told comes from here.

On a socket, messages leave on a thread of their own, so user code never waits for it. What lies here is
bounded, in reports and in bytes: at the bound `report` blocks until some of it has left.
"""

from __future__ import annotations

import errno
import socket
import sys
import threading
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final, Protocol

from msgspec import Raw

from raysweep.messages import (
    FromWorker,
    Hello,
    Memory,
    ToWorker,
    TrialBusy,
    TrialReported,
    TrialReturned,
    TrialStarted,
)
from raysweep.worker.process.syscalls import unsent_bytes
from raysweep.worker.rows import PLAIN_BYTES
from raysweep.worker.wire import TO_WORKER, encode, pack, read_frames

Take = Callable[[list[ToWorker]], None]

# What may lie here before `report` blocks: the memory is bounded when the controller cannot keep up.
MAX_QUEUED_BYTES: Final = 16 * 2**20
# As objects of Python, small reports take more than their JSON: each counts for at least so much.
MIN_ROW_BYTES: Final = 512
MAX_QUEUED_ROWS: Final = MAX_QUEUED_BYTES // MIN_ROW_BYTES
# Plain values that take no more.
SMALL_ROW: Final = MIN_ROW_BYTES // PLAIN_BYTES
# A frame that holds so much is full. Its last report may go beyond, by as much as a report may take.
FRAME_BYTES: Final = 4 * 2**20
# Messages of a few numbers, and what each of them counts for.
SMALL: Final = frozenset({TrialStarted, TrialBusy, TrialReturned, Memory})
SMALL_BYTES: Final = 128
# After each frame the sender pauses, so that a tight loop of reports travels in large frames.
COALESCE_S: Final = 0.002
# So many leave a brief link on the threads that bring them: to begin one costs more than to send them.
FIRST_MESSAGES: Final = 4
# How long `send_now` waits for the other thread's send. Longer takes only a link that is backed up.
PATIENCE_S: Final = 0.05
# How often it is looked whether the kernel has sent all. It nearly always has: a link is rarely so busy.
DEPARTURE_S: Final = 0.0002
# What a socket says that was closed, or whose descriptor is by now a file's.
CLOSED_HERE: Final = frozenset({errno.EBADF, errno.ENOTSOCK, errno.ENOTTY})


class Link(Protocol):
    """The calls that an attempt needs of its link. Thread-safe."""

    def listen(self, take: Take, on_gone: Callable[[], None]) -> None:
        """Have what comes handed to `take`, in order; `on_gone` is called once when nothing more can come."""
        ...

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        """Queue one message. `waits`: block while too much is unsent."""
        ...

    def send_now(self, message: FromWorker) -> None:
        """Queue one message that must not be lost with this process."""
        ...

    def send_row(
        self,
        trial: int,
        attempt: int,
        index: int,
        keys: tuple[str, ...],
        row: list[Any],
        packed: bytes | None = None,
    ) -> None:
        """Queue one report; it may wait here for others with the same keys.

        `keys`: the same tuple as before where they are the same; those of other attempts are other tuples.
        `packed`: the row as JSON; None: all its values are plain, see `RowMaker`.
        """
        ...

    def close(self, timeout_s: float | None = 10.0) -> None:
        """Send what is queued, for at most `timeout_s` (None: without limit), and take nothing more."""
        ...


class _Entry:
    """A message in line; with `rows`, one of reports, to which more with its `keys` may come."""

    __slots__ = ("message", "rows", "size_bytes")

    def __init__(self, message: FromWorker | Raw, size_bytes: int, rows: TrialReported | None = None) -> None:
        self.message = message
        self.size_bytes = size_bytes
        self.rows = rows


class SocketLink:
    """A `Link` on a connected socket: that of a worker to its controller, or of a forked child to its worker.

    `hello` goes out first. `is_brief`: for one attempt, which may say too little for a thread.
    """

    def __init__(self, sock: socket.socket, hello: Hello | None = None, *, is_brief: bool = False) -> None:
        if hello is not None:
            sock.sendall(pack([hello]))
        self._sock = sock
        self._queue: deque[_Entry] = deque()
        self._bytes = 0
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._is_idle = False
        self._is_closed = False
        self._is_gone = False
        self._is_tcp = sock.family != socket.AF_UNIX and sys.platform == "linux"
        # Held by the thread that takes messages out of the queue and sends them: they leave in order.
        self._sending = threading.Lock()
        self._rest = b""
        self._on_gone: Callable[[], None] | None = None
        self._thread: threading.Thread | None = None
        self._first_messages = 0
        if not is_brief:
            self._start()

    def listen(self, take: Take, on_gone: Callable[[], None]) -> None:
        """See `Link`; both are called on a thread of their own."""
        self._on_gone = on_gone
        threading.Thread(target=self._receive_all, args=(take,), name="raysweep-link", daemon=True).start()

    def send(self, message: FromWorker, *, waits: bool = False) -> None:
        """Queue one message. `waits`: it is another process's, which is not read while too much is unsent."""
        with self._changed:
            self._add(message)
            if waits:
                self._await_room()
        if self._thread is None:
            self._send_first()

    def send_now(self, message: FromWorker) -> None:
        """Queue one message, and have the kernel take over all that is queued before this returns.

        So it arrives even if this process is killed next. Not so where the link is backed up: no thread waits
        for it here.
        """
        with self._changed:
            self._add(message, wakes=False)
        self._try_to_send(PATIENCE_S)
        if self._has_work():
            with self._changed:
                self._start()
                if self._is_idle:
                    self._changed.notify_all()

    def send_row(
        self,
        trial: int,
        attempt: int,
        index: int,
        keys: tuple[str, ...],
        row: list[Any],
        packed: bytes | None = None,
    ) -> None:
        """Queue one report; those with the same keys share a message. Blocks while too much is unsent."""
        size_bytes = MIN_ROW_BYTES
        item: Any = row
        if packed is not None:
            size_bytes, item = max(MIN_ROW_BYTES, len(packed)), Raw(packed)
        elif len(row) > SMALL_ROW:
            size_bytes = PLAIN_BYTES * len(row)
        # By its methods: `with` takes three times as long, a tenth of what a report costs.
        self._lock.acquire()
        try:
            last = self._queue[-1] if self._queue else None
            if (
                last is not None
                and (rows := last.rows) is not None
                and rows.keys is keys
                and last.size_bytes < FRAME_BYTES
            ):
                rows.rows.append(item)
                last.size_bytes += size_bytes
                self._bytes += size_bytes
            else:
                rows = TrialReported(trial=trial, attempt=attempt, first=index, keys=keys, rows=[item])
                self._append(rows, size_bytes + sum(map(len, keys)), rows)
            # Looked at here too, as a call would be a tenth of what a report costs.
            if self._bytes >= MAX_QUEUED_BYTES:
                self._await_room()
        finally:
            self._lock.release()
        if self._thread is None:
            self._send_first()

    def close(self, timeout_s: float | None = 10.0) -> None:
        """Send what is queued, then end the thread; None: however long that takes."""
        with self._changed:
            if self._has_work():
                self._start()
            self._is_closed = True
            self._changed.notify_all()
        if self._thread is not None and threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _start(self) -> None:
        """Have a thread send what is queued, from now on."""
        if self._thread is None:
            self._thread = threading.Thread(target=self._send_all, name="raysweep-outbox", daemon=True)
            self._thread.start()

    def _send_first(self) -> None:
        """Send without a thread; start it where more than a few come, or the kernel cannot take all."""
        self._first_messages += 1
        if self._first_messages <= FIRST_MESSAGES:
            self._try_to_send(0.0)
        if self._has_work() and not self._is_closed:
            with self._changed:
                self._start()

    def _try_to_send(self, timeout_s: float) -> None:
        """Send on this thread what the kernel takes at once, unless another one sends for so long."""
        if not self._sending.acquire(timeout=timeout_s):
            return
        try:
            self._hand_over()
        except OSError as error:
            self._hang_up(error)
        finally:
            self._sending.release()

    def _add(self, message: FromWorker, *, wakes: bool = True) -> None:
        if type(message) in SMALL:
            self._append(message, SMALL_BYTES, wakes=wakes)
            return
        body = encode(message)
        size_bytes = len(body)
        if isinstance(message, TrialReported):
            size_bytes = max(size_bytes, MIN_ROW_BYTES * len(message.rows))
        self._append(Raw(body), size_bytes, wakes=wakes)

    def _append(
        self,
        message: FromWorker | Raw,
        size_bytes: int,
        rows: TrialReported | None = None,
        *,
        wakes: bool = True,
    ) -> None:
        if self._is_gone:
            return
        self._queue.append(_Entry(message, size_bytes, rows))
        self._bytes += size_bytes
        if wakes and self._is_idle:
            self._changed.notify_all()

    def _await_room(self) -> None:
        if self._bytes >= MAX_QUEUED_BYTES:
            self._start()
        while self._bytes >= MAX_QUEUED_BYTES and not self._is_closed:
            self._changed.wait()

    def _hand_over(self) -> None:
        """Give the kernel what it takes at once, and have it sent."""
        while self._rest or self._queue:
            data = self._rest or self._take_frame()
            try:
                sent = self._sock.send(data, socket.MSG_DONTWAIT)
            except BlockingIOError:
                sent = 0
            self._rest = data[sent:]
            if self._rest:
                return
        if self._is_tcp:
            self._await_departure()

    def _await_departure(self) -> None:
        """Wait for what the kernel has not sent yet: it is lost if the process dies with something unread."""
        if not unsent_bytes(self._sock.fileno()):
            return
        until = time.monotonic() + PATIENCE_S
        while unsent_bytes(self._sock.fileno()) and time.monotonic() < until:
            time.sleep(DEPARTURE_S)

    def _take_frame(self) -> bytes:
        messages: list[FromWorker | Raw] = []
        size_bytes = 0
        with self._changed:
            was_full = self._bytes >= MAX_QUEUED_BYTES
            while self._queue and size_bytes < FRAME_BYTES:
                entry = self._queue.popleft()
                messages.append(entry.message)
                size_bytes += entry.size_bytes
            self._bytes -= size_bytes
            if was_full:
                self._changed.notify_all()
        return pack(messages) if messages else b""

    def _send_all(self) -> None:
        while True:
            with self._changed:
                if not self._has_work() and not self._is_closed:
                    self._is_idle = True
                    self._changed.wait()
                self._is_idle = False
                if not self._has_work() and self._is_closed:
                    return
            # Also where `send_now` was faster: else this thread would be woken for each short attempt.
            try:
                with self._sending:
                    self._send_rest()
            except OSError as error:
                self._hang_up(error)
                return
            with self._changed:
                if not self._is_closed:
                    self._changed.wait(COALESCE_S)

    def _has_work(self) -> bool:
        return bool(self._queue or self._rest)

    def _send_rest(self) -> None:
        data, self._rest = self._rest + self._take_frame(), b""
        if data:
            self._sock.sendall(data)

    def _receive_all(self, take: Take) -> None:
        try:
            for messages in read_frames(self._sock, TO_WORKER):
                take(messages)
        except ValueError as error:
            import logging  # a fork server starts faster without it

            log = logging.getLogger("raysweep")
            log.error("closed the link after an unreadable message: %s", error)
        finally:
            self._say_gone()

    def _say_gone(self) -> None:
        with self._changed:
            on_gone, self._on_gone = self._on_gone, None
        if on_gone is not None:
            on_gone()

    def _hang_up(self, error: OSError) -> None:
        """The controller is gone: nothing is kept any more. The link's reader sees it too and ends all.

        Not so where user code closed the descriptor: a reader of it then waits for ever.
        """
        if error.errno in CLOSED_HERE and not self._is_closed:
            threading.Thread(target=self._say_gone, name="raysweep-link-gone", daemon=True).start()
        with self._changed:
            self._is_gone = self._is_closed = True
            self._rest = b""
            self._queue.clear()
            self._bytes = 0
            self._changed.notify_all()
