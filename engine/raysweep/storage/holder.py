"""Who holds a sweep, and whether that process still lives."""

from __future__ import annotations

import getpass
import os
import socket
from pathlib import Path
from typing import Literal

from raysweep.outcome import Holder, SweepProgress

STALE_AFTER_S = 30.0
"""How old a heartbeat may be, if nothing better is known. progress.json is written every 2 s."""

AT_WORK = frozenset({"starting", "running", "stopping"})
"""The states of a sweep in which a controller works on it."""

HolderState = Literal["alive", "gone", "stale"]


def current_holder() -> Holder:
    """This process, as others will want to recognise it."""
    pid = os.getpid()
    return Holder(
        host=socket.gethostname(),
        pid=pid,
        process_started_at=process_started_at(pid),
        boot_id=boot_id(),
        user=_user(),
    )


def holder_state(progress: SweepProgress, now: float) -> HolderState:
    """Whether the holder named in `progress` lives. `now` is in seconds since the epoch.

    On the same boot of the same host (and, in containers, with the same view of processes) the process table
    decides: "alive" or "gone", however old the heartbeat. Elsewhere the heartbeat's age does: "alive" or
    "stale".
    """
    if progress.has_left:
        return "gone"
    holder = progress.holder
    boot = boot_id()
    if boot and (holder.host, holder.boot_id) == (socket.gethostname(), boot):
        started_at = process_started_at(holder.pid)
        return "alive" if started_at is not None and started_at == holder.process_started_at else "gone"
    return "alive" if now - progress.at <= STALE_AFTER_S else "stale"


def is_held(progress: SweepProgress | None, now: float) -> bool:
    """Whether the controller that wrote `progress` lives and is at work: a process may outlive its sweeps."""
    return progress is not None and progress.status in AT_WORK and holder_state(progress, now) == "alive"


def boot_id() -> str:
    """This boot of this machine and the process namespace we see; "" where that cannot be known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def process_started_at(pid: int) -> float | None:
    """When a process of this machine started, in seconds since boot; None for none, or a zombie.

    Source: proc(5), /proc/<pid>/stat, field 22.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None
    # The command, in parentheses, may hold anything; the fields after its last parenthesis do not.
    fields = stat.rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        return None
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _user() -> str:
    try:
        return getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        return str(os.getuid())
