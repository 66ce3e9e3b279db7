"""Checkpoints of a training that is a trial: what a later part refers to is there as long as it is needed."""

from __future__ import annotations

import itertools
import os
import uuid
from collections.abc import Mapping
from pathlib import Path

import pytest

from raysweep.runs.training import RunFolder
from raysweep.storage.checkpoints.store import CheckpointStore, open_checkpoint
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.training.checkpoint_parts import CheckpointName, Parts, parse_name
from raysweep.training.checkpoints import Joiner

KEPT = 2
Files = Mapping[str, bytes]
FROZEN = os.urandom(200_000)
OWNER = "00000"


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
        self.joiner = Joiner(self.folder, OWNER)
        self.numbers = list(self.store.numbers(OWNER))
        if self.numbers:
            self.joiner.begin_from(self.store.read_manifest(self.uri(self.numbers[-1])))
        self.start_workers()
        return self

    def start_workers(self) -> None:
        """A new group, which continues from the newest checkpoint."""
        above = max(self.numbers, default=0)
        start = str(CheckpointName(above, "0" * 8)) if above else None
        store = self.folder.store
        self.workers = [
            Parts(store, "t-1", 1, rank, start, owner=OWNER, above=above) for rank in range(self.num_workers)
        ]
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
        return self.store.uri(OWNER, number)

    def restored(self, number: int) -> dict[str, bytes]:
        with open_checkpoint(self.uri(number)) as folder:
            return read(folder)

    def objects(self) -> set[str]:
        """The hashes of what is stored, and how often each is there."""
        keys = [info.key for info in self.folder.store.list("t-1/checkpoints")]
        return {key for key in keys if not key.endswith(".json")}

    def check(self) -> None:
        """What is kept is whole, and what was given."""
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


def test_what_does_not_change_is_stored_once_also_by_all_workers_and_after_a_restart(run: Run) -> None:
    for step in range(4):
        run.report({"frozen": FROZEN, "step": b"%d" % step}, {"frozen": FROZEN})
    run.start_workers()
    run.report({"frozen": FROZEN, "step": b"4"}, None)
    run.attempt().report({"frozen": FROZEN, "step": b"5"}, None)
    run.check()
    assert sum(info.size_bytes for info in run.folder.store.list("t-1/checkpoints")) < 1.1 * len(FROZEN)


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
