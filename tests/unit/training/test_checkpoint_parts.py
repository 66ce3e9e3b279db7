"""A training's checkpoints: the parts of several workers, joined to one."""

from __future__ import annotations

import itertools
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from raysweep.errors import CheckpointDamagedError, SpecError
from raysweep.runs.training import CHECKPOINT_OWNER, RunFolder
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, T, WrappedStore
from raysweep.training.checkpoint_parts import CheckpointName, Parts, parse_name
from raysweep.training.checkpoints import Joiner, read_parts

KEPT = 2
Files = Mapping[str, bytes]
FROZEN = os.urandom(200_000)


class Run:
    """A training's side: joins and commits what its workers report, and deletes all but the last two."""

    def __init__(self, store: Store, tmp_path: Path, num_workers: int = 1) -> None:
        self.folder = RunFolder(store, "t-1")
        self.store = CheckpointStore(store, "t-1")
        self.num_workers = num_workers
        self._tmp_path = tmp_path
        self.given: dict[int, dict[str, bytes]] = {}

    def attempt(self) -> Run:
        """Begin anew from what is stored."""
        self.joiner = Joiner(self.folder, CHECKPOINT_OWNER)
        self.numbers = list(self.store.numbers(CHECKPOINT_OWNER))
        if self.numbers:
            self.joiner.begin_from(self.store.read_manifest(self.uri(self.numbers[-1])))
        self.start_workers()
        return self

    def start_workers(self) -> None:
        """A new group, which continues from the newest checkpoint."""
        above = max(self.numbers, default=0)
        start = str(CheckpointName(above, "0" * 8)) if above else None
        store = self.folder.store
        self.workers = [Parts(store, "t-1", rank, start, above=above) for rank in range(self.num_workers)]
        self.joiner.begin(self.num_workers)

    def report(self, *files: Files | None) -> int:
        """Each worker gives files, or None; the number of the checkpoint."""
        name = self.workers[0].make_name()
        merged: dict[str, bytes] = {}
        for worker, each in zip(self.workers, files, strict=True):
            if each is not None:
                merged = {**each, **merged}
                assert worker.persist(self.write(each), name)
        self.given[known(name).number] = merged
        if merged:
            self.register(name)
        return known(name).number

    def write(self, files: Files) -> Path:
        folder = self._tmp_path / "given" / uuid.uuid4().hex
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return folder

    def register(self, name: str) -> None:
        """All workers have reported it."""
        self.store.commit(self.joiner.join(known(name)))
        self.numbers = [*self.numbers, known(name).number]
        gone, self.numbers = self.numbers[:-KEPT], self.numbers[-KEPT:]
        if gone:
            self.store.delete(*map(self.uri, gone))

    def finish(self) -> None:
        self.folder.delete_unused_checkpoints(frozenset())

    def uri(self, number: int) -> str:
        return self.store.uri(CHECKPOINT_OWNER, number)

    def restored(self, number: int) -> dict[str, bytes]:
        with open_checkpoint(self.uri(number)) as folder:
            return read(folder)

    def objects(self) -> set[str]:
        """The hashes of what is stored, and how often each is there."""
        keys = [info.key for info in self.folder.store.list("t-1/checkpoints")]
        return {key for key in keys if not key.endswith(".json")}

    def check(self) -> None:
        """Kept checkpoints are whole, and as they were given."""
        for number in self.numbers:
            self.store.verify(self.uri(number))
            assert self.restored(number) == self.given[number]


def known(text: str) -> CheckpointName:
    name = parse_name(text)
    assert name is not None
    return name


def in_memory() -> Store:
    return open_store(f"memory://{uuid.uuid4().hex}")


def read(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()
    }


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(open_store(tmp_path / "runs"), tmp_path, 2).attempt()


def test_the_parts_of_several_workers_are_one_checkpoint_that_its_address_gives_back(run: Run) -> None:
    name = run.report({"shard-0": b"0" * 70_000, "meta": b"m"}, {"shard-1": b"1" * 70_000, "sub/x": b""})
    run.check()
    manifest = CheckpointStore(run.folder.store, "t-1").read_manifest(run.uri(name))
    assert [entry.path for entry in manifest.files] == ["meta", "shard-0", "shard-1", "sub/x"]
    assert manifest.metadata == {"workers": [0, 1]}
    assert (manifest.trial_id, manifest.number) == (CHECKPOINT_OWNER, 1)


def test_of_one_path_from_two_workers_the_lower_ranks_counts(run: Run) -> None:
    name = run.report({"rng": b"rank 0"}, {"rng": b"rank 1", "own": b"1"})
    assert run.restored(name) == {"rng": b"rank 0", "own": b"1"}


def test_a_file_where_another_worker_has_a_folder_is_refused(run: Run) -> None:
    with pytest.raises(SpecError, match="'a' is a file of one worker and a folder of another"):
        run.report({"a": b"1"}, {"a/b": b"2"})


def test_what_does_not_change_is_stored_once_also_by_all_workers_and_after_a_restart(run: Run) -> None:
    for step in range(4):
        run.report({"frozen": FROZEN, "step": b"%d" % step}, {"frozen": FROZEN})
    run.start_workers()
    run.report({"frozen": FROZEN, "step": b"4"}, None)
    run.attempt().report({"frozen": FROZEN, "step": b"5"}, None)
    run.check()
    assert sum(info.size_bytes for info in run.folder.store.list("t-1/checkpoints")) < 1.1 * len(FROZEN)


