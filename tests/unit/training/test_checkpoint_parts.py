"""A training's checkpoints: the parts of several workers, committed by who holds the claim."""

from __future__ import annotations

import itertools
import json
import os
import threading
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from raysweep.errors import CheckpointDamagedError, FencedError, SpecError
from raysweep.runs.ownership.training_claim import Claim, claim_run, read_newest
from raysweep.runs.training import CHECKPOINT_OWNER, RunFolder
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import Operation, T, WrappedStore
from raysweep.training.checkpoint_list import SNAPSHOT, read_snapshot
from raysweep.training.checkpoint_parts import NUMBERS, CheckpointName, Parts, parse_name
from raysweep.training.checkpoints import Keeper, read_parts

KEPT = 2
Files = Mapping[str, bytes]
FROZEN = os.urandom(200_000)


class Run:
    """Ray Train's side, as its checkpoint manager goes about it: register, store the list, delete."""

    def __init__(self, store: Store, tmp_path: Path, num_workers: int = 1) -> None:
        self.folder = RunFolder(store, "t-1")
        self.num_workers = num_workers
        self._tmp_path = tmp_path
        self.given: dict[str, dict[str, bytes]] = {}

    def attempt(self) -> Run:
        """Claim the run, and start its workers."""
        claim = claim_run(self.folder, read_newest(self.folder))
        assert isinstance(claim, Claim)
        self.claim = claim
        self.keeper = Keeper(claim)
        self.keeper.take()
        state = read_snapshot(self.folder) or {"checkpoint_results": []}
        self.names = [each["checkpoint_dir_name"] for each in state["checkpoint_results"]]
        self.start_workers()
        return self

    def start_workers(self) -> None:
        """A new group, which continues from the newest checkpoint."""
        start = self.names[-1] if self.names else None
        store, number = self.folder.store, self.claim.number
        self.workers = [Parts(store, "t-1", number, rank, start) for rank in range(self.num_workers)]
        self.keeper.begin(self.num_workers)

    def report(self, *files: Files | None) -> str:
        """Each worker gives files, or None."""
        name = self.workers[0].make_name()
        merged: dict[str, bytes] = {}
        for worker, each in zip(self.workers, files, strict=True):
            if each is not None:
                merged = {**each, **merged}
                assert worker.persist(self.write(each), name)
        self.given[name] = merged
        if merged:
            self.register(name)
        return name

    def write(self, files: Files) -> Path:
        folder = self._tmp_path / "given" / uuid.uuid4().hex
        for path, data in files.items():
            (folder / path).parent.mkdir(parents=True, exist_ok=True)
            (folder / path).write_bytes(data)
        return folder

    def register(self, name: str) -> None:
        """All workers have reported it."""
        listed = [*self.names, name][-KEPT:]
        results = [{"checkpoint_dir_name": each, "metrics": {"loss": 0.5}} for each in listed]
        self.keeper.write(json.dumps({"checkpoint_results": results}))
        gone, self.names = [each for each in self.names if each not in listed], listed
        store = self.folder.store
        for each in gone:
            store.delete(*[info.key for info in store.list(f"t-1/{each}")])
        self.keeper.collect()

    def finish(self) -> None:
        self.folder.delete_unused_checkpoints(frozenset(self.names))
        self.keeper.finish(self.names)

    def uri(self, name: str) -> str:
        uri = self.keeper.uri_of(name)
        assert uri is not None
        return uri

    def restored(self, name: str) -> dict[str, bytes]:
        with open_checkpoint(self.uri(name)) as folder:
            return read(folder)

    def objects(self) -> set[str]:
        """The hashes of what is stored, and how often each is there."""
        keys = [info.key for info in self.folder.store.list("t-1/checkpoints")]
        return {key for key in keys if not key.endswith(".json")}

    def check(self) -> None:
        """What the list names is whole, and what was given."""
        for name in self.names:
            assert self.restored(name) == self.given[name]


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
    assert manifest.metadata == {"attempt": 1, "metrics": {"loss": 0.5}, "workers": [0, 1]}
    assert (manifest.trial_id, manifest.number) == (CHECKPOINT_OWNER, NUMBERS + 1)


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
        run.restored(name)
    run.workers[1].persist(run.write({"b": b"2"}), name)
    run.given[name] = {"a": b"1", "b": b"2"}
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


