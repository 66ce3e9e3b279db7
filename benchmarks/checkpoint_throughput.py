"""checkpoint-throughput: one checkpoint of 1 GB, stored and restored: raysweep, `cp`, and what Ray does.

Ray Tune and Ray Train copy a checkpoint by `StorageContext.persist_current_checkpoint`, and restore it by
`Checkpoint.to_directory`: these calls are timed, each of its own version, without the cluster around them.
raysweep's are `CheckpointStore.save` and `restore`, as its workers call them. The bytes are random: nothing
is shared. raysweep has them on the disk before it returns, and compares each byte with its hash when it
reads; the peers do neither, so `cp` is there with and without `sync`. What is read was written just before:
it comes from memory where the machine has room.

`limits`: how fast this machine writes and syncs, hashes with one thread, and (S3) answers one client.
"""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any, Final

from benchmarks.measure import Contender, Json, Sample, compare, significant, target
from benchmarks.places import Place, place

MB: Final = 1_000_000
FILES: Final = 4
_PIECE: Final = 4 * 1024 * 1024
_IMPORTED: Final = ("blake3", "raysweep.raycompat.storages", "raysweep.storage.checkpoints.store")
Copy = Callable[[Path, Place], Any]
Fetch = Callable[[Any, Path, Place], None]


def run_s3(rounds: int, *, size_bytes: int = 1000 * MB) -> Json:
    """To and from an S3 server on loopback."""
    return run(rounds, size_bytes=size_bytes, is_s3=True)


def run(rounds: int, *, size_bytes: int = 1000 * MB, is_s3: bool = False) -> Json:
    """All of them, one after the other, in each round."""
    for module in _IMPORTED:
        importlib.import_module(module)
    peers: list[tuple[str, str, Copy, Fetch]] = [
        ("raysweep", "CheckpointStore.save, restore", _save, _restore),
        (
            "tune",
            "as a trial stores, Checkpoint.to_directory",
            _persist_tune,
            _to_directory,
        ),
        (
            "train",
            "as a worker stores, Checkpoint.to_directory",
            _persist_train,
            _to_directory,
        ),
    ]
    if not is_s3:
        peers += [
            ("cp", "cp -r", _cp, _cp_back),
            ("cp_sync", "cp -r, then sync of each file", _cp_sync, _cp_back),
        ]
    contenders = [
        Contender(name=name, settings=settings, run=_timed(copy, fetch, size_bytes, is_s3))
        for name, settings, copy, fetch in peers
    ]
    shown, samples = compare(contenders, rounds, "checkpoint")
    rates = {
        name: {what: median(each.extra[what] for each in found) for what in ("store_mb_s", "restore_mb_s")}
        for name, found in samples.items()
    }
    limits = _limits(size_bytes, is_s3)
    own, fastest = (
        rates["raysweep"],
        {
            "store": min(limits["hash_mb_s"], limits["s3_put_mb_s" if is_s3 else "write_and_sync_mb_s"]),
            "restore": min(limits["hash_mb_s"], limits["s3_get_mb_s" if is_s3 else "write_mb_s"]),
        },
    )
    return {
        "what": f"one checkpoint of {size_bytes / MB:.0f} MB in {FILES} files, stored and restored, "
        + ("S3 on loopback" if is_s3 else "local disk"),
        **shown,
        "limits": limits,
        "targets": [
            target(f"{what}, of the limit", own[f"{what}_mb_s"] / limit, at_least=0.8)
            for what, limit in fastest.items()
        ],
    }


def _timed(copy: Copy, fetch: Fetch, size_bytes: int, is_s3: bool) -> Callable[[], Sample]:
    def run() -> Sample:
        with place(is_s3=is_s3) as there:
            source, target = there.folder / "source", there.folder / "target"
            _fill(source, size_bytes)
            os.sync()  # what the round before, or the filling, has left to write is not this one's
            began = time.perf_counter()
            stored = copy(source, there)
            stored_s = time.perf_counter() - began
            os.sync()
            began = time.perf_counter()
            fetch(stored, target, there)
            restored_s = time.perf_counter() - began
            _expect_same(source, target)
        extra = {
            "store_mb_s": size_bytes / MB / stored_s,
            "restore_mb_s": size_bytes / MB / restored_s,
            "store_s": stored_s,
            "restore_s": restored_s,
        }
        return Sample(units=1, wall_s=stored_s + restored_s, extra=extra)

    return run


