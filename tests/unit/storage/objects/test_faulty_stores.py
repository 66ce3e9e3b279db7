"""Checkpoints on a storage that fails: the same promises on a local disk and on S3, whatever fails, and when.

On S3 the server itself fails (500s, slow answers, resets, answers that are lost after the work is done); on a
local disk the calls do. The fault is tried at each request that a save, a restore and a deletion make.
"""

from __future__ import annotations

import errno
import itertools
import os
import secrets
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol

import pytest

from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.storage.checkpoints.manifest import Manifest
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.checkpoints.uploads import CHUNK_BYTES, SMALL_BYTES
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore
from tests.faulty_s3 import FAULTS, Fault, FaultyS3, serving
from tests.sampling import sampled
from tests.unit.storage.folders import read, write

pytestmark = pytest.mark.timeout(600)
# Both kinds of storage with the faults that matter most: nothing was done, and it was done but the answer was
# lost. A reset is to its client what an error is, and what is slow is only late.
EACH_FAULT = pytest.mark.parametrize("fault", sampled(FAULTS, lambda fault: fault in ("error", "lost")))
BODY = os.urandom(CHUNK_BYTES)
FIRST = {"body": BODY, "head": os.urandom(SMALL_BYTES), "step": b"1"}
SECOND = {"body": BODY, "head": os.urandom(SMALL_BYTES), "step": b"2"}


class Broken(Protocol):
    """A kind of storage: `store` is an empty one, `failing` lets the nth request to it fail."""

    def store(self) -> Store: ...

    def failing(self, plan: Mapping[int, Fault]) -> AbstractContextManager[list[Any]]: ...


