"""One Ray connection for all sweeps, trainings and pipelines of this process, on any threads.

Ray connects a process to one cluster. The first user starts or joins it, later users share it, the last
one ends it. Starts and ends happen one at a time.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from concurrent.futures import Future
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from threading import Event, Lock, Thread, current_thread, main_thread

from raysweep.cluster.interrupts import signals_wait
from raysweep.cluster.ray.embedded_watch import FIX, EmbeddedWatch, OnLost
from raysweep.errors import ClusterLostError, ClusterUnreachableError

log = logging.getLogger("raysweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class RayConnection:
    """A live connection of this process to Ray; `is_ours`: raysweep made it, and ends it.

    `host` is where this process can be reached from the cluster's nodes. `watch`: that of an embedded one.
    """

    address: str
    host: str
    is_embedded: bool
    is_ours: bool
    watch: EmbeddedWatch | None = None

    def find_loss(self) -> ClusterLostError | None:
        """The loss of an embedded Ray that has died; None: it has not."""
        return None if self.watch is None else self.watch.find_loss()

    def telling(self, listener: OnLost) -> AbstractContextManager[None]:
        """In here `listener` is called, on any thread, when an embedded Ray dies."""
        return nullcontext() if self.watch is None else self.watch.telling(listener)


@dataclass(frozen=True, slots=True, kw_only=True)
class FoundRay:
    """The cluster that this process is connected to, through whatever call."""

    gcs_address: str
    host: str
    cpus: float


Start = Callable[[str | None, float | None], AbstractContextManager[RayConnection]]


@contextmanager
def _lasting(started: AbstractContextManager[RayConnection]) -> Iterator[RayConnection]:
    """Start Ray on a thread that lives until Ray is ended.

    Ray has the kernel kill its processes when the thread that started them ends (PR_SET_PDEATHSIG).
    """
    if current_thread() is main_thread():
        with started as connection:
            yield connection
        return
    made: Future[RayConnection] = Future()
    over = Event()

    def hold() -> None:
        try:
            with started as connection:
                made.set_result(connection)
                over.wait()
        except BaseException as error:
            if made.done():
                raise
            made.set_exception(error)

    thread = Thread(target=hold, name="raysweep-ray", daemon=True)
    thread.start()
    try:
        yield made.result()
    finally:
        over.set()
        thread.join()


class SharedRay:
    """The connection, and how many use it. Thread-safe.

    `start` connects. `find` returns the connection that this process has by now, or None.
    """

    def __init__(self, start: Start, find: Callable[[], FoundRay | None]) -> None:
        self._start = start
        self._find = find
        self._lock = Lock()
        self._ending = ExitStack()
        self._connection: RayConnection | None = None
        self._users = 0
        self._scopes = 0

    @property
    def has_one_user(self) -> bool:
        """True if nothing else of this process uses it."""
        return self._users <= 1

    def find_loss(self) -> ClusterLostError | None:
        """The reason why its embedded Ray died; None: it lives, or there is none."""
        connection = self._connection
        return None if connection is None else connection.find_loss()

    @contextmanager
    def used(self, address: str | None, num_cpus: float | None) -> Iterator[RayConnection]:
        """The connection, made if need be, and ended if nothing uses it afterwards.

        Raises:
            ClusterUnreachableError: It cannot be made; or others use one to another cluster.
            ClusterLostError: It has died, and others of this process have not left it yet.
        """
        connection: RayConnection | None = None
        try:
            with signals_wait():
                connection = self._take(address, num_cpus)
            yield connection
        finally:
            if connection is not None and connection.is_ours:
                self._leave(users=1)

    @contextmanager
    def kept(self) -> Iterator[None]:
        """A connection that is made in here stays until the end of the context: for several steps."""
        with self._lock:
            self._scopes += 1
        try:
            yield
        finally:
            self._leave(scopes=1)

    def _take(self, address: str | None, num_cpus: float | None) -> RayConnection:
        with self._lock:
            if self._connection is not None and self._connection.find_loss() is not None:
                # Whatever is asked of it now may end this process.
                if self._users:
                    raise ClusterLostError("", "the Ray of this process died", FIX)
                self._end()
            found = self._find()
            if found is not None and self._connection is None:
                host = found.host
                return RayConnection(address=address or "", host=host, is_embedded=False, is_ours=False)
            if found is not None and not self._users and not self._fits(address, found):
                self._end()
            if found is None or self._connection is None:
                self._connection = self._ending.enter_context(_lasting(self._start(address, num_cpus)))
            else:
                self._check(address, num_cpus, found)
            self._users += 1
            return self._connection

    def _leave(self, users: int = 0, scopes: int = 0) -> None:
        with signals_wait(), self._lock:
            self._users -= users
            self._scopes -= scopes
            if not self._users and not self._scopes:
                self._end()

    def _end(self) -> None:
        self._connection = None
        self._ending.close()

    def _fits(self, address: str | None, found: FoundRay) -> bool:
        assert self._connection is not None
        if address in (None, found.gcs_address, self._connection.address):
            return True
        return address == "auto" and not self._connection.is_embedded

    def _check(self, address: str | None, num_cpus: float | None, found: FoundRay) -> None:
        assert self._connection is not None
        if not self._fits(address, found):
            there = (
                "its embedded Ray" if self._connection.is_embedded else f"Ray at {self._connection.address}"
            )
            problem = (
                f"another sweep or training of this process still uses {there}, and a process has one Ray"
            )
            raise ClusterUnreachableError(
                address or "", problem, "run this one afterwards, or in another process"
            )
        if num_cpus and self._connection.is_embedded and found.cpus != int(num_cpus):
            text = "num_cpus: %g is ignored: the Ray of this process runs already, with %g CPUs"
            log.warning(text, num_cpus, found.cpus)
