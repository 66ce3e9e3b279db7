"""Champions: replaced only from the version that was read, so that no night is lost."""

from __future__ import annotations

import json
import multiprocessing
import threading
from pathlib import Path

import pytest

from raysweep.errors import StorageError
from raysweep.runs.champions import (
    NIGHTS_KEPT,
    Champion,
    ChampionRecord,
    Night,
    add_night,
    champion_key,
    read_champion,
)
from raysweep.storage.opening import open_store
from raysweep.storage.store import Store


def decide(sweep_id: str, mean: float, name: str = "flights") -> tuple[Night, Champion]:
    night = Night(sweep_id=sweep_id, at=1.0, promoted=True, mean=mean)
    champion = Champion(
        name=name,
        metric="auc",
        mode="max",
        config={"x": mean},
        mean=mean,
        spread=0.0,
        n=3,
        sweep_id=sweep_id,
        at=1.0,
    )
    return night, champion


def add(store: Store, sweep_id: str, mean: float = 0.5, name: str = "flights") -> ChampionRecord:
    def choose(record: ChampionRecord) -> tuple[Night, Champion | None]:
        night, champion = decide(sweep_id, mean, name)
        is_better = record.champion is None or mean > record.champion.mean
        return night.model_copy(update={"promoted": is_better}), champion if is_better else None

    return add_night(store, name, sweep_id, choose)


def test_a_version_that_has_gone_is_refused(store: Store) -> None:
    assert store.get_versioned("champions/a.json") is None
    assert store.put_if_version("champions/a.json", b"1", None)
    assert not store.put_if_version("champions/a.json", b"2", None)
    found = store.get_versioned("champions/a.json")
    assert found is not None
    assert found[0] == b"1"
    assert store.put_if_version("champions/a.json", b"2", found[1])
    assert not store.put_if_version("champions/a.json", b"3", found[1])
    assert store.get("champions/a.json") == b"2"
    assert [info.key for info in store.list("champions")] == ["champions/a.json"]


def test_nights_follow_each_other(store: Store) -> None:
    assert read_champion(store, "flights") == ChampionRecord()
    add(store, "n1", 0.5)
    add(store, "n2", 0.4)
    record = add(store, "n2", 0.9)
    assert [night.sweep_id for night in record.history] == ["n1", "n2"], "a night is added once"
    assert record.champion is not None
    assert record.champion.sweep_id == "n1"
    assert read_champion(store, "flights") == record
    assert json.loads(store.get("champions/flights.json") or b"")["champion"]["mean"] == 0.5


def test_the_history_is_short(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(NIGHTS_KEPT + 5):
        record = add(store, f"n{number}", number)
    assert len(record.history) == NIGHTS_KEPT
    assert record.history[-1].sweep_id == f"n{NIGHTS_KEPT + 4}"


def test_two_at_once_are_both_in_the_history(store: Store) -> None:
    """Both have read before either writes: the later one decides again, against the earlier champion."""
    barrier = threading.Barrier(2, timeout=20)
    asked: dict[str, list[str]] = {"a": [], "b": []}

    def gate(sweep_id: str, mean: float) -> None:
        def choose(record: ChampionRecord) -> tuple[Night, Champion | None]:
            if not asked[sweep_id]:
                barrier.wait()
            asked[sweep_id].append(record.champion.sweep_id if record.champion else "")
            return decide(sweep_id, mean)

        add_night(store, "flights", sweep_id, choose)

    threads = [threading.Thread(target=gate, args=pair) for pair in (("a", 0.5), ("b", 0.6))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = read_champion(store, "flights")
    assert sorted(night.sweep_id for night in record.history) == ["a", "b"]
    first, second = (night.sweep_id for night in record.history)
    assert asked[first] == [""]
    assert asked[second] == ["", first]


def add_many(root: str, worker: int) -> None:
    for number in range(10):
        add(open_store(root), f"{worker}-{number}", 0.5)


def test_processes_lose_nothing(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [context.Process(target=add_many, args=(str(tmp_path), number)) for number in range(3)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
        assert worker.exitcode == 0
    assert len({night.sweep_id for night in read_champion(open_store(tmp_path), "flights").history}) == 30


def test_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(champion_key("flights"), b'{"champion": {}')
    with pytest.raises(StorageError, match=r"champions/flights\.json: is damaged"):
        add(store, "n1")


LONG = "flights-from-new-york-in-2013-by-carrier-"


@pytest.mark.parametrize("names", [("flights", "Flights!"), (LONG + "a", LONG + "b")])
def test_two_names_have_two_champions(store: Store, names: tuple[str, str]) -> None:
    for name, mean in zip(names, (0.5, 0.4), strict=True):
        add(store, "n1", mean, name)
    records = [read_champion(store, name) for name in names]
    assert [record.champion.mean for record in records if record.champion] == [0.5, 0.4]
    assert [len(record.history) for record in records] == [1, 1]


@pytest.mark.parametrize(
    ("shared", "owner", "other"),
    [("flights", "Flights!", "flights"), ("a" * 40, "a" * 41, "a" * 42), ("a" * 40, "a" * 41, "a" * 40)],
)
def test_a_file_that_two_names_shared_is_its_champions(
    store: Store, shared: str, owner: str, other: str
) -> None:
    """As earlier versions left it."""
    night, champion = decide("n1", 0.5, owner)
    before = ChampionRecord(champion=champion, history=(night,), format_version=1)
    store.put(f"champions/{shared}.json", before.model_dump_json().encode())
    assert read_champion(store, other) == ChampionRecord()
    assert read_champion(store, owner) == before
    add(store, "n2", 0.4, other)
    record = read_champion(store, owner)
    assert (record.champion, record.history) == (champion, (night,)), "it has kept what was its own"
    assert [each.sweep_id for each in read_champion(store, other).history] == ["n2"]
    add(store, "n3", 0.6, owner)
    record = read_champion(store, owner)
    assert [each.sweep_id for each in record.history] == ["n1", "n3"]
    assert record.champion is not None
    assert record.champion.replaced == champion
    assert [each.sweep_id for each in read_champion(store, other).history] == ["n2"]


def test_a_sweep_has_the_champion_of_other_sweeps_beside_it(store: Store) -> None:
    for sweep_id, mean in (("n1", 0.5), ("n2", 0.6), ("n2 again", 0.55)):
        add(store, sweep_id, mean)
    record = read_champion(store, "flights")
    found = {name: record.champion_beside(name) for name in ("n1", "n2", "n3")}
    assert {name: champion and champion.mean for name, champion in found.items()} == {
        "n1": 0.6,
        "n2": 0.5,
        "n3": 0.6,
    }
    add(store, "n5", 0.9)
    last = read_champion(store, "flights").champion
    assert last is not None
    assert last.replaced is not None
    assert (last.replaced.sweep_id, last.replaced.replaced) == ("n2", None), "one before it, not all of them"
    # Of an earlier version's champion it is not known what it replaced: better itself than none.
    night, champion = decide("n4", 0.7)
    earlier = ChampionRecord(champion=champion, history=(night,), format_version=1)
    assert earlier.champion_beside("n4") == champion
    after = earlier.after(*decide("n5", 0.8))
    assert (after.format_version, after.champion_beside("n5")) == (2, champion)
    assert earlier.after(night, None).champion_beside("n4") == champion
