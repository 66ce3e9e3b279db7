"""The controller's end of a starter: starts it, sends orders, and hears how its processes end."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Callable
from typing import Final

from raysweep.cluster.here.orders import ENDED, PATH, Ended, Evaluate, Learn, LearnEvaluation, Order, Start
from raysweep.worker.wire import FrameReader, pack

READ_BYTES: Final = 1 << 18
END_S: Final = 5.0
log = logging.getLogger("raysweep")


def _ignore(ended: Ended) -> None:
    """Nothing runs of this kind."""


class StarterLink:
    """One starter, and another one after its death. It is heard on the event loop that attaches it.

    `on_ended` gets the ends of workers, `on_evaluated` those of evaluations, whose numbers are negative.
    """

    def __init__(self) -> None:
        self.on_ended: Callable[[Ended], None] = _ignore
        self.on_evaluated: Callable[[Ended], None] = _ignore
        self._loop: asyncio.AbstractEventLoop | None = None
        self._running: set[int] = set()
        self._lessons: list[Order] = []
        self._begin()

    def attach(self) -> None:
        """Hear it on the event loop that runs now."""
        if self._loop is None:
            self._loop = asyncio.get_running_loop()
            self._loop.add_reader(self._sock.fileno(), self._read)

    def send(self, order: Order) -> None:
        """Have it carried out; where the starter is gone, a start has the next one begin."""
        if isinstance(order, Learn | LearnEvaluation):
            self._lessons.append(order)
        elif isinstance(order, Start | Evaluate):
            self._running.add(order.number)
            if not self._is_open:
                self._begin()
        if self._is_open:
            self._say(order)

    def close(self) -> None:
        """End it, and with it all that it has started."""
        if self._is_open:
            self._end()

    @property
    def _is_open(self) -> bool:
        return self._sock.fileno() >= 0

    def _say(self, order: Order) -> None:
        try:
            self._sock.sendall(pack([order]))
        except OSError as error:  # `_read` finds its end
            log.warning("the process that starts workers is gone: %s", error)

    def _begin(self) -> None:
        self._sock, theirs = socket.socketpair()
        paths = os.pathsep.join(path for path in sys.path if path)
        environment = os.environ | {"PYTHONPATH": paths, PATH: os.environ.get("PYTHONPATH", "")}
        with theirs:
            # A session of its own: Ctrl-C in the terminal is for the sweep, which then ends its trials.
            self._process = subprocess.Popen(
                [sys.executable, "-P", "-m", "raysweep.cluster.here.starter", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environment,
                start_new_session=True,
            )
        self._reader: FrameReader[list[Ended]] = FrameReader(ENDED)
        if self._loop is not None:
            self._loop.add_reader(self._sock.fileno(), self._read)
        for lesson in self._lessons:
            self._say(lesson)

    def _end(self) -> None:
        """Close the socket: the starter kills what it has started, and ends."""
        if self._loop is not None:
            self._loop.remove_reader(self._sock.fileno())
        self._sock.close()
        try:
            self._process.wait(END_S)
        except subprocess.TimeoutExpired:  # it was stopped
            self._process.kill()
            self._process.wait()

    def _read(self) -> None:
        try:
            data = self._sock.recv(READ_BYTES)
        except OSError:
            data = b""
        if not data:
            self._lose()
            return
        for batch in self._reader.feed(data):
            for ended in batch:
                self._running.discard(ended.number)
                self._tell(ended)

    def _lose(self) -> None:
        """It is gone, and all that it had started with it."""
        self._end()
        lost, self._running = self._running, set()
        for number in lost:
            self._tell(Ended(number, -signal.SIGKILL))

    def _tell(self, ended: Ended) -> None:
        (self.on_ended if ended.number >= 0 else self.on_evaluated)(ended)
