"""Ctrl-C and SIGTERM, really sent to this process: when they are raised, kept, and passed on."""

from __future__ import annotations

import asyncio
import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from raysweep.cluster.interrupts import INSISTS, Interrupts, heard_by, signals_wait


class FakeController:
    """What `Interrupts` needs of a controller."""

    def __init__(self) -> None:
        self.heard: list[str] = []

    def interrupt(self, name: str) -> None:
        self.heard.append(name)

    def cancel(self, reason: str) -> None:
        self.heard.append(f"cancel: {reason}")


@pytest.fixture(autouse=True)
def handlers() -> Iterator[None]:
    """Each test leaves the handlers as it found them."""
    # Ignored where pytest is in the background.
    found = signal.signal(signal.SIGINT, signal.default_int_handler)
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    yield
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before
    signal.signal(signal.SIGINT, found)


@pytest.fixture
def controller() -> Any:
    return FakeController()


def press(number: int = signal.SIGINT, times: int = 1) -> None:
    for _ in range(times):
        signal.raise_signal(number)


def press_to_end(number: int = signal.SIGINT, times: int = 1) -> None:
    press(number, times)
    pytest.fail("it was not heard")


def test_a_signal_waits_for_the_end_of_what_must_not_be_interrupted() -> None:
    done: list[str] = []

    def work() -> None:
        with signals_wait():
            press(times=INSISTS - 1)
            done.append("work")

    with pytest.raises(KeyboardInterrupt):
        work()
    assert done == ["work"]


def test_who_insists_gets_out_at_once() -> None:
    with pytest.raises(KeyboardInterrupt), signals_wait():
        press_to_end(times=INSISTS)


def test_the_handlers_are_those_of_before_whatever_ray_has_set() -> None:
    with signals_wait():
        signal.signal(signal.SIGTERM, signal.SIG_DFL)  # `ray.init` sets one of its own


def test_elsewhere_than_on_the_main_thread_nothing_changes() -> None:
    seen: list[Any] = []

    def look() -> None:
        with signals_wait(), heard_by(Interrupts(), is_here=True):
            seen.append(signal.getsignal(signal.SIGINT))

    thread = threading.Thread(target=look)
    thread.start()
    thread.join()
    assert seen == [signal.getsignal(signal.SIGINT)]


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_before_there_is_a_controller_it_is_raised(number: int) -> None:
    before = signal.signal(signal.SIGTERM, signal.SIG_DFL)  # as in a plain script
    try:
        with pytest.raises(KeyboardInterrupt), heard_by(Interrupts(breaks_off=True), is_here=True):
            press_to_end(number)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_an_orchestrator_raises_its_own_error_before_there_is_a_controller() -> None:
    class Terminated(BaseException):
        pass

    def terminate(number: int, frame: object) -> None:
        raise Terminated

    before = signal.signal(signal.SIGTERM, terminate)
    try:
        with pytest.raises(Terminated), heard_by(Interrupts(breaks_off=True), is_here=True):
            press(signal.SIGTERM)
    finally:
        signal.signal(signal.SIGTERM, before)


def test_from_the_claim_on_it_is_kept_for_the_controller(controller: Any) -> None:
    interrupts = Interrupts(breaks_off=True)
    with heard_by(interrupts, is_here=True), interrupts.keeping():
        press()
        interrupts.pass_to(controller)
        press(signal.SIGTERM)
    assert controller.heard == ["SIGINT", "SIGTERM"]


def test_one_that_no_controller_took_ends_the_run_at_the_next_look() -> None:
    interrupts = Interrupts(breaks_off=True)
    with heard_by(interrupts, is_here=True):
        with interrupts.keeping():
            press()
            interrupts.check()
        with pytest.raises(KeyboardInterrupt):
            interrupts.check()


def test_a_driver_of_a_job_keeps_what_comes_early(controller: Any) -> None:
    interrupts = Interrupts()
    interrupts.cancel("its job was stopped")
    interrupts.check()
    assert not interrupts.is_taken
    interrupts.pass_to(controller)
    assert controller.heard == ["cancel: its job was stopped"]


def test_who_waits_for_a_thread_raises_nothing_and_the_thread_sees_it() -> None:
    interrupts = Interrupts(breaks_off=True)
    with heard_by(interrupts, is_here=False):
        press()
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()


def test_asyncio_does_not_take_it_and_cancel_the_task_that_waits(controller: Any) -> None:
    async def main() -> str:
        interrupts = Interrupts(breaks_off=True)
        with heard_by(interrupts, is_here=False):
            interrupts.pass_to(controller)
            press()
        await asyncio.sleep(0)  # where a cancelled task ends
        return "the outcome"

    assert asyncio.run(main()) == "the outcome"
    assert controller.heard == ["SIGINT"]


def test_a_signal_interrupts_the_sweeps_on_other_threads_too() -> None:
    here, there = FakeController(), FakeController()
    begun, ended = threading.Event(), threading.Event()

    def run_there() -> None:
        interrupts = Interrupts()
        with heard_by(interrupts, is_here=True):
            interrupts.pass_to(there)  # type: ignore[arg-type]
            begun.set()
            ended.wait(10)

    thread = threading.Thread(target=run_there)
    thread.start()
    begun.wait(10)
    interrupts = Interrupts()
    with heard_by(interrupts, is_here=True):
        interrupts.pass_to(here)  # type: ignore[arg-type]
        signal.raise_signal(signal.SIGINT)
    ended.set()
    thread.join()
    assert (here.heard, there.heard) == (["SIGINT"], ["SIGINT"])
    with heard_by(interrupts, is_here=True):
        signal.raise_signal(signal.SIGINT)
    assert there.heard == ["SIGINT"]


def test_a_run_that_follows_another_gets_its_own_interrupts(controller: FakeController) -> None:
    interrupts, next_controller = Interrupts(breaks_off=True), FakeController()
    interrupts.pass_to(controller)
    interrupts.begin_next()
    assert not interrupts.is_taken
    interrupts.pass_to(next_controller)
    interrupts.interrupt()
    assert (controller.heard, next_controller.heard) == ([], ["Ctrl-C"])


def test_an_interrupt_that_came_too_late_for_one_run_ends_the_next(controller: FakeController) -> None:
    interrupts = Interrupts(breaks_off=True)
    interrupts.pass_to(controller)
    interrupts.interrupt()
    interrupts.begin_next()
    with pytest.raises(KeyboardInterrupt):
        interrupts.check()
