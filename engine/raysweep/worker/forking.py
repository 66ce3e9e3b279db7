"""`isolation="process"`: each trial in a process of its own, forked in milliseconds from a warm,
single-threaded zygote.

The worker starts the zygote, which loads the trainable and waits. For each job it forks a child whose end
of a socket pair speaks the worker's side of the link; the worker passes frames on both ways and says how
the child ended if the child cannot. A child can be killed at any moment without the worker, its placement
group or its GPU going away.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any, Final

import orjson

from raysweep.worker.memory import count_kernel_ooms
from raysweep.worker.outbox import Outbox
from raysweep.worker.wire import Failed, Job, Message, pack, read_frames

if TYPE_CHECKING:
    from raysweep.worker.actor import Inbox, WorkerSetup

ENDS: Final = frozenset({"returned", "stopped", "failed"})


def serve_forked(setup: WorkerSetup, inbox: Inbox) -> None:
    """Run each job of the inbox in a forked child; returns when the worker is to end."""
    from raysweep.worker.actor import node_id, watch_memory

    zygote = Zygote(setup)
    try:
        problem = zygote.await_ready()
        if problem is not None:
            inbox.outbox.post(["unready", problem, node_id()])
            return
        watch_memory(inbox)
        inbox.outbox.post(["ready", node_id(), os.getpid()])
        while (job := inbox.next_job()) is not None:
            _run_child(zygote, job, inbox)
    finally:
        zygote.close()


def _run_child(zygote: Zygote, job: Job, inbox: Inbox) -> None:
    ours, theirs = socket.socketpair()
    ooms = count_kernel_ooms()
    pid = zygote.fork(theirs)
    theirs.close()
    ours.sendall(pack([["run", asdict(job)]]))
    state = Child(job, pid, ours)
    inbox.set_child(state)
    if inbox.is_closed:
        state.kill()
    end = pass_on(ours, inbox.outbox)
    status = zygote.wait(pid)
    inbox.set_child(None)
    ours.close()
    inbox.outbox.post(end or _describe_death(job, status, state, count_kernel_ooms() > ooms))


def pass_on(child: socket.socket, outbox: Outbox) -> Message | None:
    """Queue what the child says until it has ended; its last message, if that says how it ended.

    The child is not read while too much is unsent: so its `report` blocks as it would on the link itself.
    """
    end: Message | None = None
    for messages in read_frames(child):
        if messages[-1][0] in ENDS:
            end = messages.pop()
        for message in messages:
            queue = outbox.post_now if message[0] == "began" else outbox.pass_on
            queue(message)
    return end


def _describe_death(job: Job, status: int, child: Child, is_kernel_oom: bool) -> Message:
    if child.over_limit is not None:
        return ["failed", job.trial, job.attempt, child.over_limit]
    if child.was_killed:
        return ["stopped", job.trial, job.attempt, True, ""]
    code = os.waitstatus_to_exitcode(status)
    if code == -signal.SIGKILL and is_kernel_oom:
        message = "the kernel ended the trial's process: the container is out of memory"
        failed = Failed(origin="memory", type="KernelOutOfMemory", message=message, exit_code=code)
        return ["failed", job.trial, job.attempt, asdict(failed)]
    how = f"signal {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
    failed = Failed(
        origin="process",
        type="ProcessDied",
        message=f"the trial's process ended with {how}",
        exit_code=code,
    )
    return ["failed", job.trial, job.attempt, asdict(failed)]


class Child:
    """What may be done to a running child from the reader's thread."""

    def __init__(self, job: Job, pid: int, sock: socket.socket) -> None:
        self.job = job
        self.pid = pid
        self.was_killed = False
        self.over_limit: dict[str, object] | None = None
        self._sock = sock

    def take(self, message: Message) -> None:
        """Act on a message about its attempt."""
        if message[0] == "kill":
            self.kill()
            return
        try:
            self._sock.sendall(pack([message]))
        except OSError:
            return  # the child has ended; how, the main thread is about to say

    def end_over_limit(self, failure: dict[str, object]) -> None:
        """Kill the child for the memory that it holds."""
        self.over_limit = failure
        self.kill()

    def kill(self) -> None:
        self.was_killed = True
        with suppress(ProcessLookupError):
            os.kill(self.pid, signal.SIGKILL)


class Zygote:
    """The worker's handle on its zygote process."""

    def __init__(self, setup: WorkerSetup) -> None:
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        # A fresh interpreter, with no thread and no Ray in it: only such a process can be forked safely.
        environment = os.environ | {"PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}
        self._process = subprocess.Popen(
            [sys.executable, "-m", "raysweep.worker.zygote", str(theirs.fileno())],
            pass_fds=[theirs.fileno()],
            stdin=subprocess.PIPE,
            env=environment,
        )
        theirs.close()
        self._sock = ours
        assert self._process.stdin is not None
        with self._process.stdin as pipe:
            header = orjson.dumps(
                {
                    "trainable": setup.trainable,
                    "has_pickle": setup.pickled is not None,
                    "place": asdict(setup.place),
                    "parent": os.getpid(),
                }
            )
            pipe.write(header + b"\n" + (setup.pickled or b""))

    def await_ready(self) -> dict[str, Any] | None:
        """Wait until the trainable is loaded; the failure if it cannot be."""
        answer = self._receive()
        if answer is None:
            code = self._process.wait()
            failed = Failed(
                origin="start", type="ProcessDied", message=f"the fork server ended with exit code {code}"
            )
            return asdict(failed)
        problem: dict[str, Any] | None = answer.get("failed")
        return problem

    def fork(self, sock: socket.socket) -> int:
        """Fork a child whose end of the link is `sock`; its first frame there is its job. Returns its pid."""
        socket.send_fds(self._sock, [b"fork"], [sock.fileno()])
        answer = self._receive()
        if answer is None:
            raise RuntimeError("the fork server died")
        return int(answer["pid"])

    def wait(self, pid: int) -> int:
        """The wait status of a child."""
        while (answer := self._receive()) is not None:
            if answer.get("ended") == pid:
                return int(answer["status"])
        return signal.SIGKILL

    def close(self) -> None:
        """End the zygote."""
        self._sock.close()
        self._process.terminate()
        self._process.wait()

    def _receive(self) -> dict[str, Any] | None:
        data = self._sock.recv(1 << 16)
        answer: dict[str, Any] | None = orjson.loads(data) if data else None
        return answer
