"""Leases: renewed by whoever waits, watched by the driver on its own clock."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.errors import StorageUnavailableError
from raysweep.runs.ownership.lease import SHORTEST_S, LeaseWatch, read_lease, renew_lease
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return open_store(str(tmp_path))


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


def test_a_renewed_lease_holds_and_one_left_alone_does_not(store: Store) -> None:
    clock = Clock()
    watch = LeaseWatch(store, "s-1", 60, clock)
    for _ in range(5):
        clock.now += 59
        renew_lease(store, "s-1", 60, "somebody")
        assert not watch.is_over()
    clock.now += 60
    assert not watch.is_over()
    clock.now += 1
    assert watch.is_over()


def test_the_first_lease_runs_without_a_renewal(store: Store) -> None:
    clock = Clock()
    watch = LeaseWatch(store, "s-1", 60, clock)
    clock.now += 59
    assert not watch.is_over()
    clock.now += 2
    assert watch.is_over()


def test_a_lease_says_how_long_it_is(store: Store) -> None:
    clock = Clock()
    watch = LeaseWatch(store, "s-1", 60, clock)
    renew_lease(store, "s-1", 600)
    assert not watch.is_over()
    assert watch.interval_s == 150
    clock.now += 599
    assert not watch.is_over()
    renew_lease(store, "s-1", 0.1)
    assert not watch.is_over()
    assert watch.ttl_s == SHORTEST_S


def test_a_holder_whose_clock_is_wrong_holds_all_the_same(
    store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Clock()
    watch = LeaseWatch(store, "s-1", 60, clock)
    for at in (5.0, 4.0, 3.0):
        # The holder's clock runs backwards, in 1970; only that is replaced.
        monkeypatch.setattr("raysweep.runs.ownership.lease.time.time", lambda at=at: at)
        renew_lease(store, "s-1", 60)
        clock.now += 50
        assert not watch.is_over()


def test_a_lease_does_not_age_while_nobody_can_read_it(store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock()
    watch = LeaseWatch(store, "s-1", 60, clock)

    def fail(key: str) -> bytes | None:
        raise StorageUnavailableError(key, "down")

    with monkeypatch.context() as patch:
        # A local folder does not go away; the far edge of the store does, here.
        patch.setattr(store, "get", fail)
        for _ in range(10):
            clock.now += 50
            assert not watch.is_over()
    clock.now += 59
    assert not watch.is_over()
    clock.now += 2
    assert watch.is_over()


def test_a_lease_that_cannot_be_read_is_none(store: Store) -> None:
    assert read_lease(store, "s-1") is None
    store.put("s-1/lease.json", b"{")
    assert read_lease(store, "s-1") is None
