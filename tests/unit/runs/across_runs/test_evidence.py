"""Evidence: one entry for each decision, in a chain in which a changed byte is noticed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raysweep.errors import StorageError
from raysweep.outcome import Decision
from raysweep.runs.across_runs import line_changes
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Line, encode_record, read_champion
from raysweep.runs.across_runs.evidence import find_lines, read_chain
from raysweep.runs.across_runs.releases import roll_back
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.sampling import TIMES
from tests.unit.pipeline.gates import night
from tests.unit.runs.across_runs.nights import LINE, add


def entries(store: Store) -> list[str]:
    return sorted(info.key for info in store.list(LINE.evidence))


def flaws(store: Store) -> list[str]:
    return [flaw.problem for flaw in read_chain(store, LINE).flaws]


def test_each_decision_names_the_one_before_it(store: Store) -> None:
    for number, mean in enumerate((0.5, 0.4, 0.6)):
        add(store, f"n{number}", mean)
    roll_back(store, LINE, why="bad on Mondays", by="ann")
    chain = read_chain(store, LINE)
    assert (chain.flaws, chain.beside) == ((), ())
    assert [(each.number, each.kind, each.promoted) for each in chain.entries] == [
        (1, "gate", True), (2, "gate", False), (3, "gate", True), (4, "rollback", True)
    ]  # fmt: skip
    first, _, third, last = chain.entries
    assert first.previous == ""
    assert (last.by, last.why, last.after) == ("ann", "bad on Mondays", third.before)
    stems = [key.rpartition("/")[2].removesuffix(".json") for key in entries(store)]
    assert [each.previous for each in chain.entries] == ["", *stems[:-1]]
    assert read_champion(store, LINE).head == stems[-1]


def test_a_byte_that_changes_in_any_entry_is_found(tmp_path: Path) -> None:
    """Every byte of every entry, and of the champion's file: none can change unseen. By day one of seven."""
    every = 1 if TIMES > 1 else 7
    store = open_store(tmp_path)
    for number, mean in enumerate((0.5, 0.6)):
        add(store, f"n{number}", mean)
    for key in entries(store):
        whole = store.get(key) or b""
        for place in range(0, len(whole), every):
            changed = whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :]
            (tmp_path / key).write_bytes(changed)
            found = read_chain(store, LINE).flaws
            assert [flaw.object for flaw in found] == [key], place
        store.put(key, whole)
    assert flaws(store) == []
    whole = store.get(LINE.key) or b""
    for place in range(0, len(whole), every):
        (tmp_path / LINE.key).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
        with pytest.raises(StorageError):
            read_chain(store, LINE)
        with pytest.raises(StorageError):
            add(store, "n3", 0.9)
    assert len(entries(store)) == 2, "no champion file that is damaged lets a gate promote"


