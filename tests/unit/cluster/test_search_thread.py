"""An adaptive searcher is asked on a thread: the loop continues, and the searcher sees what it would have."""

from __future__ import annotations

import asyncio
import gc
import sys
import threading
from collections.abc import Callable
from time import monotonic, time
from typing import Any

import pytest

from raysweep.cluster.search_thread import Asking
from raysweep.cluster.suggestions import suggest
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.search import Searcher, make_searcher
from raysweep.search.machinery.asking import exhausts
from raysweep.specs import SweepSpec

SPEC = SweepSpec.from_any(
    {
        "name": "s",
        "trainable": "m:f",
        "metric": "loss",
        "mode": "min",
        "num_samples": 40,
        "param_space": {"x": {"uniform": [0, 1]}, "n": {"randint": [0, 100]}},
        "search": "tpe",
    }
)


class Recorder(Searcher):
    """A searcher that says what it was told before each ask; asks wait until they may continue."""

    total: int | None = None
    note: str | None = None

    def __init__(self, *, is_adaptive: bool = True) -> None:
        self.is_adaptive = is_adaptive
        self.told: list[int] = []
        self.may_go_on = threading.Event()
        self.has_begun = threading.Event()
        self.threads: set[str] = set()
        self.during: tuple[float, bool] | None = None

    def ask(self, number: int) -> dict[str, Any] | None:
        self.threads.add(threading.current_thread().name)
        self.during = (sys.getswitchinterval(), gc.isenabled())
        self.has_begun.set()
        assert self.may_go_on.wait(10)
        if number == 13:
            raise ValueError("an unlucky number")
        return {"told": list(self.told)}

    def restore(self, number: int, config: dict[str, Any]) -> None:
        raise NotImplementedError

    def tell(self, number: int, value: float | None, state: str) -> None:
        self.threads.add(threading.current_thread().name)
        if number == 13:
            raise ValueError("an unlucky result")
        self.told.append(number)

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        raise NotImplementedError


class Shell:
    """An asking with what it answers."""

    def __init__(self, searcher: Searcher) -> None:
        self.events: list[ev.ConfigsSuggested] = []
        self.errors: list[BaseException] = []
        self.asking = Asking(searcher, self.events.append, self.errors.append, time)

    async def until(self, is_so: Callable[[], object]) -> None:
        deadline = monotonic() + 10
        while not is_so():
            assert monotonic() < deadline
            await asyncio.sleep(0.001)


def ask(first: int, count: int = 1) -> cmd.SuggestConfigs:
    return cmd.SuggestConfigs(first=first, count=count)


def tell(trial: int, value: float = 0.5) -> cmd.TellSearch:
    return cmd.TellSearch(trial=trial, value=value, end="completed")


def test_an_ask_sees_the_tells_before_it_and_no_other() -> None:
    async def run() -> None:
        searcher = Recorder()
        shell = Shell(searcher)
        shell.asking.tell(tell(0))
        shell.asking.tell(tell(1))
        shell.asking.ask(ask(2, 2))
        shell.asking.tell(tell(2))
        await shell.until(searcher.has_begun.is_set)
        shell.asking.tell(tell(3))
        shell.asking.ask(ask(4))
        assert not shell.events, "the loop waited for the ask"
        searcher.may_go_on.set()
        await shell.until(lambda: len(shell.events) == 2)
        assert [event.configs for event in shell.events] == [
            ({"told": [0, 1]}, {"told": [0, 1]}),
            ({"told": [0, 1, 2, 3]},),
        ]
        assert searcher.threads == {"raysweep-search"}
        shell.asking.close()

    asyncio.run(run())


