"""An S3 server that is slow, hangs or is away for a while: commits wait, memory is bounded, nothing lost."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from raysweep.errors import RaysweepError, StorageUnavailableError
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.journal import Journal
from raysweep.storage.journal.writer import JournalWriter
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.proxy import Proxy
from tests.sampling import first_of

LIMIT_BYTES = 256 * 1024


@pytest.fixture
def proxy(s3_url: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """Before the S3 server; stores that are opened from here on go through it."""
    import os

    endpoint = urlsplit(os.environ["AWS_ENDPOINT_URL"])
    proxy = Proxy((endpoint.hostname or "", endpoint.port or 0))
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{proxy.port}")
    yield proxy
    proxy.close()


@pytest.fixture
def remote(proxy: Proxy, store_url: Callable[[str], str]) -> Store:
    return open_store(store_url("s3"))


class Load:
    """Reports as fast as they are taken, and now and then the wait for what was written to be durable."""

    def __init__(self, store: Store, **options: object) -> None:
        self.errors: list[RaysweepError] = []
        self.notes: list[str] = []
        self.acknowledged = 0
        self.written = 0
        self.most_pending = 0
        self.store = store
        self._is_over = threading.Event()
        journal = Journal.open(store, "s")
        claim = journal.claim(lambda generation: b'"claim"')
        self.writer = JournalWriter(
            journal.backend,
            claim.generation,
            claim.next_number,
            self.errors.append,
            writer=claim.writer,
            interval_s=0.05,
            max_pending_bytes=LIMIT_BYTES,
            on_note=self.notes.append,
            **options,  # type: ignore[arg-type]
        )
        self._threads = [
            threading.Thread(target=target, daemon=True) for target in (self._write, self._flush)
        ]
        for thread in self._threads:
            thread.start()

    def stop(self) -> None:
        self._is_over.set()
        for thread in self._threads:
            thread.join()

    def records(self) -> list[bytes]:
        return Journal.open(self.store, "s").contents().records[1:]

    def _write(self) -> None:
        while not self._is_over.is_set():
            try:
                self.writer.write(b'{"n":%d,"metrics":"%s"}' % (self.written, b"x" * 200))
            except StorageUnavailableError:
                return
            self.written += 1
            self.most_pending = max(self.most_pending, self.writer.pending_bytes)
            time.sleep(0.0005)

    def _flush(self) -> None:
        while not self._is_over.wait(0.05):
            before = self.written
            try:
                self.writer.flush()
            except StorageUnavailableError:
                return
            self.acknowledged = before


def wait_until(check: Callable[[], object], timeout_s: float = 60) -> None:
    deadline = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < deadline, "waited in vain"
        time.sleep(0.02)


def check_outage(remote: Store, proxy: Proxy, seconds: float, *, hangs: bool) -> None:
    load = Load(remote)
    wait_until(lambda: load.acknowledged)
    (proxy.stall if hangs else proxy.cut)()
    away_at = time.monotonic()
    time.sleep(0.2)
    in_flight = load.written  # a put that was under way may have landed
    wait_until(lambda: load.writer.is_crowded)
    time.sleep(max(0.0, away_at + seconds - time.monotonic()))
    # Nothing is acknowledged that could not be stored; what gathers is bounded: the writing waits.
    assert load.acknowledged <= in_flight
    assert LIMIT_BYTES // 2 <= load.most_pending <= LIMIT_BYTES + 300
    proxy.restore()
    back_at = time.monotonic()
    wait_until(lambda: load.acknowledged > in_flight)
    back_after_s = time.monotonic() - back_at
    load.stop()
    load.writer.close()
    assert proxy.hit > 0 or load.notes, "nobody met the outage"
    assert load.errors == []
    # The pauses between tries grow to 10 s.
    assert back_after_s < 30
    records = load.records()
    assert [int(record[5 : record.index(b",")]) for record in records] == list(range(load.written))
    assert not load.writer.is_crowded
    if not hangs:
        assert "does not answer" in load.notes[0]
        assert "answers again after" in load.notes[1]


@pytest.mark.parametrize("hangs", first_of([False, True]))
def test_a_short_outage(remote: Store, proxy: Proxy, hangs: bool) -> None:
    check_outage(remote, proxy, 3.5, hangs=hangs)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.parametrize("hangs", [False, True])
def test_an_outage_of_30_s(remote: Store, proxy: Proxy, hangs: bool) -> None:
    check_outage(remote, proxy, 30.0, hangs=hangs)


@pytest.mark.slow
def test_a_slow_server_only_slows_down(remote: Store, proxy: Proxy) -> None:
    proxy.delay_s = 0.2
    load = Load(remote)
    wait_until(lambda: load.acknowledged)
    load.stop()
    load.writer.close()
    proxy.delay_s = 0.0  # to read what is there is not what is tried
    assert load.most_pending <= LIMIT_BYTES + 300
    assert len(load.records()) == load.written
    assert (load.errors, load.notes) == ([], [])


def test_the_limit_ends_the_writing_with_what_was_wrong(remote: Store, proxy: Proxy) -> None:
    load = Load(remote, give_up_after_s=1.0)
    wait_until(lambda: load.acknowledged)
    proxy.cut()
    with pytest.raises(StorageUnavailableError, match=r"could not be written for \d+ s"):
        load.writer.flush(20)
    proxy.restore()
    (error,) = load.errors
    assert error.retryable
    assert len(load.records()) >= load.acknowledged > 0


@pytest.mark.slow
def test_checkpoints_wait_for_a_server_that_is_away(remote: Store, proxy: Proxy, tmp_path: Path) -> None:
    """Saving and restoring, both in the middle of an outage."""
    source = tmp_path / "source"
    source.mkdir()
    for name in ("a", "b", "c"):
        (source / name).write_bytes(name.encode() * 100_000)
    checkpoints = CheckpointStore(remote, "s")
    proxy.cut()
    threading.Timer(1.5, proxy.restore).start()
    saved = checkpoints.save("00000", 1, source)
    proxy.cut()
    threading.Timer(1.5, proxy.restore).start()
    checkpoints.restore(saved, tmp_path / "back")
    assert {path.name: path.read_bytes() for path in (tmp_path / "back").iterdir()} == {
        path.name: path.read_bytes() for path in source.iterdir()
    }
    impatient = CheckpointStore(remote, "s", give_up_after_s=0.5)
    proxy.cut()
    with pytest.raises(StorageUnavailableError):
        impatient.restore(saved, tmp_path / "never")
    proxy.restore()
    assert not (tmp_path / "never").exists()
