"""`isolation="inline"`: trials run in the process that runs the sweep, on the thread that called for it.

So a debugger, a breakpoint and what is printed are where they would be without a sweep. The controller runs
on a thread beside it and talks to this worker as to any other, on a socket. What differs: nothing here may
end the process. A trial that is to be killed is interrupted, and its messages are dropped.
"""

from __future__ import annotations

import os
import queue
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any, Final

from raysweep.documents.code.trainable import load_trainable
from raysweep.messages import Hello, Interrupt, Order, Ready, Unready
from raysweep.worker.checking import check_resources, check_trainable
from raysweep.worker.link import SocketLink
from raysweep.worker.process.leftovers import Leftovers
from raysweep.worker.runner import INTERRUPT, Trainable, describe, install_interrupt, run_attempt
from raysweep.worker.session import Session
from raysweep.worker.setup import WorkerSetup, as_function, close_trainable, node_id
from raysweep.worker.shell import WorkerShell
from raysweep.worker.wire import dial

SETUP: Final[ContextVar[WorkerSetup | None]] = ContextVar("raysweep_inline_setup", default=None)
"""That of the worker whose trial this thread runs."""
INLINE_PREFIX: Final = "inline-"
"""The beginning of the name of such a worker."""
_BREAKPOINT: Final = "PYTHONBREAKPOINT"


@dataclass(frozen=True, slots=True)
class _Start:
    name: str
    setup: WorkerSetup
    on_end: Callable[[], None]


class InlineStage:
    """The thread on which trials run, one worker after the other. `trainable`: that of the spec, as it is."""

    def __init__(self, trainable: str | Callable[..., Any]) -> None:
        self._trainable = trainable
        self._starts: queue.SimpleQueue[_Start | None] = queue.SimpleQueue()
        self._socks: dict[str, socket.socket] = {}
        self._dropped: set[str] = set()
        self._lock = threading.Lock()

    def serve(self, sweep: Future[Any]) -> None:
        """On the thread of the trials: run workers until the sweep, on its own thread, has ended."""
        sweep.add_done_callback(lambda done: self._starts.put(None))
        with _interruptible():
            while (start := self._starts.get()) is not None:
                try:
                    self._run(start)
                finally:
                    start.on_end()

    def start(self, name: str, setup: WorkerSetup, on_end: Callable[[], None]) -> None:
        """From any thread: have another worker begin when the one before has ended. `on_end`: it has."""
        self._starts.put(_Start(name, setup, on_end))

    def drop(self, name: str) -> None:
        """From any thread: the worker is to end. What it runs is interrupted, and not heard any more."""
        with self._lock:
            self._dropped.add(name)
            sock = self._socks.pop(name, None)
            if sock is not None:
                with suppress(OSError):
                    sock.shutdown(socket.SHUT_RDWR)

    def _run(self, start: _Start) -> None:
        setup = start.setup
        with self._connected(start) as sock:
            if sock is None:
                return
            link = SocketLink(sock, Hello(token=setup.token, worker=start.name))
            shell = WorkerShell(link)
            link.listen(shell.take, shell.lose_link)
            token = SETUP.set(setup)
            try:
                self._serve_trials(setup, shell)
            finally:
                SETUP.reset(token)
                link.close()

    @contextmanager
    def _connected(self, start: _Start) -> Iterator[socket.socket | None]:
        """A socket to the controller; None where the worker was dropped, or the controller is gone."""
        try:
            sock = dial(start.setup.host, start.setup.port)
        except OSError:
            yield None
            return
        with sock:
            with self._lock:
                is_dropped = start.name in self._dropped
                if not is_dropped:
                    self._socks[start.name] = sock
            try:
                yield None if is_dropped else sock
            finally:
                with self._lock:
                    self._socks.pop(start.name, None)

    def _serve_trials(self, setup: WorkerSetup, shell: WorkerShell) -> None:
        try:
            trainable = self._load(setup)
        except Exception as error:  # noqa: BLE001  the user's module may raise anything while it is imported
            failure = describe(error, origin="start", is_fatal=True)
            shell.link.send(Unready(failure=failure, node=node_id()))
            return
        shell.link.send(Ready(node=node_id(), pid=os.getpid()))
        try:
            with _own_breakpoints():
                leftovers = Leftovers(can_replace=False)
                while (job := shell.next_job()) is not None:
                    attempt = (trainable, job, setup.place, shell)
                    run_attempt(*attempt, attempt_of=InlineAttempt, leftovers=leftovers)
        finally:
            close_trainable(trainable)

    def _load(self, setup: WorkerSetup) -> Trainable:
        loaded = load_trainable(self._trainable)
        check_trainable(loaded)
        check_resources(loaded, setup.place)
        return as_function(loaded, setup.place)


class InlineAttempt:
    """An attempt on a thread of a process that is not its own."""

    def __init__(self, session: Session) -> None:
        self.pid = os.getpid()
        self._session = session

    def tell(self, order: Order) -> None:
        """See `shell.Attempt`."""
        self._session.tell(order)
        if isinstance(order, Interrupt):
            _interrupt()

    def abandon(self) -> None:
        """See `shell.Attempt`: the process is the user's, so the attempt ends at its next report at last."""
        self._session.stop("interrupt")
        self._session.interrupt()
        _interrupt()


_interrupted_by: Final[list[int]] = []
"""The thread that an interruption can be raised on: the main one, while trials run there."""


def _interrupt() -> None:
    if _interrupted_by:
        signal.pthread_kill(_interrupted_by[-1], INTERRUPT)


@contextmanager
def _own_breakpoints() -> Iterator[None]:
    """`breakpoint()` stops here: Ray has it wait for a debugger that attaches, in drivers as well."""
    of_ray = os.environ.get(_BREAKPOINT, "")
    if not of_ray.startswith("ray."):
        yield
        return
    del os.environ[_BREAKPOINT]
    try:
        yield
    finally:
        os.environ.setdefault(_BREAKPOINT, of_ray)


@contextmanager
def _interruptible() -> Iterator[None]:
    """On the main thread, trials can be interrupted in here; then the signal's handler is as it was."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.getsignal(INTERRUPT)
    install_interrupt()
    _interrupted_by.append(threading.get_ident())
    try:
        yield
    finally:
        _interrupted_by.pop()
        signal.signal(INTERRUPT, before if before is not None else signal.SIG_DFL)
