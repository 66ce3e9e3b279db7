"""What stands around a trainable in a gang: the variables that name its rank, and its process group."""

from __future__ import annotations

import gc
import importlib
import os
import re
import socket
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import RaysweepError
from raysweep.messages import Gang
from raysweep.worker.members import FollowerSession, LeaderSession

if TYPE_CHECKING:
    from raysweep.worker.session import Session

# How long a rank takes to reach the store of rank 0, which stands by then.
CONNECT: Final = timedelta(seconds=20)
# While it waits for the others, it looks so often whether it is to end.
LOOK: Final = timedelta(milliseconds=200)
_JOINED, _COMPLETE = "raysweep/joined", "raysweep/complete"
_ECHO: Final = re.compile(r"gloo|nccl|tcpstore|connection (closed|reset) by peer|broken pipe", re.IGNORECASE)
_ECHO_TYPES: Final = frozenset({"DistError", "DistBackendError", "DistNetworkError", "DistStoreError"})
# The first DistributedDataParallel of a process imports the last one, a second or two, and whatever group it
# has then is kept for ever: its connections would stay open, and the others wait on them.
_PRELOADED: Final = ("torch", "torch.distributed", "torch._dynamo")
# The group of the attempt, held until the trainable's frames are gone. Let go of by a model in them, it would
# wait, with the interpreter's lock, for its threads, which may need that lock to end: only its own object
# lets go without it.
_held: list[Any] = []


def preload(group: str) -> None:
    """Import, before any trial, what the process group is made of.

    Raises:
        RaysweepError: It is not there.
    """
    try:
        for name in _PRELOADED if group else ():
            importlib.import_module(name)
    except ModuleNotFoundError as error:
        raise RaysweepError(
            f"scaling.backend: {error}; install torch where the workers run, or write backend: null"
        ) from error


@contextmanager
def joined(session: Session) -> Iterator[None]:
    """Around the trainable. Where the attempt is no gang's, nothing.

    Raises:
        TrialStopped: It is to end before all have met.
    """
    gang = session.job.gang
    if gang is None:
        yield
        return
    with _environment(_variables(gang, session.job.rank)):
        if not gang.group:
            yield
            return
        try:
            _meet(session, gang)
            yield
        finally:
            _part()


def is_echo(error: BaseException) -> bool:
    """Whether it was raised because another rank has gone."""
    names = {cls.__name__ for cls in type(error).__mro__}
    is_plain = isinstance(error, RuntimeError | OSError)
    return bool(names & _ECHO_TYPES) or (is_plain and _ECHO.search(str(error)) is not None)


def close(gang: Gang | None) -> None:
    """The trainable's frames are gone: end its connections, also those that only the collector finds."""
    if gang is not None and gang.group:
        gc.collect()
        _held.clear()


def own_host(host: str, port: int) -> str:
    """This node's address on the way to the controller: there the others of a gang reach it."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        return str(probe.getsockname()[0])
    return ""


def _variables(gang: Gang, rank: int) -> dict[str, str]:
    variables = {
        "RANK": str(rank),
        "WORLD_SIZE": str(gang.world_size),
        "LOCAL_RANK": str(gang.local_rank),
        "LOCAL_WORLD_SIZE": str(gang.local_world_size),
        "NODE_RANK": str(gang.node_rank),
    }
    if gang.devices is not None:
        # As torchrun and Ray Train have it: all of the node's, so that LOCAL_RANK is the number of one's own.
        variables["CUDA_VISIBLE_DEVICES"] = gang.devices
    return variables


@contextmanager
def _environment(variables: dict[str, str]) -> Iterator[None]:
    names = (*variables, "MASTER_ADDR", "MASTER_PORT")
    before = {name: os.environ.get(name) for name in names}
    os.environ.update(variables)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _meet(session: Session, gang: Gang) -> None:
    import torch.distributed as dist

    rank = session.job.rank
    store = _open_store(session, gang)
    if store.add(_JOINED, 1) == gang.world_size:
        store.set(_COMPLETE, "1")
    _await_all(session, store)
    os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = gang.host, str(store.port)
    if gang.group == "nccl":
        import torch

        torch.cuda.set_device(gang.device)
    dist.init_process_group(gang.group, store=store, rank=rank, world_size=gang.world_size)
    _held.append(dist.group.WORLD)


def _open_store(session: Session, gang: Gang) -> Any:
    """That of rank 0, at a port that is free there."""
    import torch.distributed as dist

    def connect(port: int, *, is_master: bool) -> Any:
        make: Any = vars(dist)["TCPStore"]
        return make(gang.host, port, gang.world_size, is_master, timeout=CONNECT, wait_for_workers=False)

    if isinstance(session, FollowerSession):
        return connect(session.await_meeting(), is_master=False)
    store = connect(0, is_master=True)
    assert isinstance(session, LeaderSession)
    session.say_met(store.port)
    return store


def _await_all(session: Session, store: Any) -> None:
    """Wait for those that are on their way: in steps, as a wait in C++ hears no interruption."""
    import torch.distributed as dist

    while True:
        session.raise_if_ending()
        try:
            store.wait([_COMPLETE], LOOK)
        except dist.DistNetworkError:
            raise
        except dist.DistStoreError:
            continue
        return


def _part() -> None:
    dist = sys.modules.get("torch.distributed")
    if dist is not None and dist.is_initialized():
        # It may find the connections broken, and nobody is interested any more.
        with suppress(RuntimeError):
            dist.destroy_process_group()
