"""The set-up of a worker, and its message once it is ready: the same for warm and forking ones."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from raysweep.documents.code.tune_objects import is_tune_class
from raysweep.messages import Memory, Ready
from raysweep.threads import loaded_module
from raysweep.worker.checking import check_resources, check_trainable
from raysweep.worker.gang.surroundings import own_host, preload
from raysweep.worker.host.memory import MemoryWatch, over_limit
from raysweep.worker.runner import Trainable, load_by_reference
from raysweep.worker.shell import WorkerShell
from raysweep.worker.sweep_info import SweepPlace

_self: tuple[str, str] | None = None
"""Name and node of a worker that Ray has not started."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerSetup:
    """All that a worker needs to begin: where to connect, what to run, how."""

    host: str
    port: int
    token: str
    trainable: str
    pickled: bytes | None
    parameters: tuple[Mapping[str, Any], ...] = ()
    """The objects given to `tune.with_parameters`, as references to Ray's object store."""
    isolation: str
    max_trials: int | None = None
    """After so many trials, or one that failed, the worker begins no other; None: no limit."""
    place: SweepPlace
    sys_path: tuple[str, ...] = ()
    hides_gpus: bool = True
    """True if the trial's own process has none: of what it starts through Ray, Ray sees to that."""
    gpus: float = 0.0
    """The number of its GPUs, or the part of one; it waits until their memory is free (`host.gpu_memory`)."""
    gpu_limit_bytes: int = 0
    """The bytes of a shared GPU's memory to which its trials are kept; 0: no limit (`host.gpu_share`)."""
    cpus: float = 1.0
    """The CPUs of a trial's own process: its numeric libraries use as many threads (`worker.host.cpus`)."""
    is_pinned: bool = False
    """True if it runs on so many CPUs that no other does (`worker.host.pinning`)."""
    threads: Mapping[str, str] = field(default_factory=dict)
    """The variables of these that the user has set where the sweep runs."""
    fault_plan: str = ""
    allowed: str = ""
    """The controller's list of what may be named (`allow_list`); empty: the node's own, if any."""
    log_bytes: int = 0
    """The bytes that are kept of each attempt's output; 0: none."""
    process_group: str = ""
    """The process group of a gang's members (see `worker.gang.process_groups`), or empty."""


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
    return make_trainable(setup.trainable, setup.pickled, setup.parameters, setup.place)


def make_trainable(
    reference: str, pickled: bytes | None, parameters: Sequence[Mapping[str, Any]], place: SweepPlace
) -> Trainable:
    """The trainable behind a reference or its pickled form, as a function of a config.

    Raises:
        TrainableImportError: It cannot be had, or cannot be run.
    """
    if parameters:
        from raysweep.raycompat.parameters import load

        assert pickled is not None
        loaded: Trainable = load(pickled, parameters)
    elif pickled is not None:
        import cloudpickle

        loaded = cloudpickle.loads(pickled)
    else:
        loaded = load_by_reference(reference)
    check_trainable(loaded)
    check_resources(loaded, place)
    return as_function(loaded, place)


def as_function(loaded: Trainable, place: SweepPlace) -> Trainable:
    """A class of Ray Tune as a function of a config; anything else as it is.

    Raises:
        TrainableImportError: It is to make checkpoints, and has no `save_checkpoint`.
    """
    if not is_tune_class(loaded):
        return loaded
    from raysweep.worker.ray_calls.tune_class import TuneClass

    return TuneClass(loaded, place)


def close_trainable(trainable: Trainable) -> None:
    """The worker ends: what the trainable keeps from trial to trial does, too."""
    close = getattr(trainable, "close", None)
    if is_tune_class(getattr(trainable, "cls", None)) and close is not None:
        close()


def actor_id() -> str:
    """The name of this worker on the link: Ray's id of its actor, or the name that `live_as` gave."""
    if _self is not None:
        return _self[0]
    import ray

    return str(ray.get_runtime_context().get_actor_id())


def node_id() -> str:
    """Ray's id of this node, or what `live_as` has said; empty where there is neither."""
    if _self is not None:
        return _self[1]
    ray = loaded_module("ray")
    if ray is None or not ray.is_initialized():
        return ""
    return str(ray.get_runtime_context().get_node_id())


def is_without_ray() -> bool:
    """True if this worker was started without Ray."""
    return _self is not None


def live_as(name: str, node: str) -> None:
    """From now on this process is the worker of this name on this node: it was started without Ray."""
    global _self
    _self = name, node
