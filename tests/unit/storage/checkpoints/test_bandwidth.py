"""Limits of uploads: bytes per second, and puts at once."""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import CheckpointDamagedError, SpecError, StorageUnavailableError
from raysweep.storage.checkpoints.bandwidth import Bandwidth
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.checkpoints.uploads import CHUNK_BYTES, UploadLimits
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.wrapped import WrappedStore


class Clock:
    """Seconds that pass only while somebody waits."""

    def __init__(self) -> None:
        self.now = 100.0

    def wait(self, seconds: float) -> None:
        self.now += seconds

    def bandwidth(self, bytes_per_s: float) -> Bandwidth:
        return Bandwidth(bytes_per_s, clock=lambda: self.now, wait=self.wait)


def test_over_time_no_more_than_the_limit_passes() -> None:
    clock = Clock()
    bandwidth = clock.bandwidth(10.0)
    began = clock.now
    ends = []
    for _ in range(5):
        bandwidth.take(20)
        ends.append(clock.now - began)
    assert ends == pytest.approx([0.0, 2.0, 4.0, 6.0, 8.0])
    clock.now += 100.0
    bandwidth.take(20)
    assert clock.now - began == pytest.approx(108.0), "what nobody used is not saved up"
    bandwidth.take(20)
    assert clock.now - began == pytest.approx(110.0)


def test_whoever_gives_up_is_heard_while_it_waits() -> None:
    clock = Clock()
    bandwidth = clock.bandwidth(1.0)
    bandwidth.take(1000)

    def go_on() -> None:
        if clock.now > 105.0:
            raise InterruptedError

    with pytest.raises(InterruptedError):
        bandwidth.take(1, go_on)
    assert clock.now < 106.0


class Recording(WrappedStore):
    """Not a local folder; says how many puts there are at once, and may refuse each first one."""

    def __init__(self, inner: Any, clock: Clock | None = None, refuses: bool = False) -> None:
        super().__init__(inner)
        self.at_once = self.most = self.put_bytes = 0
        self._lock = threading.Lock()
        self._together: threading.Barrier | None = None
        self._refused: set[str] = set()
        self._refuses = refuses

    def expect(self, number: int) -> None:
        """Each put of an object waits for so many at once."""
        self._together = threading.Barrier(number)

    def local_path(self, key: str) -> Path | None:
        return None

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        with self._lock:
            self.at_once += 1
            self.most = max(self.most, self.at_once)
            self.put_bytes += len(data)
        try:
            if self._together is not None:
                self._together.wait(60)
            if self._refuses and key not in self._refused:
                self._refused.add(key)
                raise StorageUnavailableError(key, "slow down", "try again")
            super().put(key, data, durable=durable)
        finally:
            with self._lock:
                self.at_once -= 1

    def around(self, operation: Any, key: str, call: Callable[[], Any]) -> Any:
        return call()


def fill(folder: Path, chunks: int) -> Path:
    folder.mkdir()
    (folder / "body").write_bytes(b"".join(bytes([number]) * CHUNK_BYTES for number in range(chunks)))
    return folder


@pytest.mark.parametrize("parallel_puts", [1, 2, 6])
def test_so_many_are_put_at_once(parallel_puts: int, tmp_path: Path) -> None:
    store = Recording(open_store(tmp_path / "store"))
    store.expect(parallel_puts)
    limits = UploadLimits(parallel_puts=parallel_puts)
    CheckpointStore(store, "s").save("t", 0, fill(tmp_path / "in", 6), limits=limits)
    assert store.most == parallel_puts


@pytest.mark.parametrize("is_local", [True, False])
def test_an_upload_keeps_to_the_limit_however_many_put_at_once(is_local: bool, tmp_path: Path) -> None:
    """Also what is put again counts."""
    clock, real = Clock(), open_store(tmp_path / "store")
    store = real if is_local else Recording(real, refuses=True)
    limits = UploadLimits(parallel_puts=1, bandwidth=clock.bandwidth(CHUNK_BYTES / 2))
    CheckpointStore(store, "s").save("t", 0, fill(tmp_path / "in", 3), limits=limits)
    puts = 3 if is_local else 6
    assert clock.now - 100.0 == pytest.approx(2.0 * (puts - 1))


def test_what_is_there_already_costs_nothing_of_the_limit(tmp_path: Path) -> None:
    clock, store = Clock(), CheckpointStore(open_store(tmp_path / "store"), "s")
    parent = store.save("t", 0, fill(tmp_path / "in", 3)).manifest
    limits = UploadLimits(bandwidth=clock.bandwidth(1.0))
    store.save("t", 1, tmp_path / "in", parent=parent, limits=limits)
    assert clock.now == 100.0


class Slow(WrappedStore):
    """Not a local folder; each read waits until eight are there at once."""

    def __init__(self, inner: Any) -> None:
        super().__init__(inner)
        self.together = threading.Barrier(8)

    def local_path(self, key: str) -> Path | None:
        return None

    def get_chunks(self, key: str) -> Any:
        self.together.wait(60)
        return self.inner.get_chunks(key)


def test_a_remote_checkpoint_is_read_eight_objects_at_a_time_and_each_is_checked(tmp_path: Path) -> None:
    real = open_store(tmp_path / "store")
    ref = CheckpointStore(real, "s").save("t", 0, fill(tmp_path / "in", 16))
    CheckpointStore(Slow(real), "s").restore(ref, tmp_path / "out")
    assert (tmp_path / "out" / "body").read_bytes() == (tmp_path / "in" / "body").read_bytes()
    last = real.local_path(f"s/checkpoints/t/{ref.manifest.objects[-1].name}")
    assert last is not None
    data = bytearray(last.read_bytes())
    data[7] ^= 1
    last.write_bytes(data)
    with pytest.raises(CheckpointDamagedError, match="body: the content changed"):
        CheckpointStore(Slow(real), "s").restore(ref, tmp_path / "again")
    assert not (tmp_path / "again").exists()


def test_the_machine_says_how_many_are_put_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert UploadLimits().parallel_puts == 4
    monkeypatch.setenv("RAYSWEEP_PARALLEL_PUTS", "9")
    assert UploadLimits().parallel_puts == 9
    monkeypatch.setenv("RAYSWEEP_PARALLEL_PUTS", "all")
    with pytest.raises(SpecError, match="RAYSWEEP_PARALLEL_PUTS: 'all' is not a whole number; set it to"):
        UploadLimits()
