"""The worker: an actor that keeps the trainable loaded and runs trials on its main thread.

`TrialWorker.run` never returns while the worker lives. It pulls jobs from the `WorkerShell` that the link's
reader thread feeds, so user code is on the main thread (signals, torch's data loaders, matplotlib all want
that) and can still be stopped, answered and given more work meanwhile.
"""

from __future__ import annotations

import os
import socket
import sys
from dataclasses import dataclass
from typing import ClassVar

from raysweep import faultplan
from raysweep.messages import Hello, Memory, Ready, Unready
from raysweep.worker.link import Link, SocketLink
from raysweep.worker.memory import MemoryWatch, over_limit
from raysweep.worker.runner import Trainable, describe, install_interrupt, load_by_reference, run_attempt
from raysweep.worker.session import SweepPlace
from raysweep.worker.shell import WorkerShell


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
        link = SocketLink(sock, Hello(token=setup.token, worker=actor_id()))
        shell = WorkerShell(link, is_forked=setup.isolation == "process")
        link.listen(shell.take, shell.lose_link)
        try:
            self._serve(setup, shell)
        finally:
            link.close()
            sock.close()
        return "exited"

    def _serve(self, setup: WorkerSetup, shell: WorkerShell) -> None:
        if setup.isolation == "process":
            from raysweep.worker.forking import serve_forked

            serve_forked(setup, shell)
            return
        trainable = _load(setup, shell.link)
        if trainable is None:
            return
        install_interrupt()
        say_ready(shell)
        while (job := shell.next_job()) is not None:
            run_attempt(trainable, job, setup.place, shell)


def say_ready(shell: WorkerShell) -> None:
    """The trainable is loaded. From now on each trial's memory is watched, and ends it above its limit."""
    link = shell.link
    MemoryWatch(
        shell.find_process,
        lambda held: link.send(Memory(held_bytes=held)),
        lambda held, limit_bytes: shell.exceed(over_limit(held, limit_bytes)),
    )
    link.send(Ready(node=node_id(), pid=os.getpid()))


def _load(setup: WorkerSetup, link: Link) -> Trainable | None:
    try:
        return load_trainable(setup)
    except Exception as error:  # noqa: BLE001  the user's module may raise anything while it is imported
        link.send(Unready(failure=describe(error, origin="start", is_fatal=True), node=node_id()))
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
