"""Who has a training run: one at a time, and an older one writes over nothing of a newer one's."""

from __future__ import annotations

import json
import os
import secrets
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import orjson
import pytest

from raysweep.errors import (
    CheckpointDamagedError,
    FencedError,
    RaysweepError,
    StorageError,
    StorageUnavailableError,
    SweepHeldError,
)
from raysweep.outcome import Holder, SweepProgress, TrainOutcome
from raysweep.runs.ownership import holder
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.ownership.training_claim import Attempt, Claim, claim_run, find_at_rest, read_newest
from raysweep.runs.training import PROGRESS, RunFolder
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, T, WrappedStore
from raysweep.training.checkpoint_list import SNAPSHOT, Snapshot, check_snapshot
from raysweep.training.heartbeat import Heartbeat
from raysweep.training.progress import Watch
from raysweep.training.usage import Meter

ELSEWHERE = Holder(host="elsewhere", pid=1, boot_id="another")


class SlowStore(WrappedStore):
    """Each operation takes its time."""

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        time.sleep(0.03)
        return call()


class HookedStore(WrappedStore):
    """Calls `before` once, before the first operation on a key that ends with `name`."""

    def __init__(self, inner: Store, operation: Operation, name: str, before: Callable[[], Any]) -> None:
        super().__init__(inner)
        self._where = (operation, name)
        self._before: Callable[[], Any] | None = before

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        if self._before is not None and operation == self._where[0] and key.endswith(self._where[1]):
            before, self._before = self._before, None
            before()
        return call()


class GoneStore(WrappedStore):
    """Does not answer."""

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        raise StorageUnavailableError(key, "is away")


class SlowAnswerStore(WrappedStore):
    """Calls `meanwhile` once what is put under a key with this end is there, and before the caller knows."""

    def __init__(self, inner: Store, name: str, meanwhile: Callable[[], Any]) -> None:
        super().__init__(inner)
        self._name, self._meanwhile = name, meanwhile

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        result = call()
        if operation == "put" and key.endswith(self._name):
            self._meanwhile()
        return result


@pytest.fixture
def folder(tmp_path: Path) -> RunFolder:
    return RunFolder(open_store(tmp_path), "t-1")


def take(folder: RunFolder, newest: Attempt | None = None) -> Claim:
    """Claim a run that is at rest, or that is said to be."""
    claim = claim_run(folder, newest or find_at_rest(folder))
    assert isinstance(claim, Claim)
    return claim


def supersede(claim: Claim) -> Claim:
    """Claim what this one has, as one does that takes it for dead."""
    return take(claim.folder, read_newest(claim.folder))


@contextmanager
def beating(claim: Claim, stop: threading.Event | None = None, interval_s: float = 0.05) -> Iterator[None]:
    stop = stop or threading.Event()
    with Heartbeat(
        claim,
        "t",
        Watch(run_id="t-1", meter=Meter({"CPU": 1.0}, time.monotonic)),
        stop,
        interval_s=interval_s,
    ).beating():
        yield


def outcome(loss: float = 1.0) -> TrainOutcome:
    return TrainOutcome(
        run_id="t-1", name="t", status="completed", metrics={"loss": loss}, started_at=1.0, ended_at=2.0
    )


def beat(number: int, holder: Holder, status: Any = "running", at: float = 0.0) -> bytes:
    progress = SweepProgress(
        sweep_id="t-1", name="t", status=status, holder=holder, generation=number, at=at, started_at=0.0,
        metric="", mode="max",
    )  # fmt: skip
    return progress.to_json().encode()


def attempt_of(folder: RunFolder, number: int, holder: Holder, at: float = 0.0) -> None:
    """An entry as every version has written it."""
    record = {"format": 1, "attempt": number, "at": at, "holder": holder.model_dump()}
    assert folder.append_attempt(number, orjson.dumps(record))


class Callers:
    """Several threads that want one run, one starting 10 ms after the other, and what each of them got."""

    def __init__(self, store: Store, number: int) -> None:
        self._store = store
        self.got: list[str] = []
        self._over = threading.Event()
        self._threads = [threading.Thread(target=self._call) for _ in range(number)]

    def run(self) -> list[str]:
        for thread in self._threads:
            thread.start()
            time.sleep(0.01)
        while len(self.got) < len(self._threads):
            time.sleep(0.005)
        self._over.set()
        for thread in self._threads:
            thread.join()
        return sorted(self.got)

    def _call(self) -> None:
        try:
            with beating(take(RunFolder(self._store, "t-1"))):
                self.got.append("claimed")
                self._over.wait()
        except SweepHeldError as error:
            self.got.append(f"held by {error.holder.pid}")
        except RaysweepError as error:
            self.got.append(type(error).__name__)


