"""`explain_stuck`: what stands still is told apart from what waits for something."""

from __future__ import annotations

import pytest

from raysweep.core.views.liveness import UnderWay, explain_stuck
from raysweep.core.vocabulary import events as ev
from tests.unit.core.faults import GIB, NO_WAIT, OOM
from tests.unit.core.sweep import Sweep, running
from tests.unit.core.toys import NODE_DIED

NOTHING = UnderWay()


def why(sweep: Sweep, under_way: UnderWay = NOTHING) -> str:
    return explain_stuck(sweep.state, under_way)


def test_work_that_a_worker_never_begins_is_stuck() -> None:
    sweep = running(1, trials=2)
    assert why(sweep).startswith("trials [0] are with workers that do nothing")
    assert why(sweep, UnderWay(attempts=1)) == ""


@pytest.mark.parametrize("owed", [UnderWay(opening=1), UnderWay(asks=1), UnderWay(recalls=1)])
def test_what_the_shell_owes_will_come(owed: UnderWay) -> None:
    sweep = Sweep(num_samples=2)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    assert why(sweep, owed) == ""
    assert "is not asked" in why(sweep)


def test_pending_trials_with_room_and_no_slot_are_stuck_whatever_the_timer_says() -> None:
    sweep = Sweep(num_samples=2)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.suggest(2)
    assert why(sweep, UnderWay(timer_at=1e9)).startswith("2 trials are pending, and no slot runs or opens")


def test_no_room_is_not_stuck_while_a_timer_ends_the_wait() -> None:
    sweep = running(1, trials=1)
    sweep.send(ev.CapacityChanged, slots=0)
    sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    assert why(sweep, UnderWay(timer_at=sweep.state.clock.timer_at)) == ""
    assert "no room" in why(sweep)


def test_a_retry_needs_its_timer() -> None:
    sweep = running(1, trials=1)
    sweep.failed(0)
    due = sweep.state.clock.timer_at
    assert due is not None
    assert why(sweep, UnderWay(timer_at=due)) == ""
    assert "no timer" in why(sweep, UnderWay(timer_at=due + 1))
    assert "no timer" in why(sweep)


def test_memory_that_no_node_has_is_waited_for_with_a_timer() -> None:
    sweep = running(1, trials=1, resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=16 * GIB)
    sweep.failed(0, OOM)
    sweep.send(ev.TimerFired)
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=2 * GIB)
    assert why(sweep, UnderWay(timer_at=sweep.state.clock.timer_at)) == ""
    assert "memory that no node has" in why(sweep)


def test_an_interrupt_that_does_not_leave_is_stuck() -> None:
    sweep = running(1, trials=1)
    sweep.send(ev.InterruptRequested)
    assert "do nothing" in why(sweep)
    sweep.stopped(0)
    assert why(sweep) == "", "it has left"
    sweep.state.end.has_left = False
    assert "neither ends nor leaves" in why(sweep)


def test_a_sweep_that_has_ended_is_not_stuck() -> None:
    sweep = running(1, trials=1)
    sweep.report(0, 0.5)
    sweep.returned(0)
    assert why(sweep) == ""
    sweep.state.phase, sweep.state.end.status = "running", None
    assert "every trial has ended" in why(sweep)