def test_a_manifest_outlives_the_list_only_while_a_worker_refers_to_it(run: Run) -> None:
    run.report({"a": FROZEN}, {"b": FROZEN[::-1]})
    first = run.names[0]
    for step in range(3):
        run.report({"s": b"%d" % step}, None)
    store = CheckpointStore(run.folder.store, "t-1")
    assert store.exists(run.uri(first))
    run.report(None, {"b": FROZEN[::-1]})
    assert not store.exists(run.uri(first))
    run.report({"a": b"1"}, None)
    run.report({"a": b"2"}, None)
    assert len(store.numbers(CHECKPOINT_OWNER)) == 1 + KEPT
    run.check()


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
        run.given[name] = {"a": FROZEN, "n": b"%d" % number}
        run.register(name)
    run.check()


def test_a_superseded_attempt_commits_lists_and_deletes_nothing(tmp_path: Path) -> None:
    older = Run(open_store(tmp_path / "runs"), tmp_path).attempt()
    for step in range(2):
        older.report({"a": FROZEN, "s": b"%d" % step})
    newer = Run(older.folder.store, tmp_path).attempt()
    newer.given = dict(older.given)
    before = {info.key for info in older.folder.store.list("t-1/checkpoints") if info.key.endswith(".json")}
    with pytest.raises(FencedError):
        older.report({"a": FROZEN, "s": b"late"})
    older.keeper._listed = set()
    with pytest.raises(FencedError):
        older.keeper.collect()
    after = {info.key for info in older.folder.store.list("t-1/checkpoints") if info.key.endswith(".json")}
    assert after == before
    newer.report({"a": FROZEN, "s": b"new"})
    newer.check()
    numbers = [known(name).number for name in (older.names[-1], newer.names[-1])]
    assert numbers == [NUMBERS + 2, 2 * NUMBERS + 1]


class Died(BaseException):
    """The process is gone."""


