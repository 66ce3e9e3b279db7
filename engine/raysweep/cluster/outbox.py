"""The worker's end of the link: messages leave on a thread of their own, so user code never waits for it."""

from __future__ import annotations

import socket
import threading
import time
from typing import Any, Final

from raysweep.cluster.wire import Message, pack

# Reports that may lie here before `report` blocks: what bounds the memory when the controller cannot keep up.
MAX_QUEUED_ROWS: Final = 32_768
# After each frame the sender pauses, so that a tight loop of reports travels in large frames.
COALESCE_S: Final = 0.002
# How long `post_now` waits for the other thread's send. Longer takes only a link that is backed up.
PATIENCE_S: Final = 0.05


class Outbox:
    """Collects messages and sends them in order. Thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._messages: list[Message] = []
        self._rows = 0
        self._changed = threading.Condition()
        self._is_idle = False
        self._is_closed = False
        self._is_tcp = sock.family != socket.AF_UNIX
        # Held by whoever takes messages out of the queue and sends them: they leave in order.
        self._sending = threading.Lock()
        self._rest = b""
        self._is_corked = False
        self._thread = threading.Thread(target=self._send_all, name="raysweep-outbox", daemon=True)
        self._thread.start()

    def post(self, message: Message) -> None:
        """Queue one message."""
        with self._changed:
            self._messages.append(message)
            if self._is_idle:
                self._changed.notify_all()

    def post_now(self, message: Message) -> None:
        """Queue one message, and have the kernel take over all that is queued before this returns.

        So it arrives even if this process is killed next. Not so where the link is backed up: nobody waits
        for it here.
        """
        with self._changed:
            self._messages.append(message)
        if self._sending.acquire(timeout=PATIENCE_S):
            try:
                self._hand_over()
            except OSError:
                self._hang_up()
            finally:
                self._sending.release()
        with self._changed:
            if self._is_idle:
                self._changed.notify_all()

    def post_row(self, trial: int, attempt: int, index: int, keys: tuple[str, ...], row: list[Any]) -> None:
        """Queue one report; those with the same keys share a message. Blocks while too many are unsent."""
        with self._changed:
            messages = self._messages
            last = messages[-1] if messages else None
            if (
                last is not None
                and last[0] == "rows"
                and last[4] is keys
                and last[1] == trial
                and not last[6]
            ):
                last[5].append(row)
            else:
                messages.append(["rows", trial, attempt, index, keys, [row], False])
                if self._is_idle:
                    self._changed.notify_all()
            self._rows += 1
            while self._rows >= MAX_QUEUED_ROWS and not self._is_closed:
                self._changed.wait()

    def close(self, timeout_s: float = 10.0) -> None:
        """Send what is queued, then end the thread."""
        with self._changed:
            self._is_closed = True
            self._changed.notify_all()
        if threading.current_thread() is not self._thread:
            self._thread.join(timeout_s)

    def _hand_over(self) -> None:
        """Give the kernel what it takes at once; it need not send it before the other thread says so."""
        data = self._rest + self._take_batch()
        flags = socket.MSG_DONTWAIT | (socket.MSG_MORE if self._is_tcp else 0)
        try:
            sent = self._sock.send(data, flags)
        except BlockingIOError:
            sent = 0
        self._rest, self._is_corked = data[sent:], self._is_tcp

    def _take_batch(self) -> bytes:
        with self._changed:
            batch, self._messages = self._messages, []
            is_full, self._rows = self._rows >= MAX_QUEUED_ROWS, 0
            if is_full:
                self._changed.notify_all()
        return pack(batch) if batch else b""

    def _send_all(self) -> None:
        while True:
            with self._changed:
                while not self._has_work() and not self._is_closed:
                    self._is_idle = True
                    self._changed.wait()
                self._is_idle = False
                if not self._has_work():
                    return
            try:
                with self._sending:
                    self._send_rest()
            except OSError:
                self._hang_up()
                return
            if not self._is_closed:
                time.sleep(COALESCE_S)

    def _has_work(self) -> bool:
        return bool(self._messages or self._rest or self._is_corked)

    def _send_rest(self) -> None:
        data, self._rest = self._rest + self._take_batch(), b""
        if data:
            self._sock.sendall(data)
        else:
            self._sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)  # sends what the kernel holds
        self._is_corked = False

    def _hang_up(self) -> None:
        """The controller is gone; the reader's end of the link sees it too and ends this process."""
        with self._changed:
            self._is_closed, self._is_corked, self._rest = True, False, b""
            self._messages.clear()
            self._changed.notify_all()
