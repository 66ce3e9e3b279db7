"""What a worker begins with, and what it says once it is ready: the same for warm and forking ones."""

from __future__ import annotations

import os
import sys
from dataclasses import dataclass

from raysweep.messages import Memory, Ready
from raysweep.worker.checking import check_trainable
from raysweep.worker.gang import own_host, preload
from raysweep.worker.memory import MemoryWatch, over_limit
from raysweep.worker.place import SweepPlace
from raysweep.worker.runner import Trainable, load_by_reference
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
    allowed: str = ""
    """The controller's list of what may be named (`raysweep.allowed`); empty: the node's own, if any."""
    log_bytes: int = 0
    """How much is kept of each attempt's output; 0: nothing."""
    process_group: str = ""
    """What connects the members of a gang: `gloo`, `nccl`, or nothing."""


def say_ready(shell: WorkerShell, setup: WorkerSetup) -> None:
    """The trainable is loaded. From now on each trial's memory is watched, and ends it above its limit."""
    link = shell.link
    MemoryWatch(
        shell.find_process,
        lambda held: link.send(Memory(held_bytes=held)),
        lambda held, limit_bytes: shell.exceed(over_limit(held, limit_bytes)),
    )
    host, devices = own_host(setup.host, setup.port), os.environ.get("CUDA_VISIBLE_DEVICES")
    link.send(Ready(node=node_id(), pid=os.getpid(), host=host, devices=devices))


def load_trainable(setup: WorkerSetup) -> Trainable:
    """The trainable, by its import path or from its pickled form (which came through Ray, not the link)."""
    preload(setup.process_group)
    if setup.pickled is not None:
        import cloudpickle

        loaded: Trainable = cloudpickle.loads(setup.pickled)
    else:
        loaded = load_by_reference(setup.trainable)
    check_trainable(loaded)
    return loaded


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
