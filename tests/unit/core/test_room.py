"""`step` when there is no place to be had: said, waited for, given up."""

from __future__ import annotations

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.sweep import Sweep, running


def test_no_room_for_long_leaves_the_sweep_resumable() -> None:
    sweep = running(1, failure={"placement_timeout_s": 100.0})
    sweep.send(ev.SlotLost, slot=0, failure=Failure(origin="node", type="NodeDied"))
    commands = sweep.send(ev.CapacityChanged, slots=0, problem="no node has 1 CPU")
    assert commands[-1] == cmd.SetTimer(at=sweep.at + 100)
    commands = sweep.timer(sweep.at + 100)
    assert sweep.state.end.is_interrupted
    assert sweep.state.end.fault == "infrastructure"
    assert "no node has 1 CPU" in sweep.state.end.why
    assert isinstance(commands[-1], cmd.LeaveSweep)


def test_room_that_comes_back_in_time_is_used() -> None:
    sweep = running(1, failure={"placement_timeout_s": 100.0})
    sweep.send(ev.SlotLost, slot=0, failure=Failure(origin="node", type="NodeDied"))
    sweep.send(ev.CapacityChanged, slots=0, problem="no node has 1 CPU")
    sweep.at += 99
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.timer(sweep.at + 1)
    assert not sweep.state.end.is_interrupted


def test_a_delayed_slot_is_said_once() -> None:
    sweep = Sweep(num_samples=1)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.suggest(1)
    for _ in range(3):
        sweep.send(ev.SlotDelayed, slot=0, problem="asked: 4 CPU; free: 1 CPU; held by job 02000000: 3 CPU")
    assert len(sweep.state.notes) == 1


def stuck(sweep: Sweep, *, can_never: bool = True) -> None:
    sweep.send(ev.DemandStuck, problem="trials wait for {CPU: 1}, and hold all of it", can_never=can_never)


def test_a_deadlock_of_nested_resources_ends_the_wait() -> None:
    sweep = running(2, failure={"placement_timeout_s": 100.0})
    sweep.at += 99
    stuck(sweep)
    assert not sweep.state.end.is_interrupted
    sweep.at += 1
    stuck(sweep)
    assert (sweep.state.end.is_interrupted, sweep.state.end.fault, sweep.state.end.fault_field) == (
        True,
        "spec",
        "resources",
    )


def test_a_trial_that_reports_is_no_deadlock() -> None:
    sweep = running(2, failure={"placement_timeout_s": 100.0})
    sweep.at += 100
    sweep.report(1, 0.5)
    stuck(sweep)
    assert not sweep.state.end.is_interrupted
    assert len(sweep.state.notes) == 1


def test_a_trial_that_stores_a_checkpoint_is_no_deadlock() -> None:
    sweep = running(1)
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    sweep.at += 400
    stuck(sweep)
    assert not sweep.state.end.is_interrupted


def test_demand_that_may_yet_be_met_is_only_said() -> None:
    sweep = running(1, failure={"placement_timeout_s": 100.0})
    sweep.at += 1000
    stuck(sweep, can_never=False)
    assert not sweep.state.end.is_interrupted


def test_how_trials_share_what_there_is_is_noted_once() -> None:
    sweep = Sweep(num_samples=2)
    sweep.start()
    for _ in range(2):
        sweep.send(ev.CapacityChanged, slots=8, note="8 trials share each GPU")
    assert sweep.state.notes == ("8 trials share each GPU",)
