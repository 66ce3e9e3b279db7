"""Evidence: an entry for each decision, of a journal in which a changed byte is noticed."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from raysweep.errors import StorageError
from raysweep.outcome import Decision
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Line, list_champions, read_champion
from raysweep.runs.across_runs.evidence import find_lines, read_chain
from raysweep.runs.across_runs.line_journal import OLDER
from raysweep.runs.across_runs.pins import find_pins
from raysweep.runs.across_runs.releases import roll_back
from raysweep.specs.approval import ApprovalSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.sampling import TIMES
from tests.unit.pipeline.gates import night
from tests.unit.runs.across_runs.nights import LINE, add, event, events, forge, mark


def flaws(store: Store) -> list[tuple[str, str]]:
    return [(flaw.object, flaw.problem) for flaw in read_chain(store, LINE).flaws]


def test_each_decision_names_the_one_before_it(store: Store) -> None:
    for number, mean in enumerate((0.5, 0.4, 0.6)):
        add(store, f"n{number}", mean)
    roll_back(store, LINE, why="bad on Mondays", by="ann")
    chain = read_chain(store, LINE)
    assert chain.flaws == ()
    assert [(each.number, each.kind, each.promoted) for each in chain.entries] == [
        (1, "gate", True), (2, "gate", False), (3, "gate", True), (4, "rollback", True)
    ]  # fmt: skip
    _, _, third, last = chain.entries
    assert (last.by, last.why, last.after) == ("ann", "bad on Mondays", third.before)
    stems = [each.entry for each in chain.entries]
    assert [stem[:7] for stem in stems] == ["000001-", "000002-", "000003-", "000004-"]
    assert [each.previous for each in chain.entries] == ["", *stems[:-1]]
    assert (store.get(mark(4)) or b"").decode() == stems[-1].partition("-")[2]


def test_a_byte_that_changes_in_any_event_is_found(tmp_path: Path) -> None:
    """Every byte of every event: none can change unseen. By day one of seven."""
    every = 1 if TIMES > 1 else 7
    store = open_store(tmp_path)
    for number, mean in enumerate((0.5, 0.6)):
        add(store, f"n{number}", mean)
    for key in events(store):
        whole = store.get(key) or b""
        for place in range(0, len(whole), every):
            (tmp_path / key).write_bytes(whole[:place] + bytes([whole[place] ^ 1]) + whole[place + 1 :])
            assert [each for each, _ in flaws(store)] == [key], place
            with pytest.raises(StorageError, match=key):
                add(store, "n3", 0.9)
        store.put(key, whole)
    assert flaws(store) == []
    assert len(events(store)) == 2


@pytest.mark.parametrize("number", [1, 2, 3])
def test_an_event_that_is_rewritten_with_its_own_checksums_is_found(number: int, store: Store) -> None:
    for each, mean in enumerate((0.5, 0.6, 0.7)):
        add(store, f"n{each}", mean)
    forge(store, number, b'"config":{"x":0.', b'"config":{"x":1.')
    assert flaws(store) == [(event(number), "is not as it was written: its SHA-256 is another")]
    for act in (lambda: add(store, "n3", 0.9), lambda: roll_back(store, LINE), lambda: find_pins(store)):
        with pytest.raises(StorageError, match=rf"{number:012d}\.jsonl: is not as it was written"):
            act()


def test_an_event_that_is_deleted_is_found_also_the_newest(store: Store) -> None:
    for number in range(4):
        add(store, f"n{number}", number / 10)
    for number, key in enumerate(events(store), start=1):
        whole = store.get(key) or b""
        store.delete(key)
        assert flaws(store) == [(key, OLDER if number == 4 else "is missing")]
        assert len(read_chain(store, LINE).entries) == 3, "the others are read"
        store.put(key, whole)


@pytest.mark.parametrize("kind", ["promoted", "refused", "approved", "rejected", "rolled back"])
def test_the_copy_of_one_decision_ago_is_found_and_nothing_is_decided_on_it(
    kind: str, tmp_path: Path
) -> None:
    """The folder of the line as it was before the newest decision."""
    store = open_store(tmp_path)
    night(tmp_path, "n0", 0.5)
    night(tmp_path, "n1", 0.7)
    waits = ApprovalSpec(timeout=3600) if kind in ("approved", "rejected") else None
    verdict = night(tmp_path, "n2", 0.9, approval=waits)
    match kind:
        case "promoted" | "refused":
            night(tmp_path, "n3", 0.95 if kind == "promoted" else 0.1)
        case "rolled back":
            roll_back(store, LINE)
        case _:
            asked = Decision(approved=kind == "approved", by="ann", at=time.time())
            decide_night(store, LINE, "n2", verdict.gate_id, asked)
    newest = store.get(event(4)) or b""
    store.delete(event(4))
    assert flaws(store) == [(event(4), OLDER)]
    acts = (
        lambda: night(tmp_path, "n4", 0.99),
        lambda: roll_back(store, LINE),
        lambda: read_champion(store, LINE),
        lambda: find_pins(store),
    )
    for act in acts:
        with pytest.raises(StorageError, match=r"0004\.jsonl: is missing.* is an older copy"):
            act()
    assert [error.problem for error in list_champions(store).damaged] == [OLDER]
    store.put(event(4), newest)
    assert flaws(store) == []
    assert night(tmp_path, "n4", 0.99).promoted


def test_a_line_that_continues_an_older_copy_is_found(store: Store) -> None:
    """The copy came with its marks: then those of the events that were lost are put back."""
    add(store, "n0", 0.5)
    add(store, "n1", 0.6)
    lost = store.get(mark(2)) or b""
    store.delete(event(2), mark(2))
    add(store, "n2", 0.7)
    store.put(mark(2), lost)
    assert flaws(store) == [(event(2), "is not as it was written: its SHA-256 is another")]
    with pytest.raises(StorageError, match=r"0002\.jsonl: is not as it was written"):
        add(store, "n3", 0.8)


def test_events_of_another_store_decide_nothing(tmp_path: Path) -> None:
    """Each is sound by itself: no gate, no rollback and no registry goes by them."""
    store, other = open_store(tmp_path / "a"), open_store(tmp_path / "b")
    for number in range(3):
        add(store, f"n{number}", 0.5 + number / 10)
        add(other, f"m{number}", 0.6 + number / 10)
    for number in (1, 2, 3):
        own = store.get(event(number)) or b""
        store.put(event(number), other.get(event(number)) or b"")
        assert flaws(store)
        for act in (lambda: add(store, "n4", 0.95), lambda: roll_back(store, LINE)):
            with pytest.raises(StorageError):
                act()
        store.put(event(number), own)
    assert len(events(store)) == 3


def test_a_line_that_is_gone_is_no_first_night(store: Store) -> None:
    add(store, "n0", 0.5)
    add(store, "n1", 0.6)
    store.delete(event(1), event(2))
    with pytest.raises(StorageError, match=r"auc\.max/000000000001\.jsonl: is missing.* is an older copy"):
        add(store, "n2", 0.1)
    [error] = list_champions(store).damaged
    assert error.problem == OLDER


def test_a_champion_of_another_line_is_refused(store: Store) -> None:
    add(store, "n0", 0.5)
    other = Line(name="flights", metric="loss", mode="min")
    store.put(event(1, other), store.get(event(1)) or b"")
    with pytest.raises(StorageError, match=r"loss\.min/.*: holds the champion of 'flights', auc \(max\)"):
        read_champion(store, other)


def test_lines_are_found_by_name_and_by_slug(store: Store) -> None:
    add(store, "n0", 0.5)
    assert find_lines(store, "flights") == (LINE,)
    assert find_lines(store, "Flights") == (LINE,)
    assert find_lines(store, "other") == ()
