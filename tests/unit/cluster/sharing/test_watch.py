"""The controller's looks at the register become events."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor

import pytest

from raysweep.cluster.clock import SteadyClock
from raysweep.cluster.sharing.division import Bundle, Claim
from raysweep.cluster.sharing.register import ALONE, Register, Share
from raysweep.cluster.sharing.watch import ShareWatch
from raysweep.core import SweepState
from raysweep.core.vocabulary import events as ev
from tests.unit.core.toys import make_spec


class FakeRegister(Register):
    """Answers what it is told to, and keeps the claims."""

    pause_s = 0.001  # type: ignore[assignment]

    def __init__(self, *answers: Share | Exception) -> None:
        self.answers = list(answers)
        self.claims: list[Claim] = []
        self.left = 0
        self.has_looked = threading.Event()

    def look(self, claim: Claim, groups: Mapping[str, Sequence[Bundle]]) -> Share:
        self.claims.append(claim)
        if len(self.claims) == 8:
            self.has_looked.set()
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, Exception):
            raise answer
        return answer

    def leave(self) -> None:
        self.left += 1


def make_watch(register: Register, threads: ThreadPoolExecutor) -> tuple[ShareWatch, list[ev.Event]]:
    spec = make_spec(share={"weight": 2, "priority": 3}, num_samples=30, resources={"cpu": 2})
    events: list[ev.Event] = []
    state = SweepState.create(spec, 7)
    return ShareWatch(spec, state, register, dict, events.append, threads, SteadyClock(100.0)), events


def test_the_first_look_says_what_is_wanted_before_the_cluster_is_known() -> None:
    register = FakeRegister(Share(slots=3, beside=1))
    with ThreadPoolExecutor(1) as threads:
        watch, events = make_watch(register, threads)
        watch.see_first(8)
    (claim,) = register.claims
    assert (claim.wants, claim.weight, claim.priority, claim.bundle) == (8, 2.0, 3, {"CPU": 2.0})
    (event,) = events
    assert isinstance(event, ev.ShareChanged)
    assert (event.slots, event.beside, event.is_hurried) == (3, 1, False)


def test_alone_nothing_is_said() -> None:
    with ThreadPoolExecutor(1) as threads:
        watch, events = make_watch(FakeRegister(ALONE), threads)
        watch.see_first(8)
    assert events == []


def test_only_changes_are_events_and_a_store_that_is_away_changes_nothing(
    caplog: pytest.LogCaptureFixture,
) -> None:
    away = RuntimeError("the control store is away")
    register = FakeRegister(
        Share(slots=4, beside=1), Share(slots=4, beside=1), away, away, Share(slots=2, beside=2), ALONE
    )

    async def watched(watch: ShareWatch) -> None:
        running = asyncio.get_running_loop().create_task(watch.run())
        await asyncio.to_thread(register.has_looked.wait, 10)
        running.cancel()
        await watch.leave()

    with ThreadPoolExecutor(1) as threads:
        watch, events = make_watch(register, threads)
        asyncio.run(watched(watch))
    shares = [(each.slots, each.beside) for each in events if isinstance(each, ev.ShareChanged)]
    assert shares == [(4, 1), (2, 2), (None, 0)]
    assert register.left == 1
    assert caplog.text.count("was not read") == 1