def test_until_all_is_stored_and_all_workers_have_reported_there_is_no_checkpoint(run: Run) -> None:
    name = run.workers[0].make_name()
    run.workers[0].persist(run.write({"a": b"1"}), name)
    with pytest.raises(CheckpointDamagedError, match="no such checkpoint"):
        run.restored(known(name).number)
    run.workers[1].persist(run.write({"b": b"2"}), name)
    run.given[known(name).number] = {"a": b"1", "b": b"2"}
    run.register(name)
    run.check()


@pytest.mark.parametrize("length", [4, pytest.param(7, marks=pytest.mark.slow)])
def test_whoever_gives_files_when_nothing_referred_to_is_ever_deleted(tmp_path: Path, length: int) -> None:
    """Which of two workers gives files at each report: all patterns, each after a resume."""
    who = [(True, False), (False, True), (True, True)]
    for pattern in itertools.product(who, repeat=length):
        if pattern[0] != (True, True):
            continue
        run = Run(in_memory(), tmp_path, 2).attempt()
        files = ({"a": FROZEN[:70_000], "s": b"0"}, {"b": FROZEN[70_000:140_000]})
        run.report(*files)
        run.attempt()
        for step, gives in enumerate(pattern[1:]):
            a = {**files[0], "s": b"%d" % step} if gives[0] else None
            run.report(a, files[1] if gives[1] else None)
            run.check()
        run.finish()
        run.check()


def test_objects_outlive_their_checkpoint_only_while_a_worker_refers_to_them(run: Run) -> None:
    run.report({"a": FROZEN}, {"b": FROZEN[::-1]})
    for step in range(3):
        run.report({"s": b"%d" % step}, None)
    stored = run.objects()
    run.report(None, {"b": FROZEN[::-1]})
    run.check()
    assert run.objects() - stored == set(), "the other worker's last part is still there"
    run.report({"s": b"1"}, {"b": b"other"})
    run.report({"s": b"2"}, {"b": b"other"})
    run.check()
    assert sum(info.size_bytes for info in run.folder.store.list("t-1/checkpoints")) < 10_000


class WaitingStore(WrappedStore):
    """Objects of one content wait until they are let through."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.reached, self.go = threading.Event(), threading.Event()
        self.is_on = False

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        if self.is_on and operation == "put" and threading.current_thread().name == "first":
            self.reached.set()
            assert self.go.wait(60)
        return call()


def test_of_two_uploads_at_once_the_second_refers_to_nothing(tmp_path: Path) -> None:
    store = WaitingStore(open_store(tmp_path / "runs"))
    run = Run(store, tmp_path).attempt()
    run.report({"a": FROZEN})
    worker, names = run.workers[0], [run.workers[0].make_name() for _ in range(2)]
    store.is_on = True
    first = threading.Thread(
        name="first", target=worker.persist, args=(run.write({"a": FROZEN, "n": b"1"}), names[0])
    )
    first.start()
    assert store.reached.wait(60)
    worker.persist(run.write({"a": FROZEN, "n": b"2"}), names[1])
    store.go.set()
    first.join()
    part = read_parts(run.folder, known(names[1]), CHECKPOINT_OWNER)[0]
    assert part.new_bytes == part.size_bytes
    for number, name in enumerate(names, 1):
        run.given[known(name).number] = {"a": FROZEN, "n": b"%d" % number}
        run.register(name)
    run.check()


def test_a_damaged_part_is_named_and_makes_no_checkpoint(run: Run, tmp_path: Path) -> None:
    name = run.workers[0].make_name()
    for worker in run.workers:
        worker.persist(run.write({"a": b"1"}), name)
    path = tmp_path / "runs" / "t-1" / name / "part-00001.json"
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(CheckpointDamagedError, match=r"part-00001\.json: a worker's part .* is damaged"):
        run.register(name)
    assert run.store.numbers(CHECKPOINT_OWNER) == ()


def test_a_flipped_bit_is_found_when_a_worker_restores(run: Run, tmp_path: Path) -> None:
    run.report({"weights": FROZEN}, None)
    (path,) = [tmp_path / "runs" / key for key in run.objects()]
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    run.start_workers()
    with pytest.raises(CheckpointDamagedError, match="weights"):
        run.workers[1].restore(str(CheckpointName(run.numbers[-1], "0" * 8)))


def test_a_worker_reads_what_it_has_just_reported_once_that_is_committed(run: Run) -> None:
    name = run.workers[0].make_name()
    run.workers[0].persist(run.write({"a": b"1"}), name)
    found: list[dict[str, bytes]] = []
    reading = threading.Thread(target=lambda: found.append(read(Path(run.workers[0].restore(name)))))
    reading.start()
    run.register(name)
    reading.join(60)
    assert found == [{"a": b"1"}]


def test_what_was_restored_goes_with_the_worker(run: Run) -> None:
    name = str(CheckpointName(run.report({"a": b"1"}, None), "0" * 8))
    folder = Path(run.workers[0].restore(name))
    assert read(folder) == {"a": b"1"}
    assert run.workers[0].restore(name) == str(folder)
    run.workers[0].close()
    assert not folder.parent.exists()
    with run.workers[0].opened(name) as opened:
        assert read(opened) == {"a": b"1"}
    assert not opened.exists()


def test_a_plain_folder_that_user_code_has_named_is_no_part(run: Run) -> None:
    plain = "checkpoint_2026-11-01_10-00-00.000000_000001"
    assert not run.workers[0].persist(run.write({"a": b"1"}), plain)


@pytest.mark.parametrize("text", ["checkpoint_1", "checkpoint_2026-11-01_10-00-00.0_000001", "model_000001"])
def test_what_is_no_name_of_ours_is_none(text: str) -> None:
    assert parse_name(text) is None
    assert str(parse_name("checkpoint_1000000001-0123abcd")) == "checkpoint_1000000001-0123abcd"
