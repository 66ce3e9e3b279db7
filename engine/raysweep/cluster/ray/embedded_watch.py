"""Sees when a process of an embedded Ray dies without which no run can continue.

Ray's C++ core then ends this process with `_exit(1)` and without a word: some seconds after its raylet died,
a minute after its control store did. Who waits on Ray is told before.
"""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Event, Lock, Thread
from typing import Final

from raysweep.errors import ClusterLostError

LOOK_S: Final = 0.25
LAST_WORDS_S: Final = 30.0
"""The time after a loss in which the process may still be busy with Ray, which may end it at any moment."""
FIX: Final = "run it again with the same key: it starts Ray anew, and resumes"
_OF: Final = {"raylet": "its raylet", "gcs_server": "its control store (gcs_server)"}
OnLost = Callable[[ClusterLostError], None]


class EmbeddedWatch:
    """Looks after the processes of one embedded Ray, by name: `raylet` and `gcs_server`."""

    def __init__(self, processes: Mapping[str, subprocess.Popen[bytes]], look_s: float = LOOK_S) -> None:
        self._processes = processes
        self._look_s = look_s
        self._lock = Lock()
        self._over = Event()
        self._listeners: list[OnLost] = []
        self._lost: ClusterLostError | None = None

    def find_loss(self) -> ClusterLostError | None:
        """The loss of one that has died, as of now; None: all live."""
        for name, process in self._processes.items():
            code = process.poll()
            if code is not None:
                return ClusterLostError("", f"{_OF.get(name, name)} {_died(code)}", FIX)
        return None

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Look until the end of the context, in which the processes are expected to live."""
        thread = Thread(target=self._look, name="raysweep-ray-watch", daemon=True)
        thread.start()
        try:
            yield
        finally:
            self._over.set()
            thread.join()

    @contextmanager
    def telling(self, listener: OnLost) -> Iterator[None]:
        """In here `listener` is called, once and on any thread, when one of them dies, or if one is dead."""
        with self._lock:
            self._listeners.append(listener)
            lost = self._lost
        if lost is not None:
            listener(lost)
        try:
            yield
        finally:
            with self._lock:
                self._listeners.remove(listener)

    def _look(self) -> None:
        while not self._over.wait(self._look_s):
            lost = self.find_loss()
            if lost is not None:
                self._tell(lost)
                return

    def _tell(self, lost: ClusterLostError) -> None:
        with self._lock:
            self._lost = lost
            listeners = tuple(self._listeners)
        for listener in listeners:
            listener(lost)
        if not self._over.wait(LAST_WORDS_S):
            # No caller has returned from Ray to say it.
            sys.stderr.write(f"error: {lost}\n")
            sys.stderr.flush()


def _died(code: int) -> str:
    if code >= 0:
        return f"ended with exit code {code}"
    try:
        name = signal.Signals(-code).name
    except ValueError:
        name = f"signal {-code}"
    # Nothing else on a machine sends this one unasked.
    why = ", as the kernel does where memory runs out" if -code == signal.SIGKILL else ""
    return f"was ended by {name}{why}"
