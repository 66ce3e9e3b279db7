"""`step` when the cluster misbehaves: nodes that go, memory that is short, silence, no place to be had."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core import commands as cmd
from raysweep.core import events as ev
from raysweep.core import make_outcome
from raysweep.core.failures import Failure
from raysweep.core.state import SweepState
from tests.unit.core.sweep import Sweep, running, start_trial, stop_trial, tell
from tests.unit.core.world import DIED, RAISED

GIB = 2**30
OOM = Failure(origin="process", type="OutOfMemoryError", bases=("OutOfMemoryError", "RayError"))
NO_WAIT = {"backoff_initial_s": 0.0, "backoff_max_s": 0.0}


def stop_commands(commands: list[cmd.Command]) -> list[cmd.StopTrial]:
    return [command for command in commands if isinstance(command, cmd.StopTrial)]


def kinds(sweep: Sweep, trial: int) -> list[tuple[str, str | None]]:
    return [(attempt.end, attempt.kind) for attempt in sweep.state.trials[trial].attempts]


# -- nodes that go ----------------------------------------------------------------------------------


def test_a_draining_node_asks_for_a_checkpoint_and_moves_its_trial() -> None:
    sweep = running(2, trials=3)
    sweep.report(0, 0.5)
    fields: dict[str, Any] = {"node": "node0", "deadline": sweep.at + 60, "reason": "spot"}
    assert sweep.send(ev.NodeDraining, **fields) == [
        cmd.StopTrial(slot=0, trial=0, attempt=1, reason="preempt", grace_s=50.0, wants_checkpoint=True)
    ]
    assert sweep.send(ev.NodeDraining, **fields) == []  # said again with each poll
    # It goes on until its checkpoint: these reports count.
    sweep.report(0, 0.4)
    assert sweep.saved(0, 0, report=1) == []
    commands = sweep.stopped(0)
    assert commands == [cmd.CloseSlot(slot=0), cmd.OpenSlot(slot=2)]
    assert kinds(sweep, 0) == [("moved", None)]
    assert sweep.state.trials[0].overrun == 0
    (start,) = sweep.send(ev.SlotOpened, slot=2, node="node9")
    assert start == start_trial(2, 0, attempt=2, checkpoint="mem://0/0", iteration=2)
    assert any("node0" in note and "spot" in note for note in sweep.state.notes)


@pytest.mark.parametrize(
    ("left_s", "grace_s"), [(None, 30.0), (60.0, 50.0), (8.0, 6.0), (0.0, 0.0), (-5.0, 0.0)]
)
def test_the_grace_before_a_node_goes(left_s: float | None, grace_s: float) -> None:
    sweep = running(1)
    deadline = None if left_s is None else sweep.at + left_s
    (stop,) = sweep.send(ev.NodeDraining, node="node0", deadline=deadline)
    assert isinstance(stop, cmd.StopTrial)
    assert stop.grace_s == pytest.approx(grace_s)


def test_a_draining_node_gives_back_what_has_not_begun() -> None:
    sweep = running(1, trials=3)
    sweep.at += 0.01
    sweep.report(0, 0.5)
    sweep.returned(0)  # short: both others are handed over
    commands = sweep.send(ev.NodeDraining, node="node0")
    assert commands == [cmd.RecallTrials(slot=0, trials=(1, 2))]
    # One of them had begun when the question came: it is asked like any other.
    assert sweep.began(1) == [
        cmd.StopTrial(slot=0, trial=1, attempt=1, reason="preempt", grace_s=30.0, wants_checkpoint=True)
    ]
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(2,)) == []
    assert sweep.stopped(1) == [cmd.CloseSlot(slot=0), cmd.OpenSlot(slot=1)]


def test_an_idle_slot_on_a_draining_node_is_closed_at_once() -> None:
    sweep = running(2, trials=3)
    sweep.report(1, 0.5)
    sweep.failed(1)  # waits for its retry
    sweep.began(2)
    assert cmd.CloseSlot(slot=0) not in sweep.send(ev.NodeDraining, node="node7")
    assert stop_commands(sweep.send(ev.NodeDraining, node="node1"))


def test_a_slot_that_opens_on_a_draining_node_is_closed() -> None:
    sweep = Sweep(num_samples=1)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.suggest(1)
    sweep.send(ev.NodeDraining, node="a")
    commands = sweep.send(ev.SlotOpened, slot=0, node="a")
    assert commands == [cmd.CloseSlot(slot=0), cmd.OpenSlot(slot=1)]
    assert sweep.send(ev.SlotOpened, slot=1, node="b") == [start_trial(1, 0)]


def test_a_node_that_dies_while_draining_costs_nothing() -> None:
    sweep = running(1, failure={"max_failures": 0, "max_worker_deaths": 0})
    sweep.send(ev.NodeDraining, node="node0", deadline=sweep.at + 5)
    sweep.send(ev.SlotLost, slot=0, failure=DIED)
    assert sweep.trial_state(0) == "pending"
    assert kinds(sweep, 0) == [("moved", None)]


def test_a_trial_that_ends_by_itself_while_it_should_move_has_completed() -> None:
    sweep = running(1)
    sweep.send(ev.NodeDraining, node="node0")
    sweep.report(0, 0.25)
    assert sweep.returned(0)[0] == tell(0, 0.25, "completed")


def test_the_schedulers_word_is_final_for_a_trial_that_should_move() -> None:
    asha = {"asha": {"max_t": 2, "grace_period": 1, "reduction_factor": 2}}
    sweep = running(1, scheduler=asha)
    sweep.send(ev.NodeDraining, node="node0")
    (again,) = sweep.report(0, 0.5, 0.4)  # max_t is reached
    assert again == stop_trial(0, 0, "limit")
    assert sweep.stopped(0)[0] == tell(0, 0.4, "completed")


def test_the_end_of_the_sweep_overrules_a_move() -> None:
    sweep = running(1, trials=2)
    sweep.send(ev.NodeDraining, node="node0", deadline=sweep.at + 600)
    assert sweep.send(ev.CancelRequested) == [stop_trial(0, 0, "sweep")]
    sweep.stopped(0)
    assert sweep.trial_state(0) == "cancelled"


# -- nodes that make trials fail --------------------------------------------------------------------


def run_on(sweep: Sweep, slot: int, trial: int, failure: Failure | None) -> list[cmd.Command]:
    attempt = sweep.state.trials[trial].attempt
    if sweep.trial_state(trial) == "queued":
        sweep.began(trial, attempt)
    if failure is not None:
        return sweep.failed(trial, failure, attempt)
    sweep.report(trial, 0.5, attempt=attempt)
    return sweep.returned(trial, attempt)


def test_a_node_that_fails_three_trials_gets_no_more() -> None:
    sweep = running(2, trials=20, failure={"max_failures": 0, "breaker_trials": 3})
    commands = run_on(sweep, 0, 0, RAISED)
    for _ in range(2):
        on_node0 = next(
            n for n, t in sweep.state.trials.items() if t.slot == 0 and t.state in ("queued", "running")
        )
        commands = run_on(sweep, 0, on_node0, RAISED)
    assert cmd.ExcludeNode(node="node0") in commands
    assert cmd.CloseSlot(slot=0) in commands
    assert sweep.state.phase == "running", "the other node works: the sweep is not at fault"
    assert sweep.state.excluded == ["node0"]
    sweep.send(ev.CapacityChanged, slots=1)
    assert any("node node0 gets no more trials" in note for note in sweep.state.notes)
    # Another controller is told again.
    assert cmd.ExcludeNode(node="node0") in sweep.start(generation=2)


def test_other_nodes_get_their_chance_before_the_code_is_blamed() -> None:
    """The first worker is up long before the others, and on a bad node."""
    sweep = Sweep(num_samples=20, failure={"max_failures": 0, "breaker_trials": 3})
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=2, nodes=2)
    sweep.suggest(20)
    sweep.send(ev.SlotOpened, slot=0, node="bad")
    for trial in range(3):
        run_on(sweep, 0, trial, RAISED)
    assert (sweep.state.phase, sweep.state.excluded) == ("running", ["bad"])
    # If it fails there too, it is the code: at once, and without going through all nodes.
    sweep.send(ev.SlotOpened, slot=1, node="other")
    run_on(sweep, 1, 3, RAISED)
    assert sweep.state.status == "failed"
    assert sweep.state.excluded == ["bad"]


def test_failures_on_two_nodes_blame_none() -> None:
    sweep = running(2, trials=20, failure={"max_failures": 0, "breaker_trials": 0})
    run_on(sweep, 1, 1, RAISED)
    for _ in range(6):
        trial = next(n for n, t in sweep.state.trials.items() if t.slot == 0 and t.state != "failed")
        run_on(sweep, 0, trial, RAISED)
    assert sweep.state.excluded == []


def test_the_only_node_is_never_excluded() -> None:
    sweep = running(1, trials=5, failure={"max_failures": 0, "breaker_trials": 0, "bad_node_failures": 1})
    run_on(sweep, 0, 0, RAISED)
    assert sweep.state.excluded == []


def test_what_failed_on_a_bad_node_is_not_held_against_the_trial() -> None:
    failure = {"max_failures": 1, "bad_node_failures": 1, **NO_WAIT}
    sweep = running(2, trials=4, failure=failure)
    run_on(sweep, 0, 0, RAISED)
    assert sweep.state.excluded == ["node0"]
    sweep.send(ev.TimerFired)
    run_on(sweep, 1, 1, None)
    assert sweep.state.trials[0].slot == 1
    run_on(sweep, 1, 0, RAISED)
    assert sweep.trial_state(0) == "waiting", "its one retry was not spent on the bad node"


def test_a_retry_prefers_another_node() -> None:
    failure = {"bad_node_failures": 0, "breaker_trials": 0, **NO_WAIT}
    sweep = running(2, trials=4, failure=failure)
    sweep.at += 5
    sweep.failed(0)  # slot 0 takes trial 2
    sweep.failed(2)  # and trial 3
    sweep.failed(3)
    assert list(sweep.state.hungry) == [0]
    sweep.report(1, 0.5)
    sweep.returned(1)
    # Both slots are idle now, slot 1 in front; the first trial that is due goes where it has not failed.
    sweep.send(ev.TimerFired)
    assert sweep.state.trials[0].slot == 1


def test_a_node_where_workers_do_not_start_is_excluded_not_the_trainable_blamed() -> None:
    fatal = Failure(origin="start", type="ImportError", message="libcuda.so", is_fatal=True)
    sweep = running(1, trials=9, failure={"bad_node_failures": 2})
    sweep.send(ev.CapacityChanged, slots=3)
    for slot in (1, 3):
        assert slot in sweep.state.slots
        sweep.send(ev.SlotFailed, slot=slot, failure=fatal, node="bad")
    assert sweep.state.excluded == ["bad"]
    assert not sweep.state.is_interrupted


# -- memory -----------------------------------------------------------------------------------------


def out_of_memory(largest: int = 16 * GIB, **fields: Any) -> Sweep:
    fields.setdefault("failure", NO_WAIT)
    sweep = running(2, trials=3, resources={"cpu": 1, "memory": 2 * GIB}, **fields)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=largest)
    return sweep


def make_large(sweep: Sweep) -> list[cmd.Command]:
    """Trial 0 runs out of memory in slot 0; the commands when its retry is due and a place falls idle."""
    assert sweep.send(ev.SlotLost, slot=0, failure=OOM)[0] == cmd.OpenSlot(slot=2)
    assert sweep.trial_state(0) == "waiting"
    assert sweep.send(ev.SlotOpened, slot=2, node="node0") == [start_trial(2, 2)]
    assert sweep.send(ev.TimerFired)[-1:] != [cmd.OpenSlot(slot=3)], "there is no room yet"
    sweep.began(2)
    sweep.report(2, 0.5)
    return sweep.returned(2)


def test_a_trial_that_ran_out_of_memory_gets_a_larger_slot() -> None:
    sweep = out_of_memory()
    assert make_large(sweep)[1:] == [cmd.CloseSlot(slot=2), cmd.OpenSlot(slot=3, memory_bytes=4 * GIB)]
    (start,) = sweep.send(ev.SlotOpened, slot=3, node="big")
    assert start == start_trial(3, 0, attempt=2)


def test_idle_slots_make_room_until_the_large_one_has_its_place() -> None:
    sweep = out_of_memory()
    make_large(sweep)
    sweep.report(1, 0.5)
    assert sweep.returned(1)[1:] == [cmd.CloseSlot(slot=1)]


def test_an_idle_small_slot_is_not_in_the_way_of_a_large_trial() -> None:
    """Two trials need more memory; the line's front is a slot that is too small for both."""
    sweep = running(3, trials=3, resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    sweep.send(ev.CapacityChanged, slots=3, memory_bytes=16 * GIB)
    sweep.failed(0, OOM)
    sweep.failed(1, OOM)
    sweep.send(ev.TimerFired)
    large = next(slot.number for slot in sweep.state.slots.values() if slot.memory_bytes)
    sweep.send(ev.SlotOpened, slot=large, node="big")
    for trial in (0, 1):
        assert sweep.state.trials[trial].slot == large
        attempt = sweep.state.trials[trial].attempt
        sweep.began(trial, attempt)
        sweep.report(trial, 0.5, attempt=attempt)
        for slot in [slot.number for slot in sweep.state.slots.values() if not slot.is_open]:
            sweep.send(ev.SlotOpened, slot=slot, node="small")
        sweep.returned(trial, attempt)
    assert sweep.state.counts["completed"] == 2


def test_memory_that_no_node_has_ends_the_trial() -> None:
    sweep = out_of_memory(largest=2 * GIB)
    commands = sweep.send(ev.SlotLost, slot=0, failure=OOM)
    assert tell(0, None, "failed") in commands
    failure = sweep.state.trials[0].attempts[-1].failure
    assert failure is not None
    assert "the largest node has 2 GiB" in failure.message
    assert sweep.state.phase == "running"


def test_all_of_a_nodes_memory_is_tried_before_giving_up() -> None:
    sweep = out_of_memory(largest=3 * GIB)
    sweep.send(ev.SlotLost, slot=0, failure=OOM)
    assert sweep.state.trials[0].memory_bytes == 3 * GIB


def test_out_of_memory_has_a_budget_of_its_own() -> None:
    sweep = running(1, failure={"max_failures": 0, "max_worker_deaths": 0, "max_ooms": 2, **NO_WAIT})
    for attempt in (1, 2, 3):
        assert sweep.trial_state(0) in ("queued", "running")
        if sweep.trial_state(0) == "queued":
            sweep.began(0, attempt)
        sweep.failed(0, OOM, attempt)
        sweep.send(ev.TimerFired)
    assert sweep.trial_state(0) == "failed"
    assert [kind for _, kind in kinds(sweep, 0)] == ["oom", "oom", "oom"]


def test_without_a_request_what_was_seen_counts() -> None:
    sweep = running(1, failure=NO_WAIT)
    seen = Failure(origin="memory", type="KernelOutOfMemory", memory_bytes=GIB)
    sweep.failed(0, seen)
    assert sweep.state.trials[0].memory_bytes == 2 * GIB


def test_a_large_slot_is_given_back_when_nobody_needs_it() -> None:
    sweep = out_of_memory()
    make_large(sweep)
    sweep.send(ev.SlotOpened, slot=3, node="big")
    sweep.began(0, 2)
    sweep.report(0, 0.5, attempt=2)
    assert cmd.CloseSlot(slot=3) in sweep.returned(0, 2)
    assert sweep.state.hungry_for_memory == 0


# -- silence ----------------------------------------------------------------------------------------

SILENT = {"report_timeout_s": 60.0, **NO_WAIT}


def test_a_silent_trial_is_killed_and_tried_again() -> None:
    sweep = running(1, failure=SILENT)
    assert sweep.state.timer_at == sweep.at + 60
    sweep.at += 50
    assert sweep.report(0, 0.5) == [], "the timer is left alone: an early one costs less than many"
    sweep.at += 10
    assert sweep.timer(sweep.at) == [cmd.SetTimer(at=sweep.at + 50)]
    commands = sweep.timer(sweep.at + 50)
    assert stop_commands(commands) == [cmd.StopTrial(slot=0, trial=0, attempt=1, reason="hung", grace_s=0.0)]
    sweep.send(ev.TrialStopped, trial=0, attempt=1, where="File x.py, line 3, in wait")
    (attempt,) = sweep.state.trials[0].attempts
    assert (attempt.end, attempt.kind) == ("retried", "hung")
    assert attempt.failure is not None
    assert "no report for 60 s" in attempt.failure.message
    assert "line 3" in attempt.failure.traceback


def test_silence_counts_as_a_workers_death() -> None:
    sweep = running(1, failure={**SILENT, "max_worker_deaths": 1})
    sweep.failed(0, DIED)
    sweep.send(ev.TimerFired)
    sweep.began(0, 2)
    sweep.timer(sweep.at + 60)
    sweep.send(ev.TrialStopped, trial=0, attempt=2, was_killed=True)
    assert sweep.trial_state(0) == "failed"
    assert [kind for _, kind in kinds(sweep, 0)] == ["worker_died", "hung"]


def test_a_trial_that_returns_while_it_is_being_killed_has_completed() -> None:
    sweep = running(1, failure=SILENT)
    sweep.timer(sweep.at + 60)
    sweep.report(0, 0.5)
    assert sweep.returned(0)[0] == tell(0, 0.5, "completed")


def test_a_checkpoint_breaks_the_silence() -> None:
    sweep = running(1, failure=SILENT)
    sweep.report(0, 0.5)
    sweep.at += 59
    sweep.saved(0, 0, report=0)
    assert stop_commands(sweep.timer(sweep.at + 2)) == []
    assert stop_commands(sweep.timer(sweep.at + 58))


def test_a_trial_that_moves_a_checkpoint_is_not_silent() -> None:
    """It could not report if it wanted to: an upload may take longer than any report."""
    sweep = running(1, failure=SILENT)
    sweep.report(0, 0.5)
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    assert stop_commands(sweep.timer(sweep.at + 600)) == []
    assert sweep.state.timer_at is None
    sweep.saved(0, 0, report=0)
    assert sweep.state.timer_at == sweep.at + 60
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    sweep.at += 100
    sweep.send(ev.CheckpointFailed, trial=0, attempt=1, number=1, problem="no space")
    assert stop_commands(sweep.timer(sweep.at + 59)) == []
    assert stop_commands(sweep.timer(sweep.at + 1))


def test_a_trial_that_fetches_its_checkpoint_is_not_silent() -> None:
    sweep = running(1, failure=SILENT)
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    sweep.send(ev.TrialBusy, trial=0, attempt=7)  # of another attempt
    assert stop_commands(sweep.timer(sweep.at + 600)) == []
    sweep.send(ev.TrialBusy, trial=0, attempt=1, is_over=True)
    assert stop_commands(sweep.timer(sweep.at + 60))


def test_nobody_is_silent_while_the_storage_is() -> None:
    """Reports are held back then, and trials that wait for an answer get none."""
    sweep = running(2, failure=SILENT)
    sweep.at += 59
    sweep.send(ev.StorageStalled)
    assert stop_commands(sweep.timer(sweep.at + 300)) == []
    assert sweep.state.timer_at is None
    sweep.send(ev.StorageStalled, is_over=True)
    assert sweep.state.timer_at == sweep.at + 60
    sweep.at += 1
    sweep.report(0, 0.5)
    (stop,) = stop_commands(sweep.timer(sweep.at + 59))
    assert (stop.trial, stop.reason) == (1, "hung")
    sweep.send(ev.StorageStalled)
    sweep.start(generation=2)
    assert not sweep.state.is_stalled


# -- no place ---------------------------------------------------------------------------------------


def test_no_room_for_long_leaves_the_sweep_resumable() -> None:
    sweep = running(1, failure={"placement_timeout_s": 100.0})
    sweep.send(ev.SlotLost, slot=0, failure=Failure(origin="node", type="NodeDied"))
    commands = sweep.send(ev.CapacityChanged, slots=0, problem="no node has 1 CPU")
    assert commands[-1] == cmd.SetTimer(at=sweep.at + 100)
    commands = sweep.timer(sweep.at + 100)
    assert sweep.state.is_interrupted
    assert sweep.state.fault == "infrastructure"
    assert "no node has 1 CPU" in sweep.state.why
    assert isinstance(commands[-1], cmd.LeaveSweep)


def test_room_that_comes_back_in_time_is_used() -> None:
    sweep = running(1, failure={"placement_timeout_s": 100.0})
    sweep.send(ev.SlotLost, slot=0, failure=Failure(origin="node", type="NodeDied"))
    sweep.send(ev.CapacityChanged, slots=0, problem="no node has 1 CPU")
    sweep.at += 99
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.timer(sweep.at + 1)
    assert not sweep.state.is_interrupted


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
    assert not sweep.state.is_interrupted
    sweep.at += 1
    stuck(sweep)
    assert (sweep.state.is_interrupted, sweep.state.fault, sweep.state.fault_field) == (
        True,
        "spec",
        "resources",
    )


def test_a_trial_that_reports_is_no_deadlock() -> None:
    sweep = running(2, failure={"placement_timeout_s": 100.0})
    sweep.at += 100
    sweep.report(1, 0.5)
    stuck(sweep)
    assert not sweep.state.is_interrupted
    assert len(sweep.state.notes) == 1


def test_a_trial_that_stores_a_checkpoint_is_no_deadlock() -> None:
    sweep = running(1)
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    sweep.at += 400
    stuck(sweep)
    assert not sweep.state.is_interrupted


def test_demand_that_may_yet_be_met_is_only_said() -> None:
    sweep = running(1, failure={"placement_timeout_s": 100.0})
    sweep.at += 1000
    stuck(sweep, can_never=False)
    assert not sweep.state.is_interrupted


# -- remembered -------------------------------------------------------------------------------------


def test_what_is_known_of_nodes_survives_a_snapshot() -> None:
    sweep = out_of_memory(failure={"bad_node_failures": 1, **NO_WAIT})
    sweep.send(ev.SlotLost, slot=0, failure=OOM)
    sweep.failed(1, RAISED)
    sweep.send(ev.NodeDraining, node="node1")
    again = SweepState.from_json(sweep.state.to_json())
    assert again.to_json() == sweep.state.to_json()
    assert again.draining == ["node1"]
    assert again.trials[0].memory_bytes == 4 * GIB


def test_the_outcome_says_what_became_of_nodes() -> None:
    sweep = running(1)
    sweep.send(ev.NodeDraining, node="node7", reason="spot")
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.send(ev.SweepEnded)
    outcome = make_outcome(sweep.state, sweep_id="s", key="k", uri="u", version="0")
    assert any("node7" in note for note in outcome.notes)
