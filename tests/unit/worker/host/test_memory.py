"""How much memory a trial holds, and when that is said."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from raysweep.worker.host import memory
from raysweep.worker.host.memory import MemoryWatch, held_bytes, over_limit

MIB = 2**20
needs_linux = pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="only Linux says it")
HOLD = "import sys; held = b'x' * (int(sys.argv[1]) << 20); print(flush=True); sys.stdin.read()"


@needs_linux
def test_a_process_and_its_children_count() -> None:
    """50 MiB more than a process that holds nothing; of its own processes too, and theirs."""
    empty, full = _held_by("0"), _held_by("50")
    assert 49 * MIB < full - empty < 60 * MIB
    before = held_bytes(os.getpid())
    with _holding("50") as child:
        both = held_bytes(os.getpid())
        assert both - before > 49 * MIB
        assert held_bytes(child.pid) <= both
        child.communicate()


@needs_linux
def test_a_process_that_is_not_there_holds_nothing() -> None:
    assert held_bytes(2**22 + 1) == 0


def test_what_the_failure_says() -> None:
    failed = over_limit(3 * 2**30, 2**31)
    assert (failed.origin, failed.type) == ("memory", "MemoryLimitExceeded")
    assert failed.memory_bytes == 3 * 2**30
    assert failed.message.startswith("the trial held 3.00 GiB; its limit is 2.00 GiB")


def test_kernel_kills_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The kernel's own file cannot be written: one of its format stands in."""
    events = tmp_path / "memory.events"
    monkeypatch.setattr(memory, "_EVENTS", events)
    assert memory.count_kernel_ooms() == 0
    events.write_text("low 0\nmax 7\noom 4\noom_kill 3\noom_group_kill 9\n")
    assert memory.count_kernel_ooms() == 3
    events.write_text("low 0\noom 4\n")
    assert memory.count_kernel_ooms() == 0


class _Scales(MemoryWatch):
    """A watch that looks when it is told to, at what it is told."""

    def __init__(self) -> None:
        self.maxima: list[int] = []
        self.excess: list[tuple[int, int]] = []
        super().__init__(
            lambda: None, self.maxima.append, lambda held, limit: self.excess.append((held, limit))
        )
        self.close()


def test_maxima_are_said_where_they_are_news(monkeypatch: pytest.MonkeyPatch) -> None:
    """A tenth more, and 64 MiB more; each process begins anew. What a process holds is set from outside."""
    held = 0
    monkeypatch.setattr(memory, "held_bytes", lambda pid: held)
    scales = _Scales()
    for pid, now in [
        (1, 64),
        (1, 65),
        (1, 129),
        (1, 130),
        (1, 2000),
        (1, 2199),
        (1, 2201),
        (1, 100),
        (2, 100),
    ]:
        held = now * MIB
        scales._look(pid, None)
    assert [found // MIB for found in scales.maxima] == [65, 130, 2000, 2201, 100]
    assert scales.excess == []


def test_the_limit_may_be_reached_and_not_passed(monkeypatch: pytest.MonkeyPatch) -> None:
    held = 100
    monkeypatch.setattr(memory, "held_bytes", lambda pid: held)
    scales = _Scales()
    scales._look(1, 100)
    assert scales.excess == []
    held = 101
    scales._look(1, 100)
    assert scales.excess == [(101, 100)]


def test_it_looks_again_and_again_until_it_is_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    """What has a limit is looked at often."""
    monkeypatch.setattr(memory, "IDLE_INTERVAL_S", 0.01)
    monkeypatch.setattr(memory, "INTERVAL_S", 0.001)
    excess = threading.Semaphore(0)
    watch = MemoryWatch(lambda: (os.getpid(), 1), lambda held: None, lambda held, limit: excess.release())
    try:
        assert all(excess.acquire(timeout=20) for _ in range(3))
    finally:
        watch.close()
    watch._thread.join(20)
    assert not watch._thread.is_alive()


def _holding(mebibytes: str) -> subprocess.Popen[bytes]:
    command = [sys.executable, "-S", "-c", HOLD, mebibytes]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert process.stdout is not None
    process.stdout.readline()
    return process


def _held_by(mebibytes: str) -> int:
    with _holding(mebibytes) as process:
        held = held_bytes(process.pid)
        process.communicate()
    return held
