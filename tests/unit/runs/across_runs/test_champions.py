"""Champions: replaced only from the version that was read, so that no night is lost."""

from __future__ import annotations

import multiprocessing
import threading
from pathlib import Path

import pytest

from raysweep.errors import StorageError
from raysweep.pipeline.registering import find_line
from raysweep.runs.across_runs.champions import (
    Champion,
    ChampionRecord,
    Line,
    Night,
    list_champions,
    list_records,
    read_champion,
)
from raysweep.runs.across_runs.releases import add_night
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.storage.objects.wrapped import WrappedStore
from tests.unit.runs.across_runs.nights import event, forge

LINE = Line(name="flights", metric="auc", mode="max")


def line(name: str) -> Line:
    return Line(name=name, metric="auc", mode="max")


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

    return add_night(store, line(name), sweep_id, choose)


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
    assert read_champion(store, LINE) == ChampionRecord()
    add(store, "n1", 0.5)
    add(store, "n2", 0.4)
    record = add(store, "n2", 0.9)
    assert [night.sweep_id for night in record.history] == ["n1", "n2"], "a night is added once"
    assert record.champion is not None
    assert record.champion.sweep_id == "n1"
    assert read_champion(store, LINE) == record


class Atomic(WrappedStore):
    """moto looks for an object and then writes it: two puts of one moment may both create it."""

    lock = threading.Lock()

    def put_if_absent(self, key: str, data: bytes, *, durable: bool = False) -> bool:
        with self.lock:
            return self.inner.put_if_absent(key, data, durable=durable)


