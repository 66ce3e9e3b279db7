"""Interrupts and cancellations: none is lost, whatever thread they come from, and however early."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable

from raysweep.cluster.control.end_requests import EndRequests
from raysweep.core.vocabulary import events as ev


class Sweep:
    """Records the events and calls of one set of requests."""

    def __init__(self) -> None:
        self.events: list[ev.Event] = []
        self.calls: list[str] = []
        self.requests = EndRequests(
            self.events.append,
            lambda: 7.0,
            hurry=lambda: self.calls.append("hurry"),
            leave_at_once=lambda: self.calls.append("leave"),
        )

    def run(self, act: Callable[[], None]) -> None:
        async def begin_and_act() -> None:
            self.requests.begin()
            act()
            await asyncio.sleep(0.01)

        asyncio.run(begin_and_act())


def test_requests_before_the_sweep_begins_wait_for_it() -> None:
    sweep = Sweep()
    sweep.requests.cancel("too late")
    sweep.requests.interrupt("SIGTERM")
    assert not sweep.events
    sweep.run(lambda: None)
    assert sweep.events == [
        ev.InterruptRequested(at=7.0, reason="interrupted by SIGTERM"),
        ev.CancelRequested(at=7.0, reason="too late"),
    ]


def test_a_request_from_another_thread_is_taken_on_the_loop() -> None:
    sweep = Sweep()

    def act() -> None:
        thread = threading.Thread(target=sweep.requests.cancel, args=("deadline",))
        thread.start()
        thread.join()
        assert not sweep.events, "the other thread applied it itself"

    sweep.run(act)
    assert sweep.events == [ev.CancelRequested(at=7.0, reason="deadline")]
    assert sweep.calls == ["hurry"]
    assert sweep.requests.is_hurried
    assert not sweep.requests.is_at_once


def test_the_second_interrupt_leaves_at_once() -> None:
    sweep = Sweep()
    sweep.run(lambda: sweep.requests.interrupt())
    assert sweep.calls == []
    assert sweep.events == [ev.InterruptRequested(at=7.0, reason="interrupted by Ctrl-C")]
    assert not sweep.requests.is_hurried
    sweep.run(lambda: sweep.requests.interrupt())
    assert sweep.calls == ["leave"]
    assert len(sweep.events) == 1
    assert sweep.requests.is_at_once
    assert sweep.requests.is_hurried


def test_a_request_after_the_loop_has_ended_is_ignored() -> None:
    sweep = Sweep()
    sweep.run(lambda: None)
    sweep.requests.interrupt()
    sweep.requests.cancel("late")
    assert not sweep.events
