"""Who holds a sweep, and whether that process lives: looked up on this host, watched on others."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from raysweep.errors import SweepHeldError
from raysweep.outcome import SweepProgress
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership import holder, sweep_claim
from raysweep.runs.ownership.holder import (
    HolderWatch,
    current_holder,
    find_living,
    holder_state,
    note_left,
    process_started_at,
)
from raysweep.runs.ownership.sweep_claim import find_holder, follow
from raysweep.storage.objects.opening import open_store
from raysweep.verify import verify_sweep
from raysweep.verify.mending import prune
from tests.sampling import first_of

HOUR_S = 3600.0
ELSEWHERE = {"host": "another"}
CLOCKS = pytest.mark.parametrize("ahead_s", [HOUR_S, 0.0, -HOUR_S])
# For what takes seconds of a real clock: the one that once made a difference for every day.
CLOCKS_IN_EARNEST = pytest.mark.parametrize("ahead_s", first_of([HOUR_S, 0.0, -HOUR_S]))


def beat(at: float, generation: int = 1, *, has_left: bool = False, **held_by: object) -> SweepProgress:
    return SweepProgress(
        sweep_id="sweep-1",
        name="x",
        status="running",
        holder=current_holder().model_copy(update=held_by),
        generation=generation,
        at=at,
        started_at=1.0,
        metric="m",
        mode="min",
        has_left=has_left,
    )


# -- one look ------------------------------------------------------------------------------------------------


def test_this_process_is_alive_however_old_its_heartbeat() -> None:
    assert holder_state(beat(0.0), now=1e9) == "alive"


def test_an_ended_process_of_this_host_is_gone_at_once() -> None:
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    started_at = process_started_at(process.pid)
    progress = beat(100.0, pid=process.pid, process_started_at=started_at)
    assert holder_state(progress, now=100.0) == "alive"
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    assert holder_state(progress, now=100.0) == "gone"  # a zombie
    process.communicate()
    assert holder_state(progress, now=100.0) == "gone"


def test_a_reused_pid_is_gone() -> None:
    assert holder_state(beat(100.0, process_started_at=1.0), now=100.0) == "gone"


def test_this_process_knows_what_it_has_left(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where the storage was away just then, no heartbeat says so."""
    monkeypatch.setattr(holder, "_left", set())
    note_left("sweep-1", 2, 1.0)
    assert holder_state(beat(0.0, generation=2), now=1e9) == "gone"
    assert holder_state(beat(0.0, generation=3), now=1e9) == "alive"
    elsewhere = beat(0.0, generation=2).model_copy(update={"started_at": 2.0})
    assert holder_state(elsewhere, now=1e9) == "alive", "the same run at another storage path"
    parent = {"pid": os.getppid(), "process_started_at": process_started_at(os.getppid())}
    assert holder_state(beat(0.0, generation=2, **parent), now=1e9) == "alive", "it speaks for itself only"


@pytest.mark.parametrize("elsewhere", [ELSEWHERE, {"boot_id": "another"}])
def test_elsewhere_the_heartbeats_time_is_all_that_one_look_has(elsewhere: dict[str, object]) -> None:
    progress = beat(100.0, **elsewhere)
    assert holder_state(progress, now=129.0) == "alive"
    assert holder_state(progress, now=131.0) == "stale"
    assert holder_state(progress, now=71.0) == "alive"
    assert holder_state(progress, now=69.0) == "stale", "of a clock that is ahead, nothing can be said"


# -- looking again and again ---------------------------------------------------------------------------------


class Looks:
    """A watch on a clock of its own, and a holder elsewhere whose clock is `ahead_s` ahead of it."""

    def __init__(self, ahead_s: float) -> None:
        self.now = 1000.0
        self.ahead_s = ahead_s
        self.watch = HolderWatch(lambda: self.now, lambda: self.now)

    def beat(self) -> SweepProgress:
        return beat(self.now + self.ahead_s, **ELSEWHERE)

    def states(self, progress: SweepProgress, seconds: float) -> list[tuple[float, str]]:
        """Each state that is seen in these seconds, and after how many of them it is first."""
        began, seen = self.now, [(0.0, str(self.watch.see(progress)))]
        while self.now < began + seconds:
            self.now += 0.5
            state = self.watch.see(progress)
            if state != seen[-1][1]:
                seen.append((self.now - began, state))
        return seen


@CLOCKS
def test_a_heartbeat_that_moves_is_alive_whatever_its_clock(ahead_s: float) -> None:
    looks = Looks(ahead_s)
    assert looks.states(looks.beat(), 2.0) == [(0.0, "unknown")]
    for _ in range(10):
        assert looks.states(looks.beat(), 25.0) == [(0.0, "alive")], "it may be late, as storage may be"
    assert looks.states(looks.beat(), 100.0) == [(0.0, "alive"), (30.0, "stale")]
    assert looks.watch.see(looks.beat()) == "alive", "the storage was away"


@pytest.mark.parametrize(("ahead_s", "after_s"), [(HOUR_S, 30.0), (31.0, 30.0), (0.0, 30.0), (-HOUR_S, 6.0)])
def test_a_heartbeat_that_does_not_move_is_stale_soon_whatever_its_clock(
    ahead_s: float, after_s: float
) -> None:
    looks = Looks(ahead_s)
    assert looks.states(looks.beat(), 100.0) == [(0.0, "unknown"), (after_s, "stale")]


