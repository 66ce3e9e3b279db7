"""Groups that have no turn yet wait in the pool, and their workers with them."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raysweep.cluster.ray import ordered_groups
from raysweep.cluster.ray.actors import ActorPool
from raysweep.cluster.ray.ordered_groups import OrderedPool
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.space.amounts import USUAL
from raysweep.specs import Resources


class Turns:
    """In the place of `Places`: gives turns to the groups in `allowed`."""

    def __init__(self) -> None:
        self.allowed: set[int] = set()
        self.error: Exception | None = None
        self.has_left = False

    def decide(
        self, wanted: Sequence[tuple[int, Any]], asked_for: Mapping[str, Any], now: float
    ) -> tuple[list[int], bool]:
        if self.error is not None:
            raise self.error
        chosen = [number for number, _ in wanted if number in self.allowed]
        return chosen, len(chosen) < len(wanted)

    def leave(self) -> None:
        self.has_left = True


@pytest.fixture
def said(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """What Ray is asked for."""
    said: list[str] = []

    def say(word: str, number: Callable[[Any], int]) -> Callable[..., None]:
        return lambda self, action: said.append(f"{word} {number(action)}")

    monkeypatch.setattr(ActorPool, "create_group", say("group", lambda action: action.group))
    monkeypatch.setattr(ActorPool, "remove_group", say("remove", lambda action: action.group))
    monkeypatch.setattr(ActorPool, "start", say("start", lambda action: action.worker))
    monkeypatch.setattr(ActorPool, "kill", say("kill", lambda worker: worker))
    monkeypatch.setattr(ordered_groups, "FIRST_LOOK_S", 0.001)
    monkeypatch.setattr(ordered_groups, "LOOK_S", 0.002)
    return said


def make_pool(turns: Turns, started: list[int]) -> OrderedPool:
    setup: Any = SimpleNamespace(pickled=None, place=SimpleNamespace(sweep_id="s"))
    pool = OrderedPool(Resources(cpu=1).shape, setup, lambda worker, error: None, started.append)
    pool._places = cast(Any, turns)
    return pool


def group(number: int) -> CreateGroup:
    return CreateGroup(group=number, needs=USUAL, excluded=())


def worker(number: int, of: int) -> StartWorker:
    return StartWorker(worker=number, group=of, is_spare=False)


def test_a_worker_starts_when_its_group_has_its_turn(said: list[str]) -> None:
    async def run() -> None:
        turns, started = Turns(), list[int]()
        pool = make_pool(turns, started)
        for number in (0, 1, 2, 3):
            pool.create_group(group(number))
            pool.start(worker(10 + number, of=number))
        await asyncio.sleep(0.05)
        assert said == []
        pool.kill(11)
        pool.remove_group(RemoveGroup(group=2))
        turns.allowed = {0, 1, 2}
        await asyncio.sleep(0.1)
        assert said == ["kill 11", "remove 2", "group 0", "start 10", "group 1"]
        assert started == [10]
        pool.start(worker(20, of=0))
        assert said[-1] == "start 20"
        await pool.leave()
        assert turns.has_left
        turns.allowed.add(3)
        await asyncio.sleep(0.05)
        assert said[-1] == "start 20"

    asyncio.run(run())


def test_one_that_comes_later_is_looked_at_too(said: list[str]) -> None:
    async def run() -> None:
        turns = Turns()
        turns.allowed = {0, 1}
        pool = make_pool(turns, [])
        pool.create_group(group(0))
        await asyncio.sleep(0.05)
        pool.create_group(group(1))
        await asyncio.sleep(0.05)
        assert said == ["group 0", "group 1"]

    asyncio.run(run())


def test_while_the_control_store_is_away_ray_decides(
    said: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    async def run() -> None:
        turns = Turns()
        turns.error = RuntimeError("no answer")
        pool = make_pool(turns, [])
        pool.create_group(group(0))
        pool.start(worker(1, of=0))
        await asyncio.sleep(0.05)
        assert said == ["group 0", "start 1"]
        assert "places are not given in order: no answer" in caplog.text

    asyncio.run(run())
