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


class Outbox:
    """Collects messages and sends them in order. Thread-safe."""

    def __init__(self, sock: socket.socket) -> None:
        self._sock = sock
        self._messages: list[Message] = []
        self._rows = 0
        self._changed = threading.Condition()
        self._is_idle = False
        self._is_closed = False
        self._thread = threading.Thread(target=self._send_all, name="raysweep-outbox", daemon=True)
        self._thread.start()

    def post(self, message: Message) -> None:
        """Queue one message."""
        with self._changed:
            self._messages.append(message)
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

    def _send_all(self) -> None:
        while True:
            with self._changed:
                while not self._messages and not self._is_closed:
                    self._is_idle = True
                    self._changed.wait()
                self._is_idle = False
                if not self._messages:
                    return
                batch, self._messages = self._messages, []
                is_full, self._rows = self._rows >= MAX_QUEUED_ROWS, 0
                if is_full:
                    self._changed.notify_all()
            try:
                self._sock.sendall(pack(batch))
            except OSError:
                # The controller is gone; the reader's end of the link sees it too and ends this process.
                with self._changed:
                    self._is_closed = True
                    self._messages.clear()
                    self._changed.notify_all()
                return
            if not self._is_closed:
                time.sleep(COALESCE_S)
