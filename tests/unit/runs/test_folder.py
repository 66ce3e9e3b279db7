"""A sweep's folder, and who holds it."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path

import pytest

from raysweep.errors import StorageError
from raysweep.outcome import Cancellation, SweepOutcome, SweepProgress
from raysweep.runs.folder import SweepFolder, SweepRecord, list_sweeps
from raysweep.runs.ownership.departure import withdraw
from raysweep.runs.ownership.holder import current_holder
from raysweep.runs.reading.view import RunView
from raysweep.runs.snapshots import SNAPSHOTS_KEPT
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.journal import Journal
from raysweep.storage.objects.local import LocalStore
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore

RECORD = SweepRecord(
    digest="d", key="k", seed=7, spec={"name": "x", "param_space": {"lr": {"uniform": [0, 1]}}}
)


@pytest.fixture
def folder(store: Store) -> SweepFolder:
    return SweepFolder(store, "sweep-1")


def _progress(at: float = 1000.0, **holder: object) -> SweepProgress:
    return SweepProgress(
        sweep_id="sweep-1",
        name="x",
        status="running",
        holder=current_holder().model_copy(update=holder),
        generation=1,
        at=at,
        started_at=1.0,
        metric="m",
        mode="min",
    )


def _outcome() -> SweepOutcome:
    return SweepOutcome(
        sweep_id="sweep-1",
        name="x",
        key="k",
        status="completed",
        why="",
        metric="m",
        mode="min",
        best=None,
        trials=(),
        counts={},
        seed=7,
        started_at=1.0,
        ended_at=2.0,
        uri="",
        generation=1,
        error=None,
        spec_digest="d",
        raysweep_version="0",
    )


def test_the_spec_is_written_once(folder: SweepFolder) -> None:
    assert folder.read_spec() is None
    assert folder.write_spec_if_absent(RECORD)
    assert not folder.write_spec_if_absent(replace(RECORD, digest="other"))
    assert folder.read_spec() == RECORD
    folder.replace_spec(replace(RECORD, digest="other"))
    assert folder.read_spec() == replace(RECORD, digest="other")


@pytest.mark.parametrize("data", [b"", b"{", b"[]", b'{"format":1}', b'{"format":2,"digest":""}'])
def test_a_damaged_spec_is_an_error_that_names_it(folder: SweepFolder, data: bytes) -> None:
    folder.store.put("sweep-1/sweep.json", data)
    with pytest.raises(StorageError, match=r"sweep-1/sweep\.json"):
        folder.read_spec()


def test_progress(folder: SweepFolder) -> None:
    assert folder.read_progress() is None
    folder.write_progress(_progress(1.0))
    folder.write_progress(_progress(2.0))
    assert folder.read_progress() == _progress(2.0)
    folder.store.put("sweep-1/progress.json", b'{"sweep_id":')
    assert folder.read_progress() is None


def test_the_outcome_is_written_once(folder: SweepFolder) -> None:
    assert folder.read_outcome() is None
    assert folder.write_outcome_if_absent(_outcome())
    assert not folder.write_outcome_if_absent(_outcome().model_copy(update={"why": "again"}))
    assert folder.read_outcome() == _outcome()
    folder.store.put("sweep-1/outcome.json", b"{}")
    with pytest.raises(StorageError, match=r"outcome\.json"):
        folder.read_outcome()


def _state(number: int) -> list[bytes]:
    return [b'{"n":%d,' % number, '"text":"ü, \\"state\\":"}'.encode()]


def test_the_newest_good_snapshot_is_read(folder: SweepFolder) -> None:
    assert folder.snapshots.read_newest().state is None
    for number in (5, 50, 500):
        folder.snapshots.write(number, _state(number))
    latest = folder.snapshots.read_newest()
    assert (latest.number, latest.state, latest.notes) == (500, b"".join(_state(500)), ())
    keys = sorted(info.key for info in folder.store.list("sweep-1/snapshots"))
    assert len(keys) == SNAPSHOTS_KEPT
    data = folder.store.get(keys[-1])
    assert data is not None
    for changed in (data[:-1], data.replace(b"500", b"501"), data.replace(b'"n"', b'"m"'), b""):
        folder.store.put(keys[-1], changed)
        latest = folder.snapshots.read_newest()
        assert (latest.number, latest.state) == (50, b"".join(_state(50)))
        assert "damaged" in latest.notes[0]
        assert keys[-1] in latest.notes[0]
    folder.store.put(keys[0], b"")
    latest = folder.snapshots.read_newest()
    assert (latest.number, latest.state, len(latest.notes)) == (0, None, 2)


def test_sweeps_are_listed(store: Store) -> None:
    assert list_sweeps(store) == []
    for name in ("b", "a"):
        SweepFolder(store, name).write_spec_if_absent(RECORD)
    store.put("not-a-sweep/file", b"x")
    assert list_sweeps(store) == ["a", "b"]


def _fill(folder: SweepFolder, tmp_path: object) -> None:
    folder.write_spec_if_absent(RECORD)
    folder.write_progress(_progress())
    folder.snapshots.write(1, [b"{}"])
    for _ in range(3):
        journal = Journal.open(folder.store, folder.sweep_id)
        list(journal.read())
        journal.claim(lambda generation: b"{}")
    source = os.path.join(str(tmp_path), "source")
    os.makedirs(source, exist_ok=True)
    with open(os.path.join(source, "f.json"), "wb") as file:
        file.write(b"x")
    CheckpointStore(folder.store, folder.sweep_id).save("t1", 1, source)


def test_withdrawing_deletes_everything_in_a_safe_order(
    folder: SweepFolder, tmp_path: object, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = SweepFolder(folder.store, "sweep-10")
    other.write_spec_if_absent(RECORD)
    _fill(folder, tmp_path)
    deleted: list[str] = []
    delete = folder.store.delete

    def spy(*keys: str) -> None:  # the order cannot be seen from outside
        deleted.extend(keys)
        delete(*keys)

    monkeypatch.setattr(folder.store, "delete", spy)
    withdraw(folder)
    assert list(folder.store.list("sweep-1")) == []
    assert other.read_spec() == RECORD
    names = [key.removeprefix("sweep-1/") for key in deleted]
    assert names[-1] == "sweep.json"
    assert [name for name in names if name.startswith("journal")] == [
        f"journal/{number:012d}.jsonl" for number in (3, 2, 1)
    ]
    assert names.index("checkpoints/t1/1.json") < next(
        i for i, name in enumerate(names) if "checkpoints/t1/1-" in name
    )
    withdraw(folder)


def test_a_sweep_with_an_outcome_is_not_withdrawn(folder: SweepFolder, tmp_path: object) -> None:
    _fill(folder, tmp_path)
    folder.write_outcome_if_absent(_outcome())
    before = sorted(info.key for info in folder.store.list())
    with pytest.raises(StorageError, match="not withdrawn"):
        withdraw(folder)
    assert sorted(info.key for info in folder.store.list()) == before


class DurableOnlyStore(WrappedStore):
    """A power cut: what was not put durably is gone at once."""

    def put(self, key: str, data: bytes | memoryview, *, durable: bool = False) -> None:
        """See the class."""
        if durable:
            super().put(key, data, durable=durable)


def test_a_request_to_cancel_outlives_a_power_cut(tmp_path: Path) -> None:
    folder = SweepFolder(DurableOnlyStore(LocalStore(tmp_path)), "sweep-1")
    folder.write_cancellation(Cancellation(at=1.0, by="anna", reason="enough"))
    assert folder.read_cancellation() is not None


def test_only_the_newest_outcome_is_put_aside(tmp_path: Path) -> None:
    view, folder = RunView("sweep", str(tmp_path), "sweep-1"), SweepFolder(open_store(tmp_path), "sweep-1")
    old, new = (_outcome().model_copy(update={"generation": generation}) for generation in (1, 2))
    folder.write_outcome_if_absent(new)
    view.put_aside(old)
    assert view.outcome() == new
    view.put_aside(new)
    assert view.outcome() is None
    assert (tmp_path / "sweep-1" / "outcome-000002.json").is_file()
