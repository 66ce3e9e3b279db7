"""The journal of a line: nothing is lost by kills, by two at once, or by a listing that lags."""

from __future__ import annotations

import secrets
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pytest

from raysweep.outcome import Decision
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Champion, ChampionRecord, Night, Waiting, read_champion
from raysweep.runs.across_runs.events import Judged
from raysweep.runs.across_runs.evidence import read_chain
from raysweep.runs.across_runs.line_journal import LineJournal
from raysweep.runs.across_runs.pins import champion_pins
from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import add_model
from raysweep.runs.across_runs.releases import add_night, roll_back
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import ObjectInfo, Store
from raysweep.storage.objects.wrapped import Operation, WrappedStore
from tests.sampling import TIMES
from tests.unit.runs.across_runs.nights import LINE, Hasty, add, event, events, mark

T = TypeVar("T")


class LateLists(WrappedStore):
    """Lists what was there when it was last caught up; what is asked for by name is there at once."""

    def __init__(self) -> None:
        super().__init__(open_store(f"memory://{secrets.token_hex(8)}"))
        self.seen: frozenset[str] = frozenset()

    def catch_up(self) -> None:
        self.seen = frozenset(info.key for info in self.inner.list())

    def list(self, prefix: str = "") -> Iterator[ObjectInfo]:
        return iter([info for info in self.inner.list(prefix) if info.key in self.seen])

    def list_folders(self, prefix: str = "") -> tuple[str, ...]:
        below = [key.removeprefix(f"{prefix}/") for key in self.seen if key.startswith(f"{prefix}/")]
        return tuple(sorted({key.partition("/")[0] for key in below if "/" in key}))


def test_an_event_that_no_listing_shows_yet_is_read_and_never_written_over() -> None:
    store = LateLists()
    add(store, "n0", 0.5, uri=f"{store.url}/n0/checkpoints/00000/1")
    store.catch_up()
    add(store, "n1", 0.6, uri=f"{store.url}/n1/checkpoints/00000/1")
    add(store, "n2", 0.4)
    began = time.monotonic()
    assert [night.sweep_id for night in read_champion(store, LINE).history] == ["n0", "n1", "n2"]
    assert "n1/checkpoints/00000/1" in champion_pins(store)
    assert roll_back(store, LINE).champion.sweep_id == "n0"
    chain = read_chain(store, LINE)
    assert ([each.sweep_id for each in chain.entries], chain.flaws) == (["n0", "n1", "n2", "n0"], ())
    assert time.monotonic() - began < 2.0, "no listing is waited for"


class Killed(BaseException):
    """The process ends here."""


class Mortal(WrappedStore):
    """Dies before or after its next write but so many."""

    def __init__(self, root: Path, writes: int, *, is_done: bool) -> None:
        super().__init__(open_store(root))
        self._left = writes
        self._is_done = is_done

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        if operation != "put":
            return call()
        self._left -= 1
        if self._left < 0 and not self._is_done:
            raise Killed
        found = call()
        if self._left < 0:
            raise Killed
        return found


UNTIL = 4e9
SCRIPT = ("first", "waits", "approve", "model", "later", "back")


def play(store: Store) -> None:
    for what in SCRIPT:
        act(store, what)


def act(store: Store, what: str) -> None:
    """A decision of the script; done already it changes nothing."""
    match what:
        case "first":
            add(store, "n0", 0.5)
        case "waits":
            add_night(store, LINE, "n1", waits, gate="g")
        case "approve":
            decide_night(store, LINE, "n1", "g", Decision(approved=True, by="ann", at=2000.0))
        case "model":
            add_model(store, LINE, release_id(LINE, "n1", 2000.0), "s3://b/m")
        case "later":
            add(store, "n2", 0.3)
        case _:
            roll_back(store, LINE, "n0", by="ann")


def waits(record: ChampionRecord) -> tuple[Night, Champion | None]:
    assert record.champion is not None
    proposed = record.champion.model_copy(
        update={"sweep_id": "n1", "key": "n1", "mean": 0.6, "replaced": None}
    )
    waiting = Waiting(
        proposed=proposed,
        against_sweep="n0",
        against_at=record.champion.at,
        until=UNTIL,
        on_silence="reject",
    )
    return Night(sweep_id="n1", gate="g", at=1.0, promoted=False, waiting=waiting), None