@pytest.mark.parametrize("number", [2, 6])
def test_of_several_at_once_exactly_one_gets_the_run_where_storage_is_slow(
    tmp_path: Path, number: int
) -> None:
    # Twenty-five rounds at a time: most of each is waiting for the storage.
    rounds = [Callers(SlowStore(open_store(tmp_path / str(index))), number) for index in range(50)]
    results: list[list[str]] = []
    for first in range(0, len(rounds), 25):
        batch = [
            threading.Thread(target=lambda each: results.append(each.run()), args=(each,))
            for each in rounds[first : first + 25]
        ]
        for thread in batch:
            thread.start()
        for thread in batch:
            thread.join()
    assert results == [["claimed", *[f"held by {os.getpid()}"] * (number - 1)]] * 50


def test_a_live_holder_keeps_others_out_and_a_dead_or_finished_one_does_not(folder: RunFolder) -> None:
    claim = take(folder)
    claim.replace(PROGRESS, beat(1, current_holder()))
    with pytest.raises(SweepHeldError, match=f"process {os.getpid()}"):
        find_at_rest(folder)
    claim.replace(PROGRESS, beat(1, current_holder(), "failed"))
    claim = take(folder)
    assert claim.number == 2
    dead = current_holder().model_copy(update={"pid": 2**22 + 1})  # above the kernel's largest pid
    claim.replace(PROGRESS, beat(2, dead))
    assert take(folder).number == 3


def test_the_number_that_was_judged_is_the_one_that_is_followed(folder: RunFolder) -> None:
    """A caller that slept after its verdict does not claim after what came meanwhile."""
    judged = find_at_rest(folder)
    with beating(take(folder)), pytest.raises(SweepHeldError):
        take(folder, judged)
    assert folder.newest_attempt() == 1
    assert take(folder, judged).number == 2  # the other has ended: judged anew, and free


@contextmanager
def beating_elsewhere(folder: RunFolder, clock: Callable[[], float], after_s: float = 0.0) -> Iterator[None]:
    """Attempt 1 runs on another host, whose clock may be wrong."""
    over = threading.Event()

    def run() -> None:
        over.wait(after_s)
        while not over.wait(0.05):
            folder.store.put(f"t-1/{PROGRESS}", beat(1, ELSEWHERE, at=clock()))

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def test_a_claim_without_a_heartbeat_counts_as_alive_for_a_while(folder: RunFolder) -> None:
    attempt_of(folder, 1, ELSEWHERE, at=time.time())
    started = time.monotonic()
    assert find_at_rest(folder, first_beat_s=0.5).number == 1
    assert 0.5 <= time.monotonic() - started < 5
    with beating_elsewhere(folder, time.time, after_s=0.3), pytest.raises(SweepHeldError, match="elsewhere"):
        find_at_rest(folder, first_beat_s=5)


def test_the_heartbeat_of_an_older_attempt_says_nothing_about_a_fresh_claim(folder: RunFolder) -> None:
    attempt_of(folder, 1, ELSEWHERE)
    folder.put_if_version(PROGRESS, beat(1, ELSEWHERE, "failed"), None)
    attempt_of(folder, 2, ELSEWHERE)
    started = time.monotonic()
    assert find_at_rest(folder, first_beat_s=0.5).number == 2
    assert time.monotonic() - started >= 0.5


