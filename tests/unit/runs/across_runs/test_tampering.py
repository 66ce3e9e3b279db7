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
from raysweep.runs.across_runs.champions import Line
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.releases import roll_back
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from tests.sampling import examples
from tests.unit.pipeline.gates import champions, night
from tests.unit.runs.across_runs.nights import LINE

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


def evidence(storage: Path) -> list[Path]:
    return sorted((storage / LINE.evidence).iterdir())


@settings(max_examples=examples(50), deadline=None)
@given(
    number=st.integers(0, 5),
    how=st.sampled_from(CHANGES),
    place=st.integers(0, 1_000_000),
    bit=st.integers(0, 7),
)
def test_a_change_in_an_evidence_file_is_found(
    storage: Path, number: int, how: str, place: int, bit: int
) -> None:
    file = evidence(storage)[number]
    whole = file.read_bytes()
    try:
        file.write_bytes(changed(whole, how, place, bit))
        flaws = read_chain(open_store(storage), LINE).flaws
        assert [flaw.object for flaw in flaws] == [file.relative_to(storage).as_posix()]
        with pytest.raises(StorageError, match=file.name):
            roll_back(open_store(storage), LINE, "n2")
    finally:
        file.write_bytes(whole)


@settings(max_examples=examples(50), deadline=None)
@given(how=st.sampled_from(CHANGES), place=st.integers(0, 1_000_000), bit=st.integers(0, 7))
def test_a_change_in_the_champions_file_lets_nothing_be_promoted(
    storage: Path, how: str, place: int, bit: int
) -> None:
    file = storage / LINE.key
    whole, entries = file.read_bytes(), len(evidence(storage))
    damaged = changed(whole, how, place, bit)
    try:
        file.write_bytes(damaged)
        with pytest.raises(StorageError, match=r"auc\.max\.json"):
            night(storage, "n9", 0.99)
        assert file.read_bytes() == damaged, "it is not written over"
        assert len(evidence(storage)) == entries
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
    from raysweep.runs.across_runs.champions import Champion, Night
    from raysweep.runs.across_runs.releases import add_night

    night(tmp_path, "n1", 0.5)
    champion = champions(tmp_path).champion
    assert champion is not None
    fields = {"name": other.name, "metric": other.metric, "mode": other.mode, "data": other.data}
    foreign: Champion = champion.model_copy(update=fields | {"replaced": None})
    theirs = Night(sweep_id="n1", at=1.0, promoted=True)
    assert foreign.line == other
    add_night(open_store(tmp_path), other, "n1", lambda _: (theirs, foreign))
    file = tmp_path / LINE.key
    file.write_bytes((tmp_path / other.key).read_bytes())
    before = file.read_bytes()
    with pytest.raises(StorageError, match=r"auc\.max\.json: holds the champion of"):
        night(tmp_path, "n2", 0.9)
    assert file.read_bytes() == before