class DyingStore(WrappedStore):
    """Dies before or after the nth operation that changes something."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.left: int | None = None
        self.is_after = False

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        if self.left is None or operation not in ("put", "delete"):
            return call()
        if self.left == 0 and not self.is_after:
            raise Died
        result = call()
        if self.left == 0:
            raise Died
        self.left -= 1
        return result


@pytest.mark.parametrize("is_after", [False, True])
def test_a_crash_between_any_two_operations_leaves_checkpoints_whole_and_the_next_attempt_the_rest(
    tmp_path: Path, is_after: bool
) -> None:
    for point in itertools.count():
        store = DyingStore(in_memory())
        run = Run(store, tmp_path, 2).attempt()
        for step in range(2):
            run.report({"a": FROZEN, "s": b"%d" % step}, {"b": b"%d" % step})
        given = dict(run.given)
        store.left, store.is_after = point, is_after
        try:
            for step in range(2, 4):
                name = f"step {step}"
                files = ({"a": FROZEN, "s": b"%d" % step}, {"b": b"%d" % step})
                given[name] = {**files[0], **files[1]}
                run.report(*files)
            died = False
        except Died:
            died = True
        store.left = None
        after = Run(store, tmp_path, 2).attempt()
        after.given = {**run.given, **{each: given.get(each, {}) for each in given}}
        for each in after.names:
            assert after.restored(each) in given.values()
        assert after.names
        after.given |= {each: after.restored(each) for each in after.names}
        after.report({"a": FROZEN, "s": b"new"}, {"b": b"new"})
        after.check()
        after.finish()
        after.check()
        checkpoints = CheckpointStore(store, "t-1")
        assert len(checkpoints.numbers(CHECKPOINT_OWNER)) == KEPT
        manifests = [checkpoints.read_manifest(after.uri(each)) for each in after.names]
        needed = {checkpoints.addresses.object_key(each, one) for each in manifests for one in each.objects}
        assert after.objects() == needed
        if not died:
            break
    assert point > 10


def test_a_damaged_part_is_named_and_makes_no_checkpoint(run: Run, tmp_path: Path) -> None:
    name = run.workers[0].make_name()
    for worker in run.workers:
        worker.persist(run.write({"a": b"1"}), name)
    path = tmp_path / "runs" / "t-1" / name / "part-00001.json"
    path.write_bytes(path.read_bytes().replace(b'"a"', b'"b"'))
    with pytest.raises(CheckpointDamagedError, match=r"part-00001\.json: a worker's part .* is damaged"):
        run.register(name)
    assert run.folder.get_versioned(SNAPSHOT) is None


def test_a_list_that_names_what_is_not_there_is_refused(run: Run) -> None:
    name = run.report({"a": b"1"}, None)
    run.folder.store.delete(f"{run.uri(name).removeprefix(run.folder.store.url + '/')}.json")
    with pytest.raises(CheckpointDamagedError, match="there is no such checkpoint"):
        run.attempt()


def test_a_flipped_bit_is_found_when_a_worker_restores(run: Run, tmp_path: Path) -> None:
    run.report({"weights": FROZEN}, None)
    (path,) = [tmp_path / "runs" / key for key in run.objects()]
    path.write_bytes(path.read_bytes()[:-1] + b"\0")
    run.start_workers()
    with pytest.raises(CheckpointDamagedError, match="weights"):
        run.workers[1].restore(run.names[-1])


def test_a_worker_reads_what_it_has_just_reported_once_that_is_committed(run: Run) -> None:
    name = run.workers[0].make_name()
    run.workers[0].persist(run.write({"a": b"1"}), name)
    found: list[dict[str, bytes]] = []
    reading = threading.Thread(target=lambda: found.append(read(Path(run.workers[0].restore(name)))))
    reading.start()
    run.given[name] = {"a": b"1"}
    run.register(name)
    reading.join(60)
    assert found == [{"a": b"1"}]


def test_what_was_restored_goes_with_the_worker(run: Run) -> None:
    name = run.report({"a": b"1"}, None)
    folder = Path(run.workers[0].restore(name))
    assert read(folder) == {"a": b"1"}
    assert run.workers[0].restore(name) == str(folder)
    run.workers[0].close()
    assert not folder.parent.exists()
    with run.workers[0].opened(name) as opened:
        assert read(opened) == {"a": b"1"}
    assert not opened.exists()


def test_plain_folders_that_user_code_has_named_stay_what_they_are(run: Run) -> None:
    plain = "checkpoint_2026-11-01_10-00-00.000000_000001"
    run.folder.store.put(f"t-1/{plain}/w", b"1")
    listed = {"checkpoint_results": [{"checkpoint_dir_name": plain, "metrics": {}}]}
    run.claim.replace(SNAPSHOT, json.dumps(listed).encode())
    run.attempt()
    assert not run.workers[0].persist(run.write({"a": b"1"}), plain)
    assert run.keeper.uri_of(plain) == run.keeper.export(plain) == f"{run.folder.uri}/{plain}"
    name = run.report({"a": b"1"}, None)
    run.names = [plain, name]
    run.finish()
    assert run.folder.store.get(f"t-1/{plain}/w") == b"1"
    assert run.restored(name) == {"a": b"1"}


def test_a_model_is_plain_files_on_a_disk_and_in_an_object_store(tmp_path: Path) -> None:
    files = {"model.txt": b"m" * 70_000, **{f"small/{n}": b"%d" % n for n in range(50)}, "empty": b""}
    for url in (str(tmp_path / "runs"), f"memory://{uuid.uuid4().hex}"):
        run = Run(open_store(url), tmp_path).attempt()
        model = run.keeper.export(run.report(files))
        store = run.folder.store
        found = {info.key: store.get(info.key) for info in store.list("t-1/model_000001")}
        assert {key.removeprefix("t-1/model_000001/"): data for key, data in found.items()} == files
        assert model == f"{run.folder.uri}/model_000001"
        assert run.keeper.export(None) is None


@pytest.mark.parametrize("text", ["checkpoint_1", "checkpoint_2026-11-01_10-00-00.0_000001", "model_000001"])
def test_what_is_no_name_of_ours_is_none(text: str) -> None:
    assert parse_name(text) is None
    assert str(parse_name("checkpoint_1000000001-0123abcd")) == "checkpoint_1000000001-0123abcd"