def _fill(folder: Path, size_bytes: int) -> None:
    folder.mkdir(parents=True)
    for number in range(FILES):
        left = size_bytes // FILES
        with (folder / f"part-{number}").open("wb") as file:
            while left > 0:
                left -= file.write(os.urandom(min(_PIECE, left)))


def _expect_same(source: Path, found: Path) -> None:
    """Compared by size and a piece of each file: what was lost or cut short is no restore."""
    for path in source.iterdir():
        with path.open("rb") as one, next(found.rglob(path.name)).open("rb") as other:
            if path.stat().st_size != os.fstat(other.fileno()).st_size or one.read(4096) != other.read(4096):
                raise RuntimeError(f"{path.name} came back as another")


# -- the contenders -------------------------------------------------------------------------------------


def _save(source: Path, there: Place) -> Any:
    from raysweep.storage.checkpoints.store import CheckpointStore

    return CheckpointStore.at(there.path, "throughput").save("00000", 1, source)


def _restore(stored: Any, found: Path, there: Place) -> None:
    from raysweep.storage.checkpoints.store import CheckpointStore

    CheckpointStore.at(there.path, "throughput").restore(stored, found)


def _persist_tune(source: Path, there: Place) -> Any:
    from raysweep.raycompat.storages import persist_as_tune

    return persist_as_tune(source, "throughput", **there.for_ray)


def _persist_train(source: Path, there: Place) -> Any:
    from raysweep.raycompat.storages import persist_as_train

    return persist_as_train(source, "throughput", **there.for_ray)


def _to_directory(stored: Any, found: Path, there: Place) -> None:
    stored.to_directory(str(found))


def _cp(source: Path, there: Place) -> Path:
    stored = there.folder / "copy"
    subprocess.run(["cp", "-r", str(source), str(stored)], check=True)
    return stored


def _cp_sync(source: Path, there: Place) -> Path:
    stored = _cp(source, there)
    subprocess.run(["sync", *map(str, stored.iterdir())], check=True)
    return stored


def _cp_back(stored: Path, found: Path, there: Place) -> None:
    subprocess.run(["cp", "-r", str(stored), str(found)], check=True)


# -- the limits -----------------------------------------------------------------------------------------


def _limits(size_bytes: int, is_s3: bool) -> dict[str, float]:
    """What the machine gives, in MB/s, of three tries the median."""
    found: dict[str, list[float]] = {}
    for _ in range(3):
        for name, rate in _measure(size_bytes, is_s3).items():
            found.setdefault(name, []).append(rate)
    return {name: significant(median(rates)) for name, rates in found.items()}


def _measure(size_bytes: int, is_s3: bool) -> dict[str, float]:
    from blake3 import blake3

    data = os.urandom(_PIECE)
    pieces = max(1, size_bytes // 4 // _PIECE)
    mb = pieces * _PIECE / MB
    rates = {"hash_mb_s": mb / _seconds(lambda: [blake3(data).digest() for _ in range(pieces)])}
    with place(is_s3=is_s3) as there:
        if is_s3:
            from raysweep.storage.objects.opening import open_store

            store = open_store(there.path)
            rates["s3_put_mb_s"] = mb / _seconds(lambda: [store.put(f"{n}", data) for n in range(pieces)])
            rates["s3_get_mb_s"] = mb / _seconds(lambda: [store.get(f"{n}") for n in range(pieces)])
            return rates
        os.sync()
        written_s, synced_s = _write(there.folder / "limit", data, pieces)
        rates |= {"write_mb_s": mb / written_s, "write_and_sync_mb_s": mb / (written_s + synced_s)}
        shutil.rmtree(there.folder / "limit", ignore_errors=True)
    return rates


def _write(path: Path, data: bytes, pieces: int) -> tuple[float, float]:
    """Seconds of writing, and of the sync after it."""
    with path.open("wb", buffering=0) as file:
        written_s = _seconds(lambda: [file.write(data) for _ in range(pieces)])
        return written_s, _seconds(lambda: os.fsync(file.fileno()))


def _seconds(call: Callable[[], object]) -> float:
    began = time.perf_counter()
    call()
    return time.perf_counter() - began
