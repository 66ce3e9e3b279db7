"""`isolation="process"`: each trial in a process of its own, forked in milliseconds from a warm,
single-threaded fork server.

The worker starts the fork server, which loads the trainable and waits. For each job it forks a child whose
end of a socket pair speaks the worker's side of the link; the worker passes frames on both ways and says
how the child ended if the child cannot. A child can be killed at any moment without the worker, its
placement group or its GPU going away.
"""

from __future__ import annotations

import logging
import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from typing import Final

from raysweep import messages as msg
from raysweep.messages import End, FailureFacts, Job, Kill, Order, Unready
from raysweep.worker.host.gpu_memory import GpuMemory
from raysweep.worker.host.memory import count_kernel_ooms
from raysweep.worker.output.log_store_start import Keeping
from raysweep.worker.process.fork_server import (
    ANSWER,
    MAX_ANSWER_BYTES,
    Answer,
    Ended,
    Forked,
    Setup,
    Unforkable,
    Unloadable,
)
from raysweep.worker.setup import WorkerSetup, is_without_ray, node_id, say_ready
from raysweep.worker.shell import WorkerShell
from raysweep.worker.wire import FROM_WORKER, encode, pack, read_frames

log = logging.getLogger("raysweep")
LATE: Final = (
    "the trainable's module uses the GPU when it is imported, so each trial imports it in a fresh process;"
    " move what uses the GPU into the function, and trials begin at once"
)


def serve_forked(
    setup: WorkerSetup,
    shell: WorkerShell,
    keeping: Keeping | None = None,
    memory: GpuMemory | None = None,
) -> None:
    """Run each job in a forked child; returns when the worker is to end. `memory`: of its GPUs."""
    spool = str(keeping.folder) if keeping is not None else ""
    zygote, text = Zygote(setup, spool), ""
    try:
        answer = zygote.await_ready()
        if isinstance(answer, Unforkable):
            zygote.close()
            if memory is not None:
                memory.await_idle()
            zygote, text = Zygote(setup, spool, answer), LATE
            answer = zygote.await_ready()
        if isinstance(answer, FailureFacts):
            shell.link.send(Unready(failure=answer, node=node_id()))
            return
        say_ready(shell, setup)
        while (job := shell.next_job()) is not None:
            if text:
                shell.link.send(msg.TrialNoted(*job.who, text=text, is_shared=True))
                text = ""
            if memory is not None:
                memory.await_last()
                memory.tell(job, shell.link)
            pid = _run_child(zygote, job, shell)
            if memory is not None:
                memory.ended(pid)
    finally:
        zygote.close()


def _run_child(zygote: Zygote, job: Job, shell: WorkerShell) -> int:
    """Run a job in a child; the pid that it had."""
    ours, theirs = socket.socketpair()
    ooms = count_kernel_ooms()
    pid = zygote.fork(theirs)
    theirs.close()
    child = Child(pid, ours)
    child.send(job)
    shell.reach(child)
    try:
        end = pass_on(ours, shell)
    except ValueError as error:
        child.abandon()
        end = _explain_garbage(job, error)
    status = zygote.wait(pid)
    if end is not None:
        shell.end(end)
    else:
        is_kernel_oom = count_kernel_ooms() > ooms
        shell.die(os.waitstatus_to_exitcode(status), is_kernel_oom=is_kernel_oom)
    ours.close()
    return pid


def pass_on(child: socket.socket, shell: WorkerShell) -> End | None:
    """Queue what the child says until it has ended; its last message, if that says how it ended.

    The child is not read while too much is unsent: so its `report` blocks as it would on the link itself.

    Raises:
        ValueError: It says what cannot be read.
    """
    end: End | None = None
    for messages in read_frames(child, FROM_WORKER):
        for message in messages:
            if isinstance(message, msg.TrialReturned | msg.TrialStopped | msg.TrialFailed):
                end = message
            elif isinstance(message, msg.TrialStarted):
                shell.begin()
            else:
                shell.link.send(message, waits=True)
    return end


def _explain_garbage(job: Job, error: ValueError) -> msg.TrialFailed:
    log.error("killed the trial's process, which sent an unreadable message: %s", error)
    text = f"the trial's process sent an unreadable message: {error}"
    failure = FailureFacts(origin="process", type="LinkBroken", message=text)
    return msg.TrialFailed(*job.who, failure=failure)


class Child:
    """A running child, as orders reach it."""

    def __init__(self, pid: int, sock: socket.socket) -> None:
        self.pid = pid
        self._sock = sock

    def send(self, message: Job | Order) -> None:
        """Say something to it. One that has ended does not hear it; its end is about to be said."""
        with suppress(OSError):
            self._sock.sendall(pack([message]))

    def tell(self, order: Order) -> None:
        """See `shell.Attempt`."""
        if isinstance(order, Kill):
            self.abandon()
        else:
            self.send(order)

    def abandon(self) -> None:
        """See `shell.Attempt`."""
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


def _fetch(setup: WorkerSetup) -> bytes:
    """The objects given to `tune.with_parameters`, pickled: the children are not connected to Ray.

    Once a worker; its children share the pages.
    """
    if not setup.parameters:
        return b""
    import cloudpickle

    from raysweep.raycompat.parameters import fetch

    pickled: bytes = cloudpickle.dumps(fetch(setup.parameters))
    return pickled


class Zygote:
    """The worker's handle on its fork server.

    `spool`: where the children's output goes, if anywhere. `unforkable`: the answer of a fork server before
    this one, whose trainable each child has to import.
    """

    def __init__(self, setup: WorkerSetup, spool: str = "", unforkable: Unforkable | None = None) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A fresh interpreter, with no thread and no Ray in it: only such a process can be forked safely.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "raysweep.worker.process.fork_server", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,
            env=environment,
        )
        theirs.close()
        self._sock = ours
        values = _fetch(setup)
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            header = Setup(
                trainable=setup.trainable,
                has_pickle=setup.pickled is not None,
                parameters_bytes=len(values),
                place=setup.place,
                parent=os.getpid(),
                spool=spool,
                process_group=setup.process_group,
                loads_late=unforkable is not None,
                preloads=unforkable.preloads if unforkable is not None else (),
                refuses_ray=is_without_ray(),
            )
            pipe.write(encode(header) + b"\n")
            pipe.write(values)
            pipe.write(setup.pickled or b"")

    def await_ready(self) -> FailureFacts | Unforkable | None:
        """Wait until the trainable is loaded; the failure if it cannot be, or that it cannot be forked."""
        answer = self._receive()
        if answer is None:
            message = f"the fork server ended with exit code {self._process.wait()}"
            return FailureFacts(origin="start", type="ProcessDied", message=message)
        if isinstance(answer, Unforkable):
            return answer
        return answer.failure if isinstance(answer, Unloadable) else None

    def fork(self, sock: socket.socket) -> int:
        """Fork a child whose end of the link is `sock`; its job comes there. Returns its pid."""
        socket.send_fds(self._sock, [b"fork"], [sock.fileno()])
        answer = self._receive()
        if not isinstance(answer, Forked):
            raise RuntimeError("the fork server died")
        return answer.pid

    def wait(self, pid: int) -> int:
        """The wait status of a child."""
        while (answer := self._receive()) is not None:
            if isinstance(answer, Ended) and answer.pid == pid:
                return answer.status
        return signal.SIGKILL

    def close(self) -> None:
        """End the fork server."""
        self._sock.close()
        self._process.terminate()
        self._process.wait()

    def _receive(self) -> Answer | None:
        data = self._sock.recv(MAX_ANSWER_BYTES)
        return ANSWER.decode(data) if data else None
