"""Processes with CPUs of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.worker.host import pinning

CPUS = sorted(os.sched_getaffinity(0))
pytestmark = pytest.mark.skipif(len(CPUS) < 2, reason="on one CPU nothing can be told apart")

HOLD = """
import sys, threading, time
from pathlib import Path
from raysweep.worker.host.pinning import pin
before = threading.Thread(target=time.sleep, args=(60,), daemon=True)
before.start()
print(*pin(float(sys.argv[1]), Path(sys.argv[2])), flush=True)
sys.stdin.read()
"""


class Holder:
    """A process that pins itself, and lives until it is let go."""

    def __init__(self, place: Path, cpus: float = 1) -> None:
        self.process = subprocess.Popen(
            [sys.executable, "-c", HOLD, str(cpus), str(place)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stdout is not None
        self.taken = [int(word) for word in self.process.stdout.readline().split()]

    def affinities(self) -> list[set[int]]:
        """Of each thread."""
        tasks = os.listdir(f"/proc/{self.process.pid}/task")
        return [os.sched_getaffinity(int(task)) for task in tasks]

    def kill(self) -> str:
        self.process.kill()
        return self.process.communicate()[1]


def test_each_process_has_cpus_of_its_own_with_all_its_threads(tmp_path: Path) -> None:
    holders = [Holder(tmp_path) for _ in CPUS]
    assert sorted(cpu for holder in holders for cpu in holder.taken) == CPUS
    for holder in holders:
        assert len(holder.affinities()) >= 2
        assert all(found == set(holder.taken) for found in holder.affinities())
    late = Holder(tmp_path)
    assert late.taken == []
    assert late.affinities()[0] == set(CPUS), "it runs all the same"
    assert "not pinned" in late.kill()
    freed = holders[0].taken
    holders[0].kill()
    again = Holder(tmp_path)
    assert again.taken == freed, "a killed process holds nothing"
    for holder in [*holders[1:], again]:
        holder.kill()


def test_where_too_few_are_free_none_is_held(tmp_path: Path) -> None:
    one = Holder(tmp_path)
    assert Holder(tmp_path, len(CPUS)).kill()
    two = Holder(tmp_path, len(CPUS) - 1)
    assert sorted([*one.taken, *two.taken]) == CPUS
    one.kill()
    two.kill()


def test_a_process_without_a_whole_cpu_is_left_as_it_is(tmp_path: Path) -> None:
    assert pinning.pin(0.0, tmp_path / "none") == []
    assert not (tmp_path / "none").exists()


def test_cpus_of_one_socket_come_first(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two sockets, of which each core has two hardware threads: 0 and 4, 2 and 6 on the first."""
    sockets, cores = [0, 1, 0, 1, 0, 1, 0, 1], [0, 0, 1, 1, 0, 0, 1, 1]
    places = {"physical_package_id": sockets, "core_id": cores}
    monkeypatch.setattr(pinning, "_read", lambda cpu, what: places[what][cpu])  # this machine has one socket
    assert pinning._by_package(range(8)) == [[0, 4, 2, 6], [1, 5, 3, 7]]
