"""The starter: a process with one thread that forks the workers of one sweep, and says how they end.

Run as `python -m raysweep.cluster.here.starter FD`. It has imported what workers need, so a start costs a
fork. Orders come over the socket FD; where it is closed, the sweep is gone, and workers are killed.
"""

from __future__ import annotations

import ctypes
import gc
import os
import select
import signal
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from raysweep.cluster.here.orders import (
    ORDERS,
    PATH,
    Ended,
    Evaluate,
    Kill,
    Learn,
    LearnEvaluation,
    Order,
    Start,
)
from raysweep.errors import message_of, one_line
from raysweep.worker.actor import TrialWorker
from raysweep.worker.checkpoints import saver  # noqa: F401  a worker need not import it
from raysweep.worker.evaluation import EvaluationJob, EvaluationSetup, evaluate
from raysweep.worker.host.memory import count_kernel_ooms
from raysweep.worker.process import forking  # noqa: F401  nor this
from raysweep.worker.ray_calls.refused import refuse_ray
from raysweep.worker.setup import WorkerSetup, live_as
from raysweep.worker.wire import FrameReader, encode, pack

READ_BYTES: Final = 1 << 18
PROBLEM_CHARS: Final = 500
_PR_SET_PDEATHSIG: Final = 1
_LIBC: Final = ctypes.CDLL(None)
_prctl: Final = getattr(_LIBC, "prctl", None)


@dataclass(slots=True)
class _Child:
    number: int
    said: int
    """A file in memory: what it raised, or what an evaluation gave."""


class Starter:
    """Forks and reaps. `control`: the socket to the sweep's process."""

    def __init__(self, control: socket.socket) -> None:
        self._control = control
        self._setups: dict[str, WorkerSetup] = {}
        self._evaluation: EvaluationSetup | None = None
        self._children: dict[int, _Child] = {}
        self._pids: dict[int, int] = {}
        self._ooms = count_kernel_ooms()
        self._wake, self._waker = os.pipe()
        for end in (self._wake, self._waker):
            os.set_blocking(end, False)

    def serve(self) -> None:
        """Until the sweep's process is gone; then all that is left is killed."""
        signal.signal(signal.SIGCHLD, lambda signum, frame: None)
        signal.set_wakeup_fd(self._waker, warn_on_full_buffer=False)
        reader: FrameReader[list[Order]] = FrameReader(ORDERS)
        control = self._control.fileno()
        try:
            while True:
                readable, _, _ = select.select([control, self._wake], [], [])
                if self._wake in readable:
                    os.read(self._wake, 4096)
                    self._reap()
                if control in readable:
                    data = self._control.recv(READ_BYTES)
                    if not data:
                        return
                    for orders in reader.feed(data):
                        for order in orders:
                            self._take(order)
        except OSError:  # the socket broke: as if it was closed
            return
        finally:
            for pid in self._children:
                _kill(pid)

    def _take(self, order: Order) -> None:
        match order:
            case Learn(key=key, setup=setup):
                self._setups[key] = setup
            case LearnEvaluation(setup=evaluation):
                self._evaluation = evaluation
            case Start():
                setup = self._setups[order.key]
                self._fork(order.number, order.environment, lambda said: _work(order, setup))
            case Evaluate(job=job):
                assert self._evaluation is not None, "its setup came first"
                about = self._evaluation
                self._fork(order.number, order.environment, lambda said: _evaluate(about, job, said))
            case Kill(number=number):
                if number in self._pids:
                    _kill(self._pids[number])

    def _fork(self, number: int, environment: dict[str, str], run: Callable[[int], None]) -> None:
        said = os.memfd_create("raysweep-said")
        parent = os.getpid()
        pid = os.fork()
        if pid == 0:
            self._leave_to(parent)
            _run(run, said, environment)
        self._children[pid] = _Child(number, said)
        self._pids[number] = pid

    def _leave_to(self, parent: int) -> None:
        """In the child: release what is the starter's, and end with it."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        self._control.close()
        os.close(self._wake)
        os.close(self._waker)
        for other in self._children.values():
            os.close(other.said)
        os.setsid()
        if _prctl is not None:
            _prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != parent:
            os._exit(1)

    def _reap(self) -> None:
        while self._children:
            pid, status = os.waitpid(-1, os.WNOHANG)
            if pid == 0:
                return
            child = self._children.pop(pid, None)
            if child is None:
                continue
            del self._pids[child.number]
            self._say(child, os.waitstatus_to_exitcode(status))

    def _say(self, child: _Child, code: int) -> None:
        ooms, self._ooms = self._ooms, count_kernel_ooms()
        os.lseek(child.said, 0, os.SEEK_SET)
        with open(child.said, "rb") as file:
            text = file.read()
        problem, result = (text.decode(errors="replace"), b"") if code == 1 else ("", text)
        is_oom = code == -signal.SIGKILL and self._ooms > ooms
        ended = Ended(child.number, code, is_kernel_oom=is_oom, problem=problem, result=result)
        self._control.sendall(pack([ended]))


def _run(run: Callable[[int], None], said: int, environment: dict[str, str]) -> None:
    """In the child: run it, and exit with 0, or with 1 if it raises."""
    leave, code = os._exit, 1
    try:
        os.environ.update(environment)
        run(said)
        code = 0
    except BaseException as error:  # noqa: BLE001  this process must not return into its parent's code
        problem = one_line(f"{type(error).__name__}: {message_of(error)}", PROBLEM_CHARS)
        os.pwrite(said, problem.encode(errors="replace"), 0)
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        leave(code)


def _work(start: Start, setup: WorkerSetup) -> None:
    live_as(start.name, start.node)
    refuse_ray()
    TrialWorker().run(setup)


def _evaluate(setup: EvaluationSetup, job: EvaluationJob, said: int) -> None:
    refuse_ray()
    with open(said, "wb", closefd=False) as file:
        file.write(encode(evaluate(setup, job)))


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def main() -> None:
    """Serve the sweep's process."""
    control = socket.socket(fileno=int(sys.argv[1]))
    path = os.environ.pop(PATH, "")
    os.environ.pop("PYTHONPATH", None)
    if path:
        os.environ["PYTHONPATH"] = path
    gc.collect()
    gc.freeze()
    Starter(control).serve()


if __name__ == "__main__":
    main()
