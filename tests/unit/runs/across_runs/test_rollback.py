"""Rollback: the champion before is champion again, once, whatever else happens at that moment."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest

from raysweep.errors import SpecError, StorageError
from raysweep.runs.across_runs import releases
from raysweep.runs.across_runs.champions import ChampionRecord, Line, Night, read_champion
from raysweep.runs.across_runs.events import Event
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.line_journal import LineJournal
from raysweep.runs.across_runs.releases import add_night, roll_back
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from tests.unit.runs.across_runs.nights import LINE, add, event, events


def champion(store: Store) -> str:
    found = read_champion(store, LINE).champion
    return found.sweep_id if found is not None else ""


@pytest.fixture
def three(store: Store) -> Store:
    for number in range(3):
        add(store, f"n{number}", 0.5 + number / 10, key=f"2026-11-2{number}")
    return store


def test_the_champion_before_is_champion_again_and_the_next_night_compares_with_it(three: Store) -> None:
    done = roll_back(three, LINE, by="ann", why="bad on Mondays")
    assert (done.is_new, done.champion.sweep_id, done.entry.by) == (True, "n1", "ann")
    record = read_champion(three, LINE)
    assert record.champion == done.champion
    assert record.champion is not None
    assert record.champion.replaced is not None
    assert record.champion.replaced.sweep_id == "n0"
    add(three, "n3", 0.65)
    assert champion(three) == "n3", "better than n1, not than n2"
    assert read_chain(three, LINE).flaws == ()


def test_asked_again_it_is_the_same_rollback_also_after_a_night_without_a_promotion(three: Store) -> None:
    first = roll_back(three, LINE, by="ann")
    again = roll_back(three, LINE, by="bob")
    assert (again.is_new, again.entry, again.champion) == (False, first.entry, first.champion)
    add(three, "n3", 0.1)
    assert roll_back(three, LINE).entry == first.entry
    assert champion(three) == "n1"
    assert [each.kind for each in read_chain(three, LINE).entries].count("rollback") == 1


def test_a_night_is_named_by_its_key_its_date_or_its_id(three: Store) -> None:
    for to, wanted in (("2026-11-20", "n0"), ("n2", "n2"), ("2026-11-21", "n1")):
        assert roll_back(three, LINE, to).champion.sweep_id == wanted
        assert not roll_back(three, LINE, to).is_new
        assert champion(three) == wanted
    assert read_chain(three, LINE).flaws == ()


def test_after_two_rollbacks_by_name_a_promotion_is_undone_to_where_it_came_from(three: Store) -> None:
    roll_back(three, LINE, "n0")
    add(three, "n3", 0.55)
    assert roll_back(three, LINE).champion.sweep_id == "n0"


def test_there_is_nothing_before_the_first(store: Store) -> None:
    with pytest.raises(SpecError, match="has no champion by"):
        roll_back(store, LINE)
    add(store, "n0", 0.5, key="2026-11-20")
    with pytest.raises(SpecError, match="of the night of 2026-11-20, is the first one"):
        roll_back(store, LINE)
    with pytest.raises(SpecError, match=r"is of the night '2027-01-01'.*there are 2026-11-20"):
        roll_back(store, LINE, "2027-01-01")
    assert champion(store) == "n0"


def test_a_damaged_event_stops_a_rollback(three: Store) -> None:
    three.put(event(1), b"{}\n")
    with pytest.raises(StorageError, match=r"000001\.jsonl: is damaged"):
        roll_back(three, LINE)
    assert len(events(three)) == 3


def test_a_checkpoint_that_was_deleted_is_not_named(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    kept, gone = (f"{store.url}/{name}/checkpoints/00000/3" for name in ("n0", "n1"))
    store.put("n0/checkpoints/00000/3.json", b"{}")
    add(store, "n0", 0.5, uri=kept)
    add(store, "n1", 0.6, uri=gone)
    add(store, "n2", 0.7)
    done = roll_back(store, LINE, "n1")
    assert (done.champion.checkpoint_uri, done.lost_checkpoint) == (None, gone)
    assert roll_back(store, LINE, "n0").champion.checkpoint_uri == kept
    assert read_chain(store, LINE).flaws == ()


def test_a_gate_that_decides_meanwhile_decides_again(three: Store) -> None:
    """It has read the champion that is rolled back before it writes."""
    seen: list[str] = []

    def choose(record: ChampionRecord) -> tuple[Night, None]:
        assert record.champion is not None
        if not seen:
            roll_back(three, LINE)
        seen.append(record.champion.sweep_id)
        return Night(sweep_id="n3", at=1.0, promoted=False), None

    add_night(three, LINE, "n3", choose)
    assert seen == ["n2", "n1"]
    assert champion(three) == "n1"
    chain = read_chain(three, LINE)
    assert (chain.flaws, len(chain.entries)) == ((), 5), "nothing was written of the decision that lost"


def test_two_rollbacks_at_once_are_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(4):
        add(store, f"n{number}", number / 10)
    done: list[releases.Rollback] = []
    threads = [
        threading.Thread(target=lambda: done.append(roll_back(open_store(tmp_path), LINE))) for _ in range(4)
    ]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert [each.champion.sweep_id for each in done] == ["n2"] * 4
    assert sum(each.is_new for each in done) == 1
    assert champion(store) == "n2"


def test_one_that_another_overtakes_says_what_is_champion_then(
    three: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The other one is written after this one has read the line, and before it writes."""
    append = LineJournal.append
    other: list[releases.Rollback] = []

    def overtaken(self: LineJournal, line: Line, made: Event) -> None:
        if not other:
            monkeypatch.setattr(LineJournal, "append", append)
            other.append(roll_back(three, line))
        append(self, line, made)

    monkeypatch.setattr(LineJournal, "append", overtaken)
    done = roll_back(three, LINE)
    assert other[0].is_new
    assert not done.is_new
    assert done.champion == other[0].champion