def test_a_heartbeat_that_looks_old_but_moves_is_one_of_a_live_holder(
    folder: RunFolder, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(holder, "STALE_WATCH_S", 1.5)  # 6 in earnest
    attempt_of(folder, 1, ELSEWHERE)
    with (
        beating_elsewhere(folder, lambda: time.time() - 3600),
        pytest.raises(SweepHeldError, match="elsewhere"),
    ):
        find_at_rest(folder)
    assert find_at_rest(folder).number == 1


CLAIM_AND_DIE = """
import os, signal, sys
from raysweep.storage.objects.opening import open_store
from raysweep.runs.ownership.training_claim import claim_run, find_at_rest
from raysweep.runs.training import RunFolder

folder = RunFolder(open_store(sys.argv[1]), "t-1")
print(claim_run(folder, find_at_rest(folder)).number, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""


def test_a_process_killed_between_its_claim_and_its_first_heartbeat_is_followed_at_once(
    folder: RunFolder, tmp_path: Path
) -> None:
    command = [sys.executable, "-c", CLAIM_AND_DIE, str(tmp_path)]
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, timeout=60)
    assert (done.returncode, done.stdout) == (-signal.SIGKILL, "1\n")
    started = time.monotonic()
    assert take(folder).number == 2  # the process table knows
    assert time.monotonic() - started < 4


def test_a_run_that_ended_while_one_waited_is_not_run_again(folder: RunFolder, tmp_path: Path) -> None:
    judged = find_at_rest(folder)
    claim = take(folder)
    with beating(claim):
        claim.end(outcome())
    assert claim_run(folder, judged) == outcome()
    assert claim_run(folder, find_at_rest(folder)) == outcome()
    # Killed after the end was in the log, before everyone could read it:
    (tmp_path / "t-1" / "train_outcome.json").unlink()
    assert find_at_rest(folder).outcome == outcome()
    assert folder.read_outcome() == outcome()


def test_a_superseded_run_is_told_to_stop_and_writes_over_nothing(folder: RunFolder) -> None:
    claim = take(folder)
    stop = threading.Event()

    def run() -> None:
        with beating(claim, stop):
            supersede(claim).replace(PROGRESS, beat(2, current_holder()))
            stop.wait(60)  # the heartbeat sets it

    started = time.monotonic()
    with pytest.raises(FencedError) as caught:
        run()
    assert stop.is_set()
    assert time.monotonic() - started < 30
    assert (caught.value.generation, caught.value.by_generation) == (1, 2)
    left = folder.read_progress()
    assert left is not None
    assert (left.generation, left.status) == (2, "running")


def test_a_heartbeat_while_the_end_is_being_written_takes_it_for_no_other(folder: RunFolder) -> None:
    claim, seen = take(folder), []

    def look() -> None:
        claim.check()
        claim.replace(PROGRESS, beat(1, current_holder()))
        seen.append(read_newest(folder).outcome)

    claim.folder = RunFolder(SlowAnswerStore(folder.store, "000002.json", look), folder.run_id)
    claim.end(outcome())
    assert seen == [outcome()], "it was there already"
    assert folder.read_outcome() == outcome()


def test_who_could_not_write_that_it_left_is_not_held_up_by_itself(
    folder: RunFolder, caplog: pytest.LogCaptureFixture
) -> None:
    claim = take(folder)

    def fail() -> None:
        claim.folder = RunFolder(GoneStore(folder.store), folder.run_id)
        raise ValueError("no")

    with pytest.raises(ValueError, match="no"), beating(claim, interval_s=60.0):
        fail()
    assert "no sign of life could be written" in caplog.text
    assert take(folder).number == 2


def test_a_run_whose_folder_went_away_has_not_ended(folder: RunFolder, tmp_path: Path) -> None:
    claim = take(folder)
    (tmp_path / "t-1").rename(tmp_path / "away")
    with pytest.raises(StorageError, match="deleted, moved or unmounted while it ran"):
        claim.end(outcome())
    assert folder.read_outcome() is None
    (tmp_path / "away").rename(tmp_path / "t-1")
    claim.end(outcome())
    assert folder.read_outcome() == outcome()


def test_the_end_of_a_superseded_run_is_not_the_end(folder: RunFolder) -> None:
    claim = take(folder)
    newer = supersede(claim)
    with pytest.raises(FencedError):
        claim.end(outcome(1.0))
    assert folder.read_outcome() is None
    newer.end(outcome(2.0))
    with pytest.raises(FencedError):
        claim.end(outcome(1.0))
    assert folder.read_outcome() == outcome(2.0)


@pytest.mark.parametrize(
    ("error", "raised"), [(ValueError, FencedError), (None, FencedError), (KeyboardInterrupt,) * 2]
)
def test_how_a_superseded_run_ends_that_noticed_nothing(
    folder: RunFolder, error: type[BaseException] | None, raised: type[BaseException]
) -> None:
    claim = take(folder)

    def run() -> None:
        with beating(claim, interval_s=60):
            supersede(claim)
            if error is not None:
                raise error

    with pytest.raises(raised):
        run()


@pytest.mark.parametrize("operation", ["get", "head", "put"])
@pytest.mark.parametrize("name", [PROGRESS, SNAPSHOT])
@pytest.mark.parametrize("kind", ["local", "memory"])
def test_superseded_between_any_two_operations_of_a_write(
    tmp_path: Path, kind: str, name: str, operation: Operation
) -> None:
    plain = open_store(tmp_path if kind == "local" else f"memory://{secrets.token_hex(8)}")
    first = take(RunFolder(plain, "t-1"))
    first.replace(name, b'{"by": 1}')

    def take_over() -> None:
        newer = supersede(first)
        newer.update(name, lambda data: (data or b"") + b" ")

    where = name if operation != "head" else "000002.json"
    hooked = HookedStore(plain, operation, where, take_over)
    with pytest.raises(FencedError):
        Claim(RunFolder(hooked, "t-1"), 1).replace(name, b'{"by": "an older one"}')
    found = plain.get(f"t-1/{name}")
    assert found == b'{"by": 1} '


def test_one_that_takes_over_goes_on_from_the_last_list_of_checkpoints_that_was_written(
    tmp_path: Path,
) -> None:
    """The older one writes the list between the newer one's read of it and its write."""
    plain = open_store(tmp_path)
    first = take(RunFolder(plain, "t-1"))
    Snapshot(first).write('{"latest": 1}')
    list_of_the_older = orjson.dumps({"latest": 2, "raysweep_attempt": 1})
    hooked = HookedStore(plain, "put", SNAPSHOT, lambda: plain.put(f"t-1/{SNAPSHOT}", list_of_the_older))
    newer = supersede(first)
    Snapshot(Claim(RunFolder(hooked, "t-1"), newer.number)).take()
    assert json.loads(plain.get(f"t-1/{SNAPSHOT}") or b"") == {"latest": 2, "raysweep_attempt": 2}
    with pytest.raises(FencedError):
        Snapshot(first).write('{"latest": 3}')


def test_a_list_of_checkpoints_by_an_earlier_version_is_taken_and_a_damaged_one_refused(
    folder: RunFolder,
) -> None:
    claim = take(folder)
    snapshot = Snapshot(claim)
    snapshot.take()  # none yet
    assert folder.get_versioned(SNAPSHOT) is None
    folder.put_if_version(SNAPSHOT, b'{"metrics": {"loss": NaN}}', None)
    check_snapshot(folder)
    snapshot.take()
    assert b'"raysweep_attempt": 1' in (folder.get_versioned(SNAPSHOT) or (b"", ""))[0]
    for damaged in (b'{"metrics": ', b"[]"):
        claim.replace(SNAPSHOT, damaged)
        with pytest.raises(CheckpointDamagedError, match=SNAPSHOT):
            check_snapshot(folder)
        with pytest.raises(CheckpointDamagedError, match=SNAPSHOT):
            snapshot.take()


class LateAnswerStore(WrappedStore):
    """A conditional put lands, but says that there was something: as after a retry by the client."""

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        super().put_if_absent(key, data, durable=durable)
        return False

    def put_if_version(self, key: str, data: bytes, version: str | None) -> bool:
        super().put_if_version(key, data, version)
        return False


def test_a_put_of_ours_whose_answer_was_lost_counts(tmp_path: Path) -> None:
    store = LateAnswerStore(open_store(tmp_path))
    claim = take(RunFolder(store, "t-1"))
    assert claim.number == 1
    claim.end(outcome())
    assert claim.folder.read_outcome() == outcome()


def test_a_write_that_never_succeeds_is_given_up(tmp_path: Path) -> None:
    claim = take(RunFolder(LateAnswerStore(open_store(tmp_path)), "t-1"))
    with pytest.raises(StorageError, match="changed by others"):
        claim.replace(PROGRESS, b"{}")


@pytest.mark.parametrize("damaged", [b"", b'{"format": 1}', b"[]", b'{"format": 1, "outcome": {}}'])
def test_a_damaged_entry_is_named(folder: RunFolder, damaged: bytes) -> None:
    folder.append_attempt(1, damaged)
    with pytest.raises(StorageError, match=r"attempts/000001\.json.*damaged"):
        read_newest(folder)


def test_a_run_whose_attempts_failed_goes_on(folder: RunFolder) -> None:
    """A heartbeat by an attempt that failed, no end in the log."""
    attempt_of(folder, 1, ELSEWHERE)
    attempt_of(folder, 2, ELSEWHERE)
    folder.put_if_version(PROGRESS, beat(2, ELSEWHERE, "failed"), None)
    claim = take(folder)
    assert claim.number == 3
    with beating(claim):
        claim.end(outcome())
    assert folder.read_outcome() == outcome()