class BrokenDisk:
    """Each call of the store is a request. A slow one is only slow."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._plan: dict[int, Fault] = {}
        self._seen = 0
        self._fired: list[Any] = []

    def store(self) -> Store:
        outer, inner = self, open_store(self._folder / secrets.token_hex(4))

        class Failing(WrappedStore):
            def around(self, operation: Any, key: str, call: Callable[[], Any]) -> Any:
                return outer.around(operation, key, call)

        return Failing(inner)

    def around(self, operation: str, key: str, call: Callable[[], Any]) -> Any:
        self._seen += bool(self._plan)
        fault = self._plan.get(self._seen)
        if fault is None:
            return call()
        self._fired.append((fault, operation, key))
        if fault in ("error", "reset"):
            raise StorageUnavailableError(key, os.strerror(errno.EIO), "try again")
        done = call()
        if fault == "lost":
            raise StorageUnavailableError(key, os.strerror(errno.ESTALE), "try again")
        return done

    @contextmanager
    def failing(self, plan: Mapping[int, Fault]) -> Iterator[list[Any]]:
        self._plan, self._seen, self._fired = dict(plan), 0, []
        try:
            yield self._fired
        finally:
            self._plan = {}


class BrokenServer:
    """Each request over HTTP is one."""

    def __init__(self, server: FaultyS3) -> None:
        self._server = server

    def store(self) -> Store:
        return open_store(f"s3://bucket/{secrets.token_hex(8)}")

    @contextmanager
    def failing(self, plan: Mapping[int, Fault]) -> Iterator[list[Any]]:
        with self._server.failing(dict(plan)) as server:
            yield server.fired


@pytest.fixture(scope="module")
def server() -> Iterator[FaultyS3]:
    with serving() as (faulty, endpoint), pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_REGION", "us-east-1")
        request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
        with urllib.request.urlopen(request) as response:
            assert response.status == 200
        yield faulty


@pytest.fixture(params=["local", "s3"])
def broken(request: pytest.FixtureRequest, tmp_path: Path) -> Broken:
    if request.param == "local":
        return BrokenDisk(tmp_path / "disk")
    return BrokenServer(request.getfixturevalue("server"))


def begin(broken: Broken, tmp_path: Path) -> tuple[CheckpointStore, Manifest]:
    """A store with one checkpoint."""
    checkpoints = CheckpointStore(broken.store(), "s", give_up_after_s=60)
    return checkpoints, checkpoints.save("t", 0, write(tmp_path / "in", FIRST)).manifest


def at_each_request(broken: Broken, fault: Fault) -> Iterator[tuple[int, AbstractContextManager[list[Any]]]]:
    """The fault at the first request, at the second, and so on, until it meets none any more."""
    for nth in itertools.count(1):
        met: list[list[Any]] = []

        @contextmanager
        def failing(nth: int = nth, met: list[list[Any]] = met) -> Iterator[list[Any]]:
            with broken.failing({nth: fault}) as fired:
                met.append(fired)
                yield fired

        yield nth, failing()
        assert met, "the fault was not tried"
        if not met[0]:
            assert nth > 1, "no request was made at all"
            return


def whole(checkpoints: CheckpointStore, number: int, expected: dict[str, bytes], target: Path) -> None:
    checkpoints.restore(checkpoints.uri("t", number), target)
    assert read(target) == expected


@EACH_FAULT
def test_a_save_survives_one_fault_at_any_request(broken: Broken, tmp_path: Path, fault: Fault) -> None:
    """It is committed and whole; what it shares with the one before is still there, once."""
    for nth, failing in at_each_request(broken, fault):
        checkpoints, parent = begin(broken, tmp_path)
        source = write(tmp_path / "in", SECOND)
        with failing:
            ref = checkpoints.save("t", 1, source, parent=parent)
        assert ref.manifest.new_bytes == SMALL_BYTES + 1
        whole(checkpoints, 1, SECOND, tmp_path / f"out-{nth}")
        checkpoints.delete(checkpoints.uri("t", 0))
        checkpoints.verify(ref)
        needed = {checkpoints.addresses.object_key(ref.manifest, each) for each in ref.manifest.objects}
        left = {info.key for info in checkpoints.store.list() if not info.key.endswith(".json")}
        assert left == needed, "an object was put twice, or left behind"


@EACH_FAULT
def test_a_restore_survives_one_fault_at_any_request(broken: Broken, tmp_path: Path, fault: Fault) -> None:
    checkpoints, _ = begin(broken, tmp_path)
    for nth, failing in at_each_request(broken, fault):
        with failing:
            whole(checkpoints, 0, FIRST, tmp_path / f"out-{nth}")


@EACH_FAULT
def test_a_deletion_with_one_fault_at_any_request_takes_nothing_that_is_needed(
    broken: Broken, tmp_path: Path, fault: Fault
) -> None:
    """It may fail, and say so; the next one completes it."""
    for nth, failing in at_each_request(broken, fault):
        checkpoints, parent = begin(broken, tmp_path)
        ref = checkpoints.save("t", 1, write(tmp_path / "in", SECOND), parent=parent)
        with failing, suppress(StorageError):
            checkpoints.delete(checkpoints.uri("t", 0))
        whole(checkpoints, 1, SECOND, tmp_path / f"out-{nth}")
        checkpoints.delete(checkpoints.uri("t", 0))
        assert not checkpoints.exists(checkpoints.uri("t", 0))
        checkpoints.verify(ref)
        assert len(list(checkpoints.store.list())) == 1 + len(ref.manifest.objects)


@EACH_FAULT
def test_a_number_that_is_taken_is_refused_whatever_reply_is_lost(
    broken: Broken, tmp_path: Path, fault: Fault
) -> None:
    """What looks like our own put that landed is another's."""
    checkpoints, _ = begin(broken, tmp_path)
    source = write(tmp_path / "in", {"step": b"2"})
    for nth, failing in at_each_request(broken, fault):
        with failing, pytest.raises(StorageError, match="exists"):
            checkpoints.save("t", 0, source)
        whole(checkpoints, 0, FIRST, tmp_path / f"out-{nth}")


@EACH_FAULT
def test_a_storage_that_fails_at_every_third_request_is_good_enough(
    broken: Broken, tmp_path: Path, fault: Fault
) -> None:
    checkpoints, parent = begin(broken, tmp_path)
    source = write(tmp_path / "in", SECOND)
    with broken.failing(dict.fromkeys(range(1, 300, 3), fault)) as fired:
        checkpoints.save("t", 1, source, parent=parent)
        whole(checkpoints, 1, SECOND, tmp_path / "out")
    assert len(fired) >= 2


def test_a_storage_that_stays_away_fails_the_save_and_shows_nothing(broken: Broken, tmp_path: Path) -> None:
    checkpoints, parent = begin(broken, tmp_path)
    hurried = CheckpointStore(checkpoints.store, "s", give_up_after_s=0.5)
    source = write(tmp_path / "in", SECOND)
    with broken.failing(dict.fromkeys(range(1, 10_000), "error")), pytest.raises(StorageError):
        hurried.save("t", 1, source, parent=parent)
    assert checkpoints.numbers("t") == (0,)
    whole(checkpoints, 0, FIRST, tmp_path / "out")
    checkpoints.save("t", 2, source, parent=parent)
    whole(checkpoints, 2, SECOND, tmp_path / "out-2")
