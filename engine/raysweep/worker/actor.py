"""The worker: an actor that keeps the trainable loaded and runs trials on its main thread.

`TrialWorker.run` never returns while the worker lives. It pulls jobs that the link's reader thread puts
into a queue, so user code is on the main thread (signals, torch's data loaders, matplotlib all want that)
and can still be stopped, answered and given more work meanwhile.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections import deque
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, ClassVar

from raysweep import faultplan
from raysweep.worker.mailbox import Mailbox
from raysweep.worker.memory import MemoryWatch, over_limit
from raysweep.worker.outbox import Outbox
from raysweep.worker.runner import (
    Trainable,
    describe,
    install_interrupt,
    load_by_reference,
    run_attempt,
    tell,
)
from raysweep.worker.session import Session, SweepPlace
from raysweep.worker.wire import Job, Message, pack, read_frames

if TYPE_CHECKING:
    from raysweep.worker.forking import Child


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """All that a worker needs to begin: where to connect, what to run, how."""

    host: str
    port: int
    token: str
    trainable: str
    pickled: bytes | None
    isolation: str
    place: SweepPlace
    sys_path: tuple[str, ...] = ()
    hides_gpus: bool = True
    fault_plan: str = ""


class Inbox:
    """The queue of jobs, and the present trial; what the reader thread and the main thread share."""

    def __init__(self, outbox: Outbox) -> None:
        self.outbox = outbox
        self.session: Session | None = None
        self.child: Child | None = None
        self.mailbox = Mailbox()
        self._jobs: deque[Job] = deque()
        self._changed = threading.Condition()
        self.is_closed = False

    def next_job(self) -> Job | None:
        """The next job; blocks. None: the worker is to end."""
        with self._changed:
            while not self._jobs and not self.is_closed:
                self._changed.wait()
            if self.is_closed:
                return None
            job = self._jobs.popleft()
            self.mailbox.expect(job)
            return job

    def take(self, message: Message) -> None:
        """Act on one message from the controller (on the reader's thread)."""
        match message:
            case ["run", job]:
                with self._changed:
                    self._jobs.append(Job(**job))
                    self._changed.notify_all()
            case ["recall", trials]:
                self._recall(set(trials))
            case ["exit"]:
                self.close()
            case _:
                self.mailbox.take(message)

    def close(self) -> None:
        """End the worker once the present trial has ended."""
        with self._changed:
            self.is_closed = True
            self._changed.notify_all()

    def _recall(self, trials: set[int]) -> None:
        with self._changed:
            taken = [job.trial for job in self._jobs if job.trial in trials]
            self._jobs = deque(job for job in self._jobs if job.trial not in trials)
        self.outbox.post(["recalled", taken])

    def set_session(self, session: Session | None) -> None:
        """The session of the attempt that runs in this process; None: it has ended."""
        self.session = session
        if session is not None:
            self.mailbox.open(partial(tell, session))
        else:
            self.mailbox.close()

    def set_child(self, child: Child | None) -> None:
        """The process of the attempt, where it has one of its own; None: it has ended."""
        self.child = child
        if child is not None:
            self.mailbox.open(child.take)
        else:
            self.mailbox.close()


class TrialWorker:
    """The actor class; one instance a slot."""

    setup: ClassVar[WorkerSetup | None] = None

    def run(self, setup: WorkerSetup | None = None) -> str:
        """Serve the controller until it says `exit` or its connection is gone."""
        setup = setup or self.setup
        assert setup is not None, "neither the class nor the call brought a setup"
        # A Ray that was started under a plan may outlive it: what counts is the sweep's, which may be none.
        os.environ[faultplan.VARIABLE] = setup.fault_plan
        faultplan.reach_in_trial("load")
        if setup.hides_gpus:
            os.environ["CUDA_VISIBLE_DEVICES"] = ""
        sys.path.extend(path for path in setup.sys_path if path not in sys.path)
        sock = socket.create_connection((setup.host, setup.port), timeout=30)
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.sendall(pack([["hello", setup.token, actor_id()]]))
        inbox = Inbox(Outbox(sock))
        reader = threading.Thread(target=_read, args=(sock, inbox), name="raysweep-link", daemon=True)
        reader.start()
        try:
            self._serve(setup, inbox)
        finally:
            inbox.outbox.close()
            sock.close()
        return "exited"

    def _serve(self, setup: WorkerSetup, inbox: Inbox) -> None:
        if setup.isolation == "process":
            from raysweep.worker.forking import serve_forked

            serve_forked(setup, inbox)
            return
        trainable = _load(setup, inbox.outbox)
        if trainable is None:
            return
        install_interrupt()
        watch_memory(inbox)
        inbox.outbox.post(["ready", node_id(), os.getpid()])

        def on_session(session: Session | None) -> None:
            inbox.set_session(session)
            if inbox.is_closed:
                os._exit(0)

        while (job := inbox.next_job()) is not None:
            run_attempt(trainable, job, setup.place, inbox.outbox, on_session)


def watch_memory(inbox: Inbox) -> None:
    """Say how much memory the present trial holds, and end it above its limit."""

    def find() -> tuple[int, int | None] | None:
        child, session = inbox.child, inbox.session
        if child is not None:
            return child.pid, child.job.memory_limit_bytes
        return (os.getpid(), session.job.memory_limit_bytes) if session is not None else None

    def end(held: int, limit_bytes: int) -> None:
        child, session = inbox.child, inbox.session
        if child is not None:
            child.end_over_limit(over_limit(held, limit_bytes))
        elif session is not None:
            job = session.job
            inbox.outbox.post(["failed", job.trial, job.attempt, over_limit(held, limit_bytes)])
            inbox.outbox.close(timeout_s=2.0)
            os._exit(1)

    MemoryWatch(find, lambda held: inbox.outbox.post(["memory", held]), end)


def _load(setup: WorkerSetup, outbox: Outbox) -> Trainable | None:
    try:
        return load_trainable(setup)
    except Exception as error:  # noqa: BLE001  the user's module may raise anything while it is imported
        outbox.post(["unready", describe(error, origin="start", is_fatal=True), node_id()])
        return None


def load_trainable(setup: WorkerSetup) -> Trainable:
    """The trainable, by its import path or from its pickled form (which came through Ray, not the link)."""
    if setup.pickled is not None:
        import cloudpickle

        pickled: Trainable = cloudpickle.loads(setup.pickled)
        return pickled
    return load_by_reference(setup.trainable)


def actor_id() -> str:
    """Ray's id of this actor: what the worker is called on the link."""
    import ray

    return str(ray.get_runtime_context().get_actor_id())


def node_id() -> str:
    """Ray's id of this node; empty where this process is not connected to Ray."""
    ray = sys.modules.get("ray")
    if ray is None or not ray.is_initialized():
        return ""
    return str(ray.get_runtime_context().get_node_id())


def _read(sock: socket.socket, inbox: Inbox) -> None:
    for messages in read_frames(sock):
        for message in messages:
            inbox.take(message)
    # The controller closed the link or is gone: nobody could learn of what the present trial does, so it
    # must not go on.
    inbox.close()
    if inbox.child is not None:
        inbox.child.kill()
    if inbox.session is not None:
        os._exit(0)