def test_one_that_has_left_is_gone() -> None:
    looks = Looks(0.0)
    assert looks.watch.see(beat(1000.0, has_left=True, **ELSEWHERE)) == "gone"


def test_for_show_the_heartbeats_time_counts_until_more_is_known() -> None:
    looks = Looks(HOUR_S)
    assert looks.watch.judge(looks.beat()) == "stale"
    looks.now += 2.0
    moved = looks.beat()
    assert looks.watch.judge(moved) == "alive"
    looks.now += 31.0
    assert looks.watch.judge(moved) == "stale"
    assert looks.watch.judge(None) == "gone"
    assert looks.watch.judge(looks.beat().model_copy(update={"status": "completed"})) == "gone"


def test_who_looks_once_reads_on_where_a_clock_is_ahead(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(holder, "STALE_AFTER_S", 0.5)
    ahead = time.time() + HOUR_S
    beats = iter([ahead, ahead, ahead + 2.0])
    moved = HolderWatch().judge(beat(ahead, **ELSEWHERE), lambda: beat(next(beats), **ELSEWHERE))
    assert moved == "alive"
    assert HolderWatch().judge(beat(ahead, **ELSEWHERE), lambda: beat(ahead, **ELSEWHERE)) == "stale"


# -- in a sweep's folder -------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path: object, monkeypatch: pytest.MonkeyPatch) -> SweepFolder:
    # Half a minute in earnest.
    monkeypatch.setattr(holder, "STALE_AFTER_S", 1.5)
    monkeypatch.setattr(holder, "STALE_WATCH_S", 0.8)
    folder = SweepFolder(open_store(f"{tmp_path}/store"), "sweep-1")
    folder.journal().claim(lambda generation: b'"claim"')
    return folder


@contextmanager
def beating(folder: SweepFolder, ahead_s: float) -> Iterator[None]:
    over = threading.Event()

    def run() -> None:
        while not over.wait(0.3):
            folder.write_progress(beat(time.time() + ahead_s, **ELSEWHERE))

    folder.write_progress(beat(time.time() + ahead_s, **ELSEWHERE))
    thread = threading.Thread(target=run)
    thread.start()
    yield
    over.set()
    thread.join()


def timed(call: Callable[[], object]) -> float:
    began = time.monotonic()
    call()
    return time.monotonic() - began


@CLOCKS_IN_EARNEST
def test_a_sweep_is_taken_from_a_dead_holder_whose_clock_is_wrong(
    folder: SweepFolder, ahead_s: float
) -> None:
    """One whose clock was an hour ahead counted as alive for that hour."""
    folder.write_progress(beat(time.time() + ahead_s, **ELSEWHERE))
    assert find_holder(folder) == (None, 1)
    assert timed(lambda: follow(folder, None)) < 10, "it follows nobody for ever"


@CLOCKS
def test_no_sweep_is_taken_from_a_living_holder_whose_clock_is_wrong(
    folder: SweepFolder, ahead_s: float
) -> None:
    with beating(folder, ahead_s):
        found, generation = find_holder(folder)
    assert found is not None
    assert (found.holder.host, generation) == ("another", 1)


@CLOCKS_IN_EARNEST
def test_one_follows_while_the_heartbeat_moves_and_no_longer(folder: SweepFolder, ahead_s: float) -> None:
    seen: list[SweepProgress] = []

    def beat_for_a_while() -> None:
        with beating(folder, ahead_s):
            time.sleep(3.0)

    folder.write_progress(beat(time.time() + ahead_s, **ELSEWHERE))
    thread = threading.Thread(target=beat_for_a_while)
    thread.start()
    took_s = timed(lambda: follow(folder, seen.append))
    thread.join()
    assert 3.0 <= took_s < 13
    assert len({progress.at for progress in seen}) > 3


def test_who_follows_one_that_lives_and_writes_nothing_hears_so_once(
    folder: SweepFolder, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(holder, "_left", set())
    monkeypatch.setattr(sweep_claim, "SILENT_S", 0.6)
    monkeypatch.setattr(sweep_claim, "POLL_S", 0.2)
    folder.write_progress(beat(time.time()))
    threading.Timer(2.0, note_left, ("sweep-1", 1, 1.0)).start()
    assert timed(lambda: follow(folder, None)) < 10, "it follows nobody for ever"
    assert caplog.text.count("takeover=True") == 1


@CLOCKS_IN_EARNEST
def test_nothing_is_pruned_under_a_living_holder_whose_clock_is_wrong(
    folder: SweepFolder, ahead_s: float
) -> None:
    report = verify_sweep(folder)
    with beating(folder, ahead_s), pytest.raises(SweepHeldError):
        prune(folder, report)
    assert prune(folder, report) == ()


def test_nobody_is_found_where_nobody_is_at_work() -> None:
    assert find_living(lambda: None) is None
    for status in ("completed", "cancelled"):
        ended = beat(time.time()).model_copy(update={"status": status})
        assert find_living(lambda ended=ended: ended) is None  # type: ignore[misc]
