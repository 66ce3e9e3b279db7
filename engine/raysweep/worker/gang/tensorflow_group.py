"""TensorFlow's cluster: TF_CONFIG, with an address for each rank, for strategies that the trainable creates.

TensorFlow starts a server in each process when the first such strategy is created, and ends it only with the
process: trials with it run in processes of their own.
"""

from __future__ import annotations

import json
import os
import socket

from raysweep.messages import Gang
from raysweep.worker.gang.sessions import MemberSession


class TensorFlowGroup:
    """See `Group`."""

    package = "tensorflow"
    preloaded: tuple[str, ...] = ("tensorflow",)
    names: tuple[str, ...] = ("TF_CONFIG",)

    def __init__(self) -> None:
        self._port: socket.socket | None = None

    def meet(self, session: MemberSession, gang: Gang) -> None:
        """See `Group`."""
        self._port = _take_port()
        session.say_port(self._port.getsockname()[1])
        cluster = {"worker": list(session.await_addresses())}
        task = {"type": "worker", "index": session.job.rank}
        os.environ["TF_CONFIG"] = json.dumps({"cluster": cluster, "task": task})

    def part(self) -> None:
        """See `Group`. The server goes with the process."""
        if self._port is not None:
            self._port.close()

    def close(self) -> None:
        """See `Group`."""


def _take_port() -> socket.socket:
    """A free port, kept for TensorFlow: no other process gets it meanwhile.

    Linux gives no bound port to others, and lets a second socket listen at one that is bound if both say that
    addresses may be reused, as TensorFlow's does. The first bind does not say so: it gets a port of its own.
    """
    taken = socket.socket()
    taken.bind(("", 0))
    taken.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return taken
