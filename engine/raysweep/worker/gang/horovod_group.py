"""Horovod through Gloo, without MPI: the variables that `hvd.init()` reads, and a rendezvous in rank 0.

The trainable calls `hvd.init()` itself, as it does everywhere. A rank that misses another there waits for it
in C++; whether one is missing for good, the controller sees, and ends the others.
"""

from __future__ import annotations

import fcntl
import importlib
import os
import socket
import struct
import sys
import threading
from contextlib import suppress
from typing import Any, Final

from raysweep.messages import Gang
from raysweep.worker.gang.sessions import FollowerSession, LeaderSession, MemberSession

TIMEOUT_S: Final = 300
"""The wait of a rank for another in `hvd.init()`, unless HOROVOD_GLOO_TIMEOUT_SECONDS says otherwise; then
its process aborts. Horovod's own 30 s are few where one rank loads its data first."""
_SIOCGIFADDR: Final = 0x8915  # Linux: the address of an interface
_FRAMEWORKS: Final = ("horovod.torch", "horovod.tensorflow")


class HorovodGroup:
    """See `Group`."""

    package = "horovod"
    preloaded: tuple[str, ...] = ("horovod", "horovod.runner.http.http_server")
    names: tuple[str, ...] = (
        "HOROVOD_CONTROLLER",
        "HOROVOD_CPU_OPERATIONS",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR",
        "HOROVOD_GLOO_RENDEZVOUS_PORT",
        "HOROVOD_GLOO_TIMEOUT_SECONDS",
        "HOROVOD_GLOO_IFACE",
        "HOROVOD_HOSTNAME",
        "HOROVOD_RANK",
        "HOROVOD_SIZE",
        "HOROVOD_LOCAL_RANK",
        "HOROVOD_LOCAL_SIZE",
        "HOROVOD_CROSS_RANK",
        "HOROVOD_CROSS_SIZE",
    )

    def __init__(self) -> None:
        self._server: Any = None

    def meet(self, session: MemberSession, gang: Gang) -> None:
        """See `Group`."""
        if isinstance(session, FollowerSession):
            port = session.await_meeting()
        else:
            assert isinstance(session, LeaderSession)
            port = self._serve(gang)
            session.say_met(port)
        os.environ.update(_variables(gang, session.job.rank, port))
        os.environ.setdefault("HOROVOD_GLOO_TIMEOUT_SECONDS", str(TIMEOUT_S))
        interface = _interface_to(gang.host, port)
        if interface:
            os.environ.setdefault("HOROVOD_GLOO_IFACE", interface)

    def part(self) -> None:
        """See `Group`."""
        for name in _FRAMEWORKS:
            module = sys.modules.get(name)
            # The connections may be broken, which no longer matters.
            with suppress(Exception):
                if module is not None and module.is_initialized():
                    module.shutdown()
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def close(self) -> None:
        """See `Group`."""

    def _serve(self, gang: Gang) -> int:
        """Let the ranks find each other here; only at this address, and only until the attempt ends."""
        http: Any = importlib.import_module("horovod.runner.http.http_server")
        self._server = http.RendezvousHTTPServer((gang.host, 0), http.RendezvousHandler, 0)
        self._server.init([_Slot(gang, rank) for rank in range(gang.world_size)])
        threading.Thread(target=self._server.serve_forever, name="raysweep-rendezvous", daemon=True).start()
        port: int = self._server.server_address[1]
        return port


class _Slot:
    """A rank, as Horovod describes it: its place on its node, and among those of that place on all nodes."""

    def __init__(self, gang: Gang, rank: int) -> None:
        node = gang.nodes[rank]
        mates = [other for other, place in enumerate(gang.nodes) if place == node]
        self.rank, self.size = rank, gang.world_size
        self.local_rank, self.local_size = mates.index(rank), len(mates)
        # The nodes that have a rank of this place: those with more ranks than it.
        across = [place for place in sorted(set(gang.nodes)) if gang.nodes.count(place) > self.local_rank]
        self.cross_rank, self.cross_size = across.index(node), len(across)
        self.hostname = f"node{node}"


def _variables(gang: Gang, rank: int, port: int) -> dict[str, str]:
    slot = _Slot(gang, rank)
    return {
        "HOROVOD_CONTROLLER": "gloo",
        "HOROVOD_CPU_OPERATIONS": "gloo",
        "HOROVOD_GLOO_RENDEZVOUS_ADDR": gang.host,
        "HOROVOD_GLOO_RENDEZVOUS_PORT": str(port),
        "HOROVOD_HOSTNAME": slot.hostname,
        "HOROVOD_RANK": str(rank),
        "HOROVOD_SIZE": str(slot.size),
        "HOROVOD_LOCAL_RANK": str(slot.local_rank),
        "HOROVOD_LOCAL_SIZE": str(slot.local_size),
        "HOROVOD_CROSS_RANK": str(slot.cross_rank),
        "HOROVOD_CROSS_SIZE": str(slot.cross_size),
    }


def _interface_to(host: str, port: int) -> str:
    """The network interface on the way to rank 0; empty where none has that address: Horovod takes one."""
    with suppress(OSError), socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        probe.connect((host, port))
        own = socket.inet_aton(probe.getsockname()[0])
        for _, name in socket.if_nameindex():
            with suppress(OSError):
                asked = struct.pack("256s", name.encode()[:15])
                if fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, asked)[20:24] == own:
                    return name
    return ""