def test_two_at_once_are_both_in_the_history(store: Store) -> None:
    """Both have read before either writes: the later one decides again, against the earlier champion."""
    store = Atomic(store)
    barrier = threading.Barrier(2, timeout=20)
    asked: dict[str, list[str]] = {"a": [], "b": []}

    def gate(sweep_id: str, mean: float) -> None:
        def choose(record: ChampionRecord) -> tuple[Night, Champion | None]:
            if not asked[sweep_id]:
                barrier.wait()
            asked[sweep_id].append(record.champion.sweep_id if record.champion else "")
            return decide(sweep_id, mean)

        add_night(store, LINE, sweep_id, choose)

    threads = [threading.Thread(target=gate, args=pair) for pair in (("a", 0.5), ("b", 0.6))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    record = read_champion(store, LINE)
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
    assert len({night.sweep_id for night in read_champion(open_store(tmp_path), LINE).history}) == 30


def test_a_damaged_one_is_an_error(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(event(1), b'{"champion": {}\n')
    with pytest.raises(StorageError, match=r"champions/flights/auc\.max/000000000001\.jsonl: is damaged"):
        add(store, "n1")


LONG = "flights-from-new-york-in-2013-by-carrier-"


@pytest.mark.parametrize("names", [("flights", "Flights!"), (LONG + "a", LONG + "b")])
def test_two_names_have_two_champions(store: Store, names: tuple[str, str]) -> None:
    for name, mean in zip(names, (0.5, 0.4), strict=True):
        add(store, "n1", mean, name)
    records = [read_champion(store, line(name)) for name in names]
    assert [record.champion.mean for record in records if record.champion] == [0.5, 0.4]
    assert [len(record.history) for record in records] == [1, 1]


@pytest.mark.parametrize("version", [b"7", b"9", b'"7"', b"null"])
def test_an_event_of_another_format_is_refused_and_not_rewritten(store: Store, version: bytes) -> None:
    add(store, "n1")
    forge(store, 1, b'"format_version":8', b'"format_version":' + version)
    data = store.get(event(1))
    wanted = r"0001\.jsonl: has format_version .*; this version, raysweep .*, reads format_version 8"
    for refused in (
        lambda: add(store, "n2", 0.9),
        lambda: read_champion(store, LINE),
        lambda: list_records(store),
    ):
        with pytest.raises(StorageError, match=wanted):
            refused()
    assert store.get(event(1)) == data


def test_other_metrics_modes_and_data_sets_are_other_lines(store: Store) -> None:
    lines = [
        Line(name="flights", metric=metric, mode=mode, data=data)
        for metric in ("auc", "eval/auc")
        for mode in ("min", "max")
        for data in ("", "2025", "2026")
    ]
    assert len({each.key for each in lines}) == len(lines)
    for number, each in enumerate(lines):
        night, champion = decide("n1", number)
        update = {"metric": each.metric, "mode": each.mode, "data": each.data, "at": number}
        found = champion.model_copy(update=update)
        add_night(store, each, "n1", lambda record, made=(night, found): made)  # type: ignore[misc]
    assert [each.line for each in list_champions(store, "flights")] == lines[::-1], "the newest first"
    assert list_champions(store) == list_champions(store, "flights")
    assert list_champions(store, "other") == ()
    means = [champion.mean for each in lines if (champion := read_champion(store, each).champion)]
    assert means == [*range(len(lines))]


def test_what_lies_in_the_store_is_named_relative_to_it(store: Store) -> None:
    """As the checkpoint is where the store is, whatever it is called there."""
    uris = [f"{store.url}/n1/checkpoints/00000/3", "s3://other/n2/checkpoints/00000/3", None]
    for number, uri in enumerate(uris):
        night, champion = decide(f"n{number}", number)
        made = night, champion.model_copy(update={"checkpoint_uri": uri})
        add_night(store, LINE, f"n{number}", lambda record, made=made: made)  # type: ignore[misc]
        newest = read_champion(store, LINE).champion
        assert newest is not None
        assert newest.checkpoint_uri == uri
        assert newest.replaced is None or newest.replaced.checkpoint_uri == uris[number - 1]
        assert store.url not in (store.get(event(number + 1)) or b"").decode()


def test_a_sweep_has_the_champion_of_other_sweeps_beside_it(store: Store) -> None:
    for sweep_id, mean in (("n1", 0.5), ("n2", 0.6), ("n2 again", 0.55)):
        add(store, sweep_id, mean)
    record = read_champion(store, LINE)
    found = {name: record.champion_beside(name) for name in ("n1", "n2", "n3")}
    assert {name: champion and champion.mean for name, champion in found.items()} == {
        "n1": 0.6,
        "n2": 0.5,
        "n3": 0.6,
    }
    add(store, "n5", 0.9)
    last = read_champion(store, LINE).champion
    assert last is not None
    assert last.replaced is not None
    assert (last.replaced.sweep_id, last.replaced.replaced) == ("n2", None), "one before it, not all of them"


def test_a_damaged_line_hides_no_other_and_is_named_with_the_fix(store: Store) -> None:
    for number, name in enumerate(("flights", "trains", "ships")):
        add(store, "n1", number / 10, name)
    broken = line("trains")
    store.put(event(1, broken), b"{")
    found = list_champions(store)
    assert [each.name for each in found] == ["flights", "ships"]
    [damage] = found.damaged
    assert damage.path == f"{store.url}/{event(1, broken)}"
    assert (damage.problem, damage.fix[:7]) == ("is not as it was written", "restore")
    assert list_champions(store, "flights").damaged == ()
    assert list_champions(store, "trains") == ()


def test_the_line_of_a_gate_is_found_beside_damaged_ones(store: Store) -> None:
    for name in ("flights", "prod"):
        add(store, f"{name}-1", 0.5, name)
    # As a gate names another champion than its sweep: each line is looked at.
    assert find_line(store, "other", "prod-1", "") == line("prod")
    store.put(event(1, line("flights")), b"{")
    assert find_line(store, "other", "prod-1", "") == line("prod")
    with pytest.raises(StorageError, match=r"flights/auc\.max/000000000001\.jsonl: is not as it was written"):
        find_line(store, "other", "flights-1", "")
