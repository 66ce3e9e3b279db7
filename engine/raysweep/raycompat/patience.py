"""Time for a node of Ray to come up.

Ray 2.60 gives its own new raylet 30 s, asks for it without a pause meanwhile, and has no setting for either;
its server gets 30 s. And a raylet waits 15 s for files in which its agents say their ports, then aborts: on a
busy machine they are still being imported. So the ports are chosen and written down before it starts. The
agents bind them seconds later, and a raylet ends with its agents: the kernel must not assign these ports to
other processes meanwhile.

`python -m raysweep.raycompat.patience start --head …` is `ray start --head …` with such patience.
"""

from __future__ import annotations

import os
import random
import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from inspect import signature
from pathlib import Path
from typing import Any, Final

START_S: Final = 120.0
LAST_S: Final = 300.0
"""For a second try."""
_PAUSE_S: Final = 0.1
_REGISTER: Final = "RAY_agent_register_timeout_ms"
_SERVER: Final = "RAY_gcs_server_port_wait_time_s"
"""The time that Ray gives its server to say its port: 30 s by default."""
_AGENT_PORTS: Final = (
    "metrics_agent_port",
    "metrics_export_port",
    "dashboard_agent_listen_port",
    "runtime_env_agent_port",
)
_FIRST_PORT: Final = 20000
"""Ray gives the ports from 10002 to 19999 to workers."""
_TRIES: Final = 100


@contextmanager
def patient_start(timeout_s: float = START_S) -> Iterator[None]:
    """Nodes that this process starts in here have `timeout_s` seconds to join their cluster."""
    from ray import _raylet
    from ray._private import services

    persist_port: Any = getattr(
        _raylet, "persist_port", None
    )  # since Ray 2.54; agents tell their ports otherwise before
    get_node, start_raylet = services.get_node, services.start_raylet

    def wait_for_node(gcs_address: str, node_id: str) -> Any:
        deadline = time.monotonic() + timeout_s
        while True:
            try:
                return get_node(gcs_address, node_id)  # type: ignore[no-untyped-call]
            except RuntimeError:  # it has not joined yet
                if time.monotonic() > deadline:
                    raise
            time.sleep(_PAUSE_S)

    def start_with_ports(*args: Any, **options: Any) -> Any:
        missing = [name for name in _AGENT_PORTS if not options.get(name)]
        options |= zip(missing, _free_ports(len(missing)), strict=True)
        given = signature(start_raylet).bind(*args, **options).arguments
        for name in _AGENT_PORTS:  # the files have the same names
            persist_port(given["session_dir"], given["node_id"], name, options[name])
        return start_raylet(*args, **options)

    services.get_node = wait_for_node
    if persist_port is not None:
        services.start_raylet = start_with_ports
    # How long the raylet then tries to reach its agents.
    limits = {_REGISTER: f"{timeout_s * 1000:.0f}", _SERVER: f"{timeout_s:.0f}"}
    added = {name: value for name, value in limits.items() if name not in os.environ}
    os.environ.update(added)
    try:
        yield
    finally:
        services.get_node, services.start_raylet = get_node, start_raylet
        for name in added:
            os.environ.pop(name, None)


def _free_ports(count: int) -> list[int]:
    """Ports that no process listens on now, and that the kernel assigns to no other process later."""
    ports = _unassigned_ports()
    tried = random.SystemRandom().sample(ports, min(len(ports), _TRIES))
    found: list[int] = []
    with ExitStack() as stack:
        for port in (*tried, *[0] * count):  # 0: any port, where none of the others is free
            if len(found) == count:
                break
            probe = stack.enter_context(socket.socket())
            with suppress(OSError):
                probe.bind(("", port))
                found.append(probe.getsockname()[1])
    return found


def _unassigned_ports(settings: Path = Path("/proc/sys/net/ipv4/ip_local_port_range")) -> range:
    """The ports that neither the kernel nor Ray assigns; empty where the kernel may assign all of them.

    Args:
        settings: Holds the first and the last port that the kernel assigns; only Linux has it.
    """
    try:
        first, last = map(int, settings.read_text().split())
    except (OSError, ValueError):
        return range(0)
    below, above = range(_FIRST_PORT, first), range(max(last + 1, _FIRST_PORT), 1 << 16)
    return max(below, above, key=len)


if __name__ == "__main__":
    from ray.scripts.scripts import main

    with patient_start():
        main()  # type: ignore[no-untyped-call]
