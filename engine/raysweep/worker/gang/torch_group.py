"""The process group of torch: gloo or NCCL, initialised before the trainable and destroyed after it."""

from __future__ import annotations

import gc
import os
from contextlib import suppress
from datetime import timedelta
from typing import Any, Final

from raysweep.messages import Gang
from raysweep.threads import loaded_module
from raysweep.worker.gang.sessions import FollowerSession, LeaderSession, MemberSession

# How long a rank takes to reach the store of rank 0, which stands by then.
CONNECT: Final = timedelta(seconds=20)
# While it waits for the others, it looks so often whether it is to end.
LOOK: Final = timedelta(milliseconds=200)
_JOINED, _COMPLETE = "raysweep/joined", "raysweep/complete"


class TorchGroup:
    """See `Group`."""

    package = "torch"
    # The first DistributedDataParallel of a process imports the last one, a second or two, and whatever group
    # it has then is kept for ever: its connections would stay open, and the others wait on them.
    preloaded: tuple[str, ...] = ("torch", "torch.distributed", "torch._dynamo")
    names: tuple[str, ...] = ("MASTER_ADDR", "MASTER_PORT")

    def __init__(self) -> None:
        # Held until the trainable's frames are gone. Released by a model in them, it would wait, with the
        # interpreter's lock, for its threads, which may need that lock to end: only its own object lets go
        # without it.
        self._held: list[Any] = []

    def meet(self, session: MemberSession, gang: Gang) -> None:
        """See `Group`."""
        import torch.distributed as dist

        rank = session.job.rank
        store = _open_store(session, gang)
        if store.add(_JOINED, 1) == gang.world_size:
            store.set(_COMPLETE, "1")
        _await_all(session, store)
        os.environ["MASTER_ADDR"], os.environ["MASTER_PORT"] = gang.host, str(store.port)
        _choose_device(gang)
        dist.init_process_group(gang.group, store=store, rank=rank, world_size=gang.world_size)
        self._held.append(dist.group.WORLD)

    def part(self) -> None:
        """See `Group`."""
        dist = loaded_module("torch.distributed")
        if dist is not None and dist.is_initialized():
            # It may find the connections broken, which no longer matters.
            with suppress(RuntimeError):
                dist.destroy_process_group()

    def close(self) -> None:
        """See `Group`. Also connections that only the collector finds."""
        gc.collect()
        self._held.clear()


def _choose_device(gang: Gang) -> None:
    """This rank's own, where it has one: also where gloo connects, as parts of GPUs have it."""
    if gang.devices is None:
        return
    import torch

    # Not where there are GPUs for Ray only, as in tests.
    if gang.group == "nccl" or torch.cuda.is_available():
        torch.cuda.set_device(gang.device)


def _open_store(session: MemberSession, gang: Gang) -> Any:
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


def _await_all(session: MemberSession, store: Any) -> None:
    """Wait for those that are on their way: in steps, as a wait in C++ hears no interruption."""
    import torch.distributed as dist

    while True:
        session.ending.raise_if_asked()
        try:
            store.wait([_COMPLETE], LOOK)
        except dist.DistNetworkError:
            raise
        except dist.DistStoreError:
            continue
        return
