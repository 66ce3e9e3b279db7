"""The fork server that stands in for Ray's workers: one for each controller, it ends when that does."""

from __future__ import annotations

import ctypes
import os
import pickle
import random
import select
import signal
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

from raysweep.worker.evaluation import EvaluationJob, EvaluationSetup
from raysweep.worker.setup import WorkerSetup

_LIBC: Final = ctypes.CDLL(None)
_PR_SET_PDEATHSIG: Final = 1
LEAVE: Final = os._exit
"""As it is before the engine replaces it in a worker."""


@dataclass(frozen=True, slots=True)
class Start:
    """Fork the worker of this number, which calls itself `name`."""

    worker: int
    name: str
    node: str
    setup: WorkerSetup
    folder: str


@dataclass(frozen=True, slots=True)
class Evaluate:
    """Fork a process that evaluates; its number is negative. What came of it, `take_evaluated` reads."""

    worker: int
    setup: EvaluationSetup
    job: EvaluationJob


@dataclass(frozen=True, slots=True)
class Kill:
    """Kill the worker of this number, if it lives."""

    worker: int


@dataclass(frozen=True, slots=True)
class Ended:
    """The worker of this number has ended with this exit code, negative for a signal."""

    worker: int
    exit_code: int


def serve(orders: Connection) -> None:
    """Fork workers and say how they end, until the controller is gone; then kill those that are left."""
    workers: dict[int, tuple[int, int]] = {}
    while True:
        readable, _, _ = select.select([orders, *workers], [], [])
        for pidfd in [each for each in readable if each is not orders]:
            pid, number = workers.pop(pidfd)
            os.close(pidfd)
            _, status = os.waitpid(pid, 0)
            with suppress(OSError):
                orders.send(Ended(number, os.waitstatus_to_exitcode(status)))
        if orders not in readable:
            continue
        try:
            order = orders.recv()
        except (EOFError, OSError):
            time.sleep(random.choice([0.0, 0.2]))  # as the raylet, which takes its time
            for pid, _ in workers.values():
                _kill(pid)
            return
        match order:
            case Start():
                pid = _fork(order, orders, workers)
                workers[os.pidfd_open(pid)] = pid, order.worker
            case Evaluate():
                pid = _fork_evaluation(order, orders, workers)
                workers[os.pidfd_open(pid)] = pid, order.worker
            case Kill(worker=worker):
                for pid, number in workers.values():
                    if number == worker:
                        _kill(pid)


def _kill(pid: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)


def _fork(start: Start, orders: Connection, workers: dict[int, tuple[int, int]]) -> int:
    def run() -> None:
        orders.close()
        for pidfd in workers:
            os.close(pidfd)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        print_to(Path(start.folder, f"worker-{start.name[-6:]}.txt"))
        _work(start)

    return fork(run)


def _fork_evaluation(order: Evaluate, orders: Connection, workers: dict[int, tuple[int, int]]) -> int:
    def run() -> None:
        from raysweep.worker.evaluation import evaluate

        orders.close()
        for pidfd in workers:
            os.close(pidfd)
        _LIBC.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        path = _evaluated_path(order.worker)
        path.with_suffix(".new").write_bytes(pickle.dumps(evaluate(order.setup, order.job)))
        path.with_suffix(".new").rename(path)

    return fork(run)


def _evaluated_path(number: int) -> Path:
    """In the folder of the storm, in which the controller and its fork server run."""
    return Path(f"evaluated{number}")


def take_evaluated(number: int) -> Any:
    """What an evaluation that has ended gave; None: nothing, as its process died."""
    path = _evaluated_path(number)
    try:
        return pickle.loads(path.read_bytes())  # noqa: S301  of our own fork
    except FileNotFoundError:
        return None
    finally:
        path.unlink(missing_ok=True)


def fork(run: Callable[[], Any]) -> int:
    """Run a function in a forked process with a session of its own, and exit with 0, or 1 if it raises."""
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        os.setsid()
        code = run() or 0
    except SystemExit as error:
        code = error.code if isinstance(error.code, int) else 1
    except BaseException:  # noqa: BLE001  whatever it is, this process must not return into its parent's code
        traceback.print_exc()
    finally:
        with suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        LEAVE(code)


def print_to(path: Path) -> None:
    """Send what this process prints to a file."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)
    sys.stdout = open(1, "w", closefd=False, buffering=1)  # noqa: SIM115
    sys.stderr = open(2, "w", closefd=False, buffering=1)  # noqa: SIM115


def _work(start: Start) -> None:
    """What Ray does in the process of an actor, and the actor's only call."""
    from raysweep.worker.actor import TrialWorker
    from raysweep.worker.setup import live_as

    signal.signal(signal.SIGINT, signal.default_int_handler)
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    live_as(start.name, start.node)
    TrialWorker().run(start.setup)
