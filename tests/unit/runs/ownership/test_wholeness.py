"""What was deleted under a sweep that runs is seen before the sweep is said to have ended."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from raysweep.errors import SweepDamagedError
from raysweep.runs.ownership import wholeness
from raysweep.runs.ownership.wholeness import check_end
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal import compaction
from raysweep.storage.journal.names import parse_name
from raysweep.storage.journal.objects import ObjectJournal
from tests.unit.verify.stored import Stored, store_sweep


@pytest.fixture
def stored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stored:
    monkeypatch.setattr(wholeness, "_PAUSE_S", 0.0)
    return store_sweep(tmp_path, is_ended=True, per_segment=1)


def numbers(stored: Stored) -> tuple[int, int]:
    """Of the newest claim, and of the last segment."""
    journal = stored.folder.journal().contents()
    return journal.claims[-1].number, journal.last_number


def check(stored: Stored, claim: int, last: int) -> None:
    check_end(stored.folder, stored.state, claim=claim, last=last)


def test_a_sweep_that_is_whole_is_whole(stored: Stored, monkeypatch: pytest.MonkeyPatch) -> None:
    """Compacted as well, which leaves claims where they are."""
    monkeypatch.setattr(compaction, "SINGLES", 8)
    claim, last = numbers(stored)
    check(stored, claim, last)
    for _ in ObjectJournal(stored.folder.store, f"{stored.folder.sweep_id}/journal").compact():
        check(stored, claim, last)
    names = [Path(name).name for name in stored.segments()]
    assert any(item.is_merged for name in names if (item := parse_name(name, 0)))


def lose(stored: Stored, what: str) -> None:
    claim, last = numbers(stored)
    checkpoint = stored.state.trials[0].checkpoint
    assert checkpoint is not None
    match what:
        case "sweep.json":
            (stored.path / what).unlink()
        case "journal" | "checkpoints":
            shutil.rmtree(stored.path / what)
        case "claim" | "oldest" | "last" | "middle":
            number = {"claim": claim, "oldest": 1, "last": last, "middle": claim + 1}[what]
            (stored.path / f"journal/{number:012d}.jsonl").unlink()
        case "manifest":
            (stored.path / f"{checkpoint.uri}.json").unlink()
        case "object":
            store = CheckpointStore(stored.folder.store, stored.folder.sweep_id)
            manifest = store.read_manifest(checkpoint.uri)
            stored.folder.store.delete(store.addresses.object_key(manifest, manifest.objects[0]))


@pytest.mark.parametrize(
    ("what", "said"),
    [
        ("sweep.json", r"sweep\.json: is gone: the sweep's folder was deleted"),
        ("journal", r"journal/\d+\.jsonl: is gone: parts of the sweep's folder were deleted"),
        ("claim", r"journal/\d+\.jsonl: is gone"),
        ("oldest", r"journal/000000000001\.jsonl: is gone"),
        ("middle", r"journal/\d+\.jsonl: is gone"),
        ("last", r"journal/\d+\.jsonl: is gone"),
        (
            "checkpoints",
            r"checkpoints/00000/\d+: there is no such checkpoint \(no manifest\), and it is the best",
        ),
        (
            "manifest",
            r"checkpoints/00000/\d+: there is no such checkpoint \(no manifest\), and it is the best",
        ),
        ("object", r"checkpoints/00000/.+ is gone, and the best trial's checkpoint needs it"),
    ],
)
def test_what_is_gone_is_named(stored: Stored, what: str, said: str) -> None:
    claim, last = numbers(stored)
    lose(stored, what)
    with pytest.raises(SweepDamagedError, match=said):
        check(stored, claim, last)


def test_at_each_look_the_claim_is_seen(stored: Stored) -> None:
    claim, _ = numbers(stored)
    lose(stored, "claim")
    with pytest.raises(SweepDamagedError, match="parts of the sweep's folder were deleted"):
        stored.folder.check_is_there(claim)
    stored.folder.check_is_there()
