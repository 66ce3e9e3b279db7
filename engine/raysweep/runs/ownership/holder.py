"""The holder of a sweep, and checks that its process still lives."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from raysweep.outcome import Holder, SweepProgress
from raysweep.outcome.progress import HolderState

STALE_AFTER_S = 30.0
"""The oldest heartbeat of a live holder, if nothing better is known. progress.json is written every 2 s."""

STALE_WATCH_S = 6.0
"""The time for watching one that looks old: after an outage of the storage every heartbeat does, and so it
does where clocks differ. One that is still written is seen to move within this time."""

POLL_S = 0.2

_left: set[tuple[str, int, float]] = set()


def note_left(run_id: str, generation: int, started_at: float) -> None:
    """This process has left a run, whatever its last heartbeat, with these fields, says.

    Where the storage was away, or the run's folder, as it left, it could not write so. It may live for long,
    and be the one to continue. `started_at` tells runs of one id at several storage paths apart.
    """
    _left.add((run_id, generation, started_at))


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


def holder_state(progress: SweepProgress | None, now: float) -> HolderState:
    """The state of the holder named in `progress`. `now` is in seconds since the epoch.

    On the same boot of the same host (and, in containers, with the same view of processes) the process table
    decides: "alive" or "gone", however old the heartbeat. Elsewhere the heartbeat's age does: "alive" or
    "stale". That takes the other host's clock to be right: good enough to show. Where something hangs on it,
    watch: `HolderWatch`, `find_living`.
    """
    if progress is None:
        return "gone"
    known = known_state(progress)
    if known is not None:
        return known
    return "alive" if abs(now - progress.at) <= STALE_AFTER_S else "stale"


def known_state(progress: SweepProgress) -> HolderState | None:
    """The state that is certain at one look; None where only the heartbeat can tell."""
    if progress.has_left or not progress.is_at_work:
        return "gone"
    holder = progress.holder
    boot = boot_id()
    if not boot or (holder.host, holder.boot_id) != (socket.gethostname(), boot):
        return None
    started_at = process_started_at(holder.pid)
    if started_at is None or started_at != holder.process_started_at:
        return "gone"
    seen = (progress.sweep_id, progress.generation, progress.started_at)
    return "gone" if holder.pid == os.getpid() and seen in _left else "alive"


class HolderWatch:
    """Judges a holder by looking again and again: it lives while its heartbeat moves.

    How long it has not moved is measured on this process's own clock: the holder's may be wrong by hours. All
    that a heartbeat's own time does is to shorten the wait for one that looks old already.
    """

    def __init__(
        self, clock: Callable[[], float] = time.monotonic, utc: Callable[[], float] = time.time
    ) -> None:
        self._clock = clock
        self._utc = utc
        self._sign: tuple[int, float] | None = None
        self._moved_at = 0.0
        self._has_moved = False

    def see(self, progress: SweepProgress) -> HolderState | Literal["unknown"]:
        """Look at the newest heartbeat. "unknown": too early to tell, look again."""
        now, sign = self._clock(), (progress.generation, progress.at)
        if sign != self._sign:
            self._has_moved = self._sign is not None
            self._sign, self._moved_at = sign, now
        known = known_state(progress)
        if known is not None:
            return known
        looks_old = self._utc() - progress.at > STALE_AFTER_S and not self._has_moved
        if now - self._moved_at >= (STALE_WATCH_S if looks_old else STALE_AFTER_S):
            return "stale"
        return "alive" if self._has_moved else "unknown"

    @property
    def silent_s(self) -> float:
        """The seconds for which the heartbeat has been seen not to move; before the first look 0."""
        return 0.0 if self._sign is None else self._clock() - self._moved_at

    def judge(
        self,
        progress: SweepProgress | None,
        read_again: Callable[[], SweepProgress | None] | None = None,
    ) -> HolderState:
        """As `see`, to show it: while it is too early to tell, the heartbeat's own time counts.

        That of a clock that is far ahead says nothing. For who looks only once, `read_again` reads on until
        it has moved, or has not for too long.
        """
        if progress is None:
            return "gone"
        state = self.see(progress)
        if state != "unknown":
            return state
        if read_again is not None and progress.at - self._utc() > STALE_AFTER_S:
            return "alive" if find_living(read_again) is not None else "stale"
        return holder_state(progress, self._utc())


def find_living(read: Callable[[], SweepProgress | None]) -> SweepProgress | None:
    """The heartbeat of a holder that lives and is at work, None where there is none.

    Of a holder elsewhere that is known once its heartbeat has moved, in about 2 s, or has not for too long.
    """
    watch = HolderWatch()
    while (progress := read()) is not None:
        state = watch.see(progress)
        if state != "unknown":
            return progress if state == "alive" else None
        time.sleep(POLL_S)
    return None


def boot_id() -> str:
    """This boot of this machine and the process namespace we see; "" where that cannot be known."""
    try:
        boot = Path("/proc/sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
        return f"{boot}:{os.stat('/proc/self/ns/pid').st_ino}"
    except OSError:
        return ""


def process_started_at(pid: int) -> float | None:
    """The start of a process of this machine, in seconds since boot; None for none, or a zombie.

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
