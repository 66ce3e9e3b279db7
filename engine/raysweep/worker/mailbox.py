"""What the controller says of the attempt that a process runs, also while that is still being started."""

from __future__ import annotations

import threading
from collections.abc import Callable

from raysweep.worker.wire import Job, Message


class Mailbox:
    """Hands messages about the present attempt to whoever runs it; what comes earlier is kept for that one.

    `expect`, `open` and `close` are for the main thread, `take` for the one that reads the link.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._who: list[int] = []
        self._kept: list[Message] = []
        self._receiver: Callable[[Message], None] | None = None

    def expect(self, job: Job) -> None:
        """This attempt is about to start: from now on nothing that is said of it is lost."""
        with self._lock:
            self._who, self._kept, self._receiver = [job.trial, job.attempt], [], None

    def open(self, receiver: Callable[[Message], None]) -> None:
        """It can be told now: first of what was kept, in order."""
        with self._lock:
            for message in self._kept:
                receiver(message)
            self._kept, self._receiver = [], receiver

    def close(self) -> None:
        """It has ended: nobody needs what is still said of it."""
        with self._lock:
            self._who, self._kept, self._receiver = [], [], None

    def take(self, message: Message) -> None:
        """A message whose second and third item are a trial and an attempt."""
        with self._lock:
            if message[1:3] != self._who:
                return  # meant for one that has ended meanwhile
            if self._receiver is not None:
                self._receiver(message)
            else:
                self._kept.append(message)
