"""A change of any byte in what stands behind a champion is found, and lets nothing be promoted."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.errors import StorageError
from raysweep.outcome import Decision
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Champion, Line, Night, list_champions
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.releases import add_night, roll_back
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from tests.sampling import examples
from tests.unit.pipeline.gates import champions, night
from tests.unit.runs.across_runs.nights import LINE, event, events

CHANGES = ("flip", "set", "drop", "insert", "cut")


def changed(whole: bytes, how: str, place: int, bit: int) -> bytes:
    """The bytes with one change in them."""
    place %= len(whole)
    before, at, after = whole[:place], whole[place], whole[place + 1 :]
    match how:
        case "flip":
            return before + bytes([at ^ (1 << bit)]) + after
        case "set":
            return before + bytes([(at + 1 + bit) % 256]) + after
        case "drop":
            return before + after
        case "insert":
            return before + bytes([at]) + whole[place:]
        case _:
            return before


@pytest.fixture(scope="module")
def storage(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A first champion, one that was approved, one that was rejected, and a rollback."""
    root = tmp_path_factory.mktemp("tampering")
    store = open_store(root)
    night(root, "n1", 0.5)
    for name, score, approved in (("n2", 0.6, True), ("n3", 0.7, False)):
        verdict = night(root, name, score, approval=ApprovalSpec(timeout=3600))
        asked = Decision(approved=approved, by="ann", at=time.time(), note="looked at it")
        decide_night(store, LINE, name, verdict.gate_id, asked)
    roll_back(store, LINE, why="slow")
    kinds = [each.kind for each in read_chain(store, LINE).entries]
    assert kinds == ["gate", "gate", "approval", "gate", "approval", "rollback"]
    return root


@settings(max_examples=examples(80), deadline=None)
@given(
    number=st.integers(1, 6),
    how=st.sampled_from(CHANGES),
    place=st.integers(0, 1_000_000),
    bit=st.integers(0, 7),
)
def test_a_change_in_an_event_is_found_and_lets_nothing_be_decided(
    storage: Path, number: int, how: str, place: int, bit: int
) -> None:
    key, store = event(number), open_store(storage)
    file = storage / key
    whole = file.read_bytes()
    damaged = changed(whole, how, place, bit)
    try:
        file.write_bytes(damaged)
        assert [flaw.object for flaw in read_chain(store, LINE).flaws] == [key]
        acts = (lambda: roll_back(store, LINE, "n2"), lambda: night(storage, "n9", 0.99))
        for act in acts:
            with pytest.raises(StorageError, match=file.name):
                act()
        assert [str(error.path) for error in list_champions(store).damaged] == [str(file)]
        assert file.read_bytes() == damaged, "it is not written over"
        assert len(events(store)) == 6
    finally:
        file.write_bytes(whole)


@pytest.mark.parametrize(
    "other",
    [
        Line(name="flights", metric="loss", mode="max"),
        Line(name="flights", metric="auc", mode="min"),
        Line(name="flights", metric="auc", mode="max", data="2025"),
        Line(name="trains", metric="auc", mode="max"),
    ],
    ids=str,
)
def test_the_champions_file_of_another_line_lets_nothing_be_promoted(tmp_path: Path, other: Line) -> None:
    """Another metric, mode, data set or name: its scores cannot be compared."""
    night(tmp_path, "n1", 0.5)
    champion = champions(tmp_path).champion
    assert champion is not None
    fields = {"name": other.name, "metric": other.metric, "mode": other.mode, "data": other.data}
    foreign: Champion = champion.model_copy(update=fields | {"replaced": None})
    theirs = Night(sweep_id="n1", at=1.0, promoted=True)
    assert foreign.line == other
    add_night(open_store(tmp_path), other, "n1", lambda _: (theirs, foreign))
    file = tmp_path / event(1)
    file.write_bytes((tmp_path / event(1, other)).read_bytes())
    before = file.read_bytes()
    with pytest.raises(StorageError, match=r"auc\.max/000000000001\.jsonl: holds the champion of"):
        night(tmp_path, "n2", 0.9)
    assert file.read_bytes() == before