def shape(store: Store) -> Any:
    """All that is known of the line, without when it was decided."""
    chain, record = read_chain(store, LINE), read_champion(store, LINE)
    assert chain.flaws == ()
    nights = [(night.sweep_id, night.promoted, night.is_waiting) for night in record.history]
    entries = [(each.kind, each.sweep_id, each.promoted) for each in chain.entries]
    return nights, entries, [each.sweep_id for each in record.stack], record.models, sorted(record.undone)


@pytest.mark.parametrize("is_done", [False, True], ids=["before", "after"])
def test_a_kill_at_any_write_loses_nothing(is_done: bool, tmp_path: Path) -> None:
    whole = open_store(tmp_path / "whole")
    play(whole)
    wanted = shape(whole)
    writes = 2 * len(SCRIPT) + 1  # an event and its mark each, and the copy of the decision
    for kill in range(writes):
        root = tmp_path / f"killed-{kill}"
        mortal = Mortal(root, kill, is_done=is_done)
        with pytest.raises(Killed):
            play(mortal)
        store = open_store(root)
        before = [each.sweep_id for each in read_champion(store, LINE).history]
        play(store)
        assert shape(store) == wanted, kill
        assert [each.sweep_id for each in read_champion(store, LINE).history][: len(before)] == before
    assert len(events(whole)) == len(SCRIPT)
    assert whole.exists(mark(len(SCRIPT)))


def many(store: Store, count: int) -> None:
    """So many nights, every tenth with a champion."""
    journal = LineJournal(Hasty(store), LINE.path)
    record = journal.read()
    for number in range(len(record.history), count):
        mean = 0.001 * number
        champion = Champion(
            name=LINE.name, metric=LINE.metric, mode=LINE.mode, config={"x": mean}, mean=mean, spread=0.0,
            n=3, sweep_id=f"n{number}", at=float(number),
        )  # fmt: skip
        made = champion if number % 10 == 0 else None
        night = Night(sweep_id=f"n{number}", at=float(number), promoted=made is not None, mean=mean)
        journal.append(LINE, Judged(night=night, champion=made))


class Counted(WrappedStore):
    """Counts its requests."""

    def __init__(self, inner: Store) -> None:
        super().__init__(inner)
        self.requests = 0

    def around(self, operation: Operation, key: str, call: Callable[[], T]) -> T:
        self.requests += 1
        return call()


def test_a_year_is_read_in_few_requests_and_an_own_object_of_each_event_stays(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    many(store, 365)
    counted = Counted(store)
    record = read_champion(counted, LINE)
    assert (len(record.history), len(record.stack)) == (365, 37)
    assert counted.requests < 365 / 5
    assert len(events(store)) == 365
    assert read_chain(store, LINE).flaws == ()
    merged = sorted(info.key for info in store.list(LINE.key) if "-" in info.key.rpartition("/")[2])
    assert len(merged) == 5
    whole = store.get(merged[0]) or b""
    (tmp_path / merged[0]).write_bytes(whole.replace(b'"x":0.01}', b'"x":9.01}'))
    assert read_champion(store, LINE) == record, "its events have objects of their own"
    assert [flaw.object for flaw in read_chain(store, LINE).flaws] == [merged[0]]


def test_the_cost_of_reading_grows_with_the_events_and_no_faster(tmp_path: Path) -> None:
    def seconds(count: int) -> float:
        store = open_store(tmp_path / str(count))
        many(store, count)
        times = []
        for _ in range(3):
            began = time.process_time()
            read_champion(store, LINE)
            times.append(time.process_time() - began)
        return min(times)

    small, large = (128, 512) if TIMES == 1 else (365, 3650)
    assert seconds(large) < 2.5 * large / small * seconds(small) + 0.05


def test_an_event_that_was_cut_short_before_it_was_answered_is_repaired_by_the_next(tmp_path: Path) -> None:
    """A power cut on a file system without atomic writes: its mark was not written yet."""
    store = open_store(tmp_path)
    add(store, "n0", 0.5)
    add(store, "n1", 0.6)
    file = tmp_path / event(2)
    file.write_bytes(file.read_bytes()[:90])
    store.delete(mark(2))
    assert [night.sweep_id for night in read_champion(store, LINE).history] == ["n0"]
    add(store, "n1", 0.6)
    add(store, "n2", 0.7)
    assert [night.sweep_id for night in read_champion(store, LINE).history] == ["n0", "n1", "n2"]
    assert read_chain(store, LINE).flaws == ()