def test_an_entry_that_is_rewritten_with_its_own_hash_is_found(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number, mean in enumerate((0.5, 0.6, 0.7)):
        add(store, f"n{number}", mean)
    import hashlib

    key = entries(store)[1]
    forged = (store.get(key) or b"").replace(b"0.6", b"0.9")
    store.delete(key)
    store.put(f"{LINE.evidence}/000002-{hashlib.sha256(forged).hexdigest()}.json", forged)
    found = read_chain(store, LINE)
    assert [flaw.object for flaw in found.flaws] == [key]
    assert [flaw.problem for flaw in found.flaws] == ["is missing"]


def test_an_entry_that_is_deleted_is_found_also_the_newest(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(4):
        add(store, f"n{number}", number / 10)
    every = entries(store)
    for key in every:
        whole = store.get(key) or b""
        store.delete(key)
        assert flaws(store) == ["is missing"], key
        assert len(read_chain(store, LINE).entries) == 3, "the others are read"
        store.put(key, whole)


OLDER = "is newer than the champion's file: that is an older copy"


def test_an_older_copy_of_the_champions_file_is_found(store: Store) -> None:
    add(store, "n0", 0.5)
    older = store.get(LINE.key) or b""
    add(store, "n1", 0.6)
    add(store, "n2", 0.7)
    store.put(LINE.key, older)
    assert flaws(store) == [OLDER, OLDER]


@pytest.mark.parametrize("kind", ["promoted", "refused", "approved", "rejected", "rolled back"])
def test_the_copy_of_one_decision_ago_is_found_and_nothing_is_decided_on_it(
    kind: str, tmp_path: Path
) -> None:
    store = open_store(tmp_path)
    night(tmp_path, "n0", 0.5)
    night(tmp_path, "n1", 0.7)
    waits = ApprovalSpec(timeout=3600) if kind in ("approved", "rejected") else None
    verdict = night(tmp_path, "n2", 0.9, approval=waits)
    copy = store.get(LINE.key) or b""
    match kind:
        case "promoted" | "refused":
            night(tmp_path, "n3", 0.95 if kind == "promoted" else 0.1)
        case "rolled back":
            roll_back(store, LINE)
        case _:
            asked = Decision(approved=kind == "approved", by="ann", at=time.time())
            decide_night(store, LINE, "n2", verdict.gate_id, asked)
    newest = store.get(LINE.key) or b""
    store.put(LINE.key, copy)
    assert flaws(store) == [OLDER]
    with pytest.raises(StorageError, match=r"auc\.max\.json: is an older copy: decision \d has been made"):
        night(tmp_path, "n4", 0.99)
    with pytest.raises(StorageError, match="that is an older copy"):
        roll_back(store, LINE)
    store.put(LINE.key, newest)
    assert flaws(store) == []
    assert night(tmp_path, "n4", 0.99).promoted


def test_an_older_copy_is_found_by_the_verdict_where_the_mark_is_gone_too(tmp_path: Path) -> None:
    """A kill between champion and mark, or evidence that was restored with the champion's file."""
    store = open_store(tmp_path)
    night(tmp_path, "n0", 0.5)
    copy = store.get(LINE.key) or b""
    night(tmp_path, "n1", 0.7)
    store.put(LINE.key, copy)
    store.delete(f"{LINE.decided}/000002")
    assert flaws(store) == [OLDER]


def test_a_newest_entry_that_is_deleted_with_the_champions_file_put_back_is_found(store: Store) -> None:
    add(store, "n0", 0.5)
    copy = store.get(LINE.key) or b""
    add(store, "n1", 0.6)
    store.put(LINE.key, copy)
    store.delete(entries(store)[-1])
    assert flaws(store) == [OLDER]


def test_a_chain_that_continues_an_older_copy_is_found(tmp_path: Path) -> None:
    """As an earlier version, without the marks, would have continued it."""
    store = open_store(tmp_path)
    add(store, "n0", 0.5)
    copy = store.get(LINE.key) or b""
    add(store, "n1", 0.6)
    mark = store.get(f"{LINE.decided}/000002") or b""
    store.delete(f"{LINE.decided}/000002")
    store.put(LINE.key, copy)
    add(store, "n2", 0.7)
    store.put(f"{LINE.decided}/000002", mark)
    assert flaws(store) == ["was made, and the chain is without it: it continues an older copy"]
    with pytest.raises(StorageError, match="and decision 2 is 000002-"):
        add(store, "n3", 0.8)


@pytest.mark.parametrize("which", ["another store's", "another champion"])
def test_a_champions_file_that_its_evidence_does_not_know_decides_nothing(which: str, tmp_path: Path) -> None:
    """Sealed anew, or copied from another store: no gate, no rollback and no registry goes by it."""
    store, other = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    add(store, "n0", 0.5)
    add(other, "n0", 0.6)
    if which == "another champion":
        record = read_champion(store, LINE)
        assert record.champion is not None
        forged = record.champion.model_copy(update={"config": {"x": 66}})
        store.put(LINE.key, encode_record(store, record.model_copy(update={"champion": forged})))
    else:
        store.put(LINE.key, other.get(LINE.key) or b"")
    assert flaws(store)
    for act in (lambda: add(store, "n1", 0.9), lambda: roll_back(store, LINE)):
        with pytest.raises(StorageError):
            act()
    assert len(entries(store)) == 1


def test_a_kill_before_the_mark_is_mended_by_the_next_decision(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    add(store, "n0", 0.5)

    def die(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(line_changes, "mark_made", die)
    with pytest.raises(KeyboardInterrupt):
        add(store, "n1", 0.6)
    monkeypatch.undo()
    assert flaws(store) == []
    add(store, "n2", 0.7)
    marks = list(store.list(LINE.decided))
    assert len(marks) == len(entries(store)) == 3
    assert flaws(store) == []


def test_a_champions_file_that_is_gone_is_no_first_night(store: Store) -> None:
    add(store, "n0", 0.5)
    add(store, "n1", 0.6)
    store.delete(LINE.key)
    with pytest.raises(StorageError, match=r"auc\.max\.json: is missing, and its evidence is not"):
        add(store, "n2", 0.1)


def test_a_first_night_that_was_cut_before_its_champion_is_made_again(store: Store) -> None:
    """The entry is written first: what a kill leaves of it hinders nothing."""
    add(store, "n0", 0.5)
    store.delete(LINE.key, f"{LINE.decided}/000001")
    add(store, "n0", 0.51)
    chain = read_chain(store, LINE)
    assert (chain.flaws, len(chain.entries), len(chain.beside)) == ((), 1, 1)


def test_a_champion_of_another_line_is_refused(store: Store) -> None:
    add(store, "n0", 0.5)
    other = Line(name="flights", metric="loss", mode="min")
    store.put(other.key, store.get(LINE.key) or b"")
    with pytest.raises(StorageError, match=r"loss\.min\.json: holds the champion of 'flights', auc \(max\)"):
        read_champion(store, other)


def test_lines_are_found_by_name_and_by_slug(store: Store) -> None:
    add(store, "n0", 0.5)
    assert find_lines(store, "flights") == (LINE,)
    assert find_lines(store, "Flights") == (LINE,)
    assert find_lines(store, "other") == ()