def test_who_closes_waits_for_the_ask_under_way_where_there_is_one(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysweep.cluster.search_thread._JOIN_S", 10.0)

    async def run() -> None:
        Shell(Recorder()).asking.close()
        searcher = Recorder()
        shell = Shell(searcher)
        shell.asking.ask(ask(0))
        await shell.until(searcher.has_begun.is_set)
        threading.Timer(0.1, searcher.may_go_on.set).start()
        shell.asking.close()
        assert searcher.may_go_on.is_set()

    asyncio.run(run())


def test_the_answer_is_of_now_so_the_journal_keeps_its_order_in_time() -> None:
    async def run() -> None:
        searcher = Recorder()
        shell = Shell(searcher)
        shell.asking.ask(ask(0))
        await asyncio.sleep(0.05)
        meanwhile = time()
        searcher.may_go_on.set()
        await shell.until(lambda: shell.events)
        assert shell.events[0].at >= meanwhile
        shell.asking.close()

    asyncio.run(run())


def test_what_the_searcher_raises_ends_the_sweep_as_it_did_on_the_loop() -> None:
    async def run() -> None:
        searcher = Recorder()
        searcher.may_go_on.set()
        shell = Shell(searcher)
        shell.asking.ask(ask(12, 2))
        await shell.until(lambda: shell.events)
        assert [failed.number for failed in shell.events[0].failed] == [13], "one config costs its own trial"
        shell.asking.tell(tell(13))
        await shell.until(lambda: shell.errors)
        assert str(shell.errors[0]) == "an unlucky result"
        shell.asking.close()

    asyncio.run(run())


def test_nothing_is_answered_after_the_end_and_nobody_waits_for_an_ask() -> None:
    async def run() -> None:
        searcher = Recorder()
        shell = Shell(searcher)
        shell.asking.ask(ask(0))
        await shell.until(searcher.has_begun.is_set)
        began = monotonic()
        shell.asking.close()
        assert monotonic() - began < 5
        searcher.may_go_on.set()
        await asyncio.sleep(0.05)
        assert not shell.events

    asyncio.run(run())


def test_other_searchers_are_asked_at_once() -> None:
    searcher = Recorder(is_adaptive=False)
    searcher.may_go_on.set()
    shell = Shell(searcher)
    shell.asking.tell(tell(0))
    shell.asking.ask(ask(1))
    assert [event.configs for event in shell.events] == [({"told": [0]},)]
    assert searcher.threads == {threading.current_thread().name}


def test_the_lock_is_given_back_soon_and_the_collector_pauses_while_an_ask_is_computed() -> None:
    async def run() -> None:
        before = sys.getswitchinterval(), gc.isenabled()
        searchers = Recorder(), Recorder()
        shells = [Shell(searcher) for searcher in searchers]
        for shell in shells:
            shell.asking.ask(ask(0))
        await shells[0].until(lambda: all(searcher.has_begun.is_set() for searcher in searchers))
        # The one that began first is done first: what was before comes back with the last.
        for shell, searcher in zip(shells, searchers, strict=True):
            assert searcher.during == (pytest.approx(0.0005), False)
            searcher.may_go_on.set()
            await shell.until(lambda shell=shell: shell.events)
            shell.asking.close()
        assert (sys.getswitchinterval(), gc.isenabled()) == before

    asyncio.run(run())


def test_tpe_goes_on_after_a_restart_as_if_there_had_been_none() -> None:
    """What came before an ask is known to it, on the thread as in a searcher that is filled again."""

    async def run() -> list[dict[str, Any]]:
        shell = Shell(make_searcher(SPEC, 7))
        configs: list[dict[str, Any]] = []
        for number in range(16):
            shell.asking.ask(ask(number))
            if number % 3 == 2:
                for trial in range(number - 2, number):
                    shell.asking.tell(tell(trial, trial / 16))
        await shell.until(lambda: len(shell.events) == 16)
        for event in shell.events:
            configs += event.configs
        shell.asking.close()
        return configs

    configs = asyncio.run(run())
    searcher = make_searcher(SPEC, 7)
    told: list[int] = []
    for number, config in enumerate(configs):
        if number == 10:
            searcher = make_searcher(SPEC, 7)
            for earlier in range(number):
                searcher.restore(earlier, configs[earlier])
            for trial in told:
                searcher.tell(trial, trial / 16, "completed")
        assert suggest(searcher, ask(number), 0.0).configs == (config,)
        if number % 3 == 2:
            for trial in range(number - 2, number):
                searcher.tell(trial, trial / 16, "completed")
                told.append(trial)


@pytest.mark.parametrize(
    ("found", "count", "total", "is_exhausted"),
    [(4, 4, None, False), (3, 4, None, True), (4, 4, 10, False), (4, 4, 9, True), (0, 4, 5, True)],
)
def test_when_there_are_no_more_configs(
    found: int, count: int, total: int | None, is_exhausted: bool
) -> None:
    assert exhausts(found, 5, count, total) is is_exhausted
