"""`step` when nodes go: they are drained, die, or make trials fail."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core import make_outcome
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.faults import GIB, NO_WAIT, OOM, kinds, out_of_memory, stop_commands
from tests.unit.core.sweep import Sweep, running, start_trial, stop_trial, tell
from tests.unit.core.toys import DIED, RAISED


def test_a_draining_node_asks_for_a_checkpoint_and_moves_its_trial() -> None:
    sweep = running(2, trials=3)
    sweep.report(0, 0.5)
    fields: dict[str, Any] = {"node": "node0", "deadline": sweep.at + 60, "reason": "spot"}
    assert sweep.send(ev.NodeDraining, **fields) == [
        cmd.StopTrial(slot=0, trial=0, attempt=1, reason="preempt", grace_s=50.0, wants_checkpoint=True)
    ]
    assert sweep.send(ev.NodeDraining, **fields) == []  # said again with each poll
    # It continues until its checkpoint: these reports count.
    sweep.report(0, 0.4)
    assert sweep.saved(0, 0, report=1) == []
    commands = sweep.stopped(0)
    assert commands == [cmd.CloseSlot(slot=0), cmd.OpenSlot(slot=2)]
    assert kinds(sweep, 0) == [("moved", None)]
    assert sweep.state.trials[0].results.overrun == 0
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
    assert sweep.state.room.excluded == ["node0"]
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
    assert (sweep.state.phase, sweep.state.room.excluded) == ("running", ["bad"])
    # If it fails there too, it is the code: at once, and without going through all nodes.
    sweep.send(ev.SlotOpened, slot=1, node="other")
    run_on(sweep, 1, 3, RAISED)
    assert sweep.state.end.status == "failed"
    assert sweep.state.room.excluded == ["bad"]


def test_failures_on_two_nodes_blame_none() -> None:
    sweep = running(2, trials=20, failure={"max_failures": 0, "breaker_trials": 0})
    run_on(sweep, 1, 1, RAISED)
    for _ in range(6):
        trial = next(n for n, t in sweep.state.trials.items() if t.slot == 0 and t.state != "failed")
        run_on(sweep, 0, trial, RAISED)
    assert sweep.state.room.excluded == []


def test_the_only_node_is_never_excluded() -> None:
    sweep = running(1, trials=5, failure={"max_failures": 0, "breaker_trials": 0, "bad_node_failures": 1})
    run_on(sweep, 0, 0, RAISED)
    assert sweep.state.room.excluded == []


def test_what_failed_on_a_bad_node_is_not_held_against_the_trial() -> None:
    failure = {"max_failures": 1, "bad_node_failures": 1, **NO_WAIT}
    sweep = running(2, trials=4, failure=failure)
    run_on(sweep, 0, 0, RAISED)
    assert sweep.state.room.excluded == ["node0"]
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
    assert list(sweep.state.line.hungry) == [0]
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
    assert sweep.state.room.excluded == ["bad"]
    assert not sweep.state.end.is_interrupted


def test_what_is_known_of_nodes_survives_a_snapshot() -> None:
    sweep = out_of_memory(failure={"bad_node_failures": 1, **NO_WAIT})
    sweep.send(ev.SlotLost, slot=0, failure=OOM)
    sweep.failed(1, RAISED)
    sweep.send(ev.NodeDraining, node="node1")
    again = SweepState.from_json(sweep.state.to_json())
    assert again.to_json() == sweep.state.to_json()
    assert again.room.draining == ["node1"]
    assert again.trials[0].needs.memory_bytes == 4 * GIB


def test_the_outcome_says_what_became_of_nodes() -> None:
    sweep = running(1)
    sweep.send(ev.NodeDraining, node="node7", reason="spot")
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.send(ev.SweepEnded)
    outcome = make_outcome(sweep.state, sweep_id="s", key="k", uri="u", version="0")
    assert any("node7" in note for note in outcome.notes)


# -- gangs on several nodes --------------------------------------------------------------------------------


def gang_on(node: str, other: str, **fields: Any) -> Sweep:
    """Slot 0 is on two nodes, slot 1 on a third; both run a trial."""
    sweep = Sweep(num_samples=4, **fields)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=2)
    sweep.suggest(4)
    sweep.send(ev.SlotOpened, slot=0, node=node, others=(other,))
    sweep.send(ev.SlotOpened, slot=1, node="elsewhere")
    sweep.began(0)
    sweep.began(1)
    return sweep


@pytest.mark.parametrize("going", ["a", "b"])
def test_a_gang_moves_when_any_of_its_nodes_goes(going: str) -> None:
    (stop,) = gang_on("a", "b").send(ev.NodeDraining, node=going)
    assert isinstance(stop, cmd.StopTrial)
    assert (stop.slot, stop.reason, stop.wants_checkpoint) == (0, "preempt", True)


def test_a_gang_that_opens_on_a_node_that_is_about_to_go_gets_no_trial_for_long() -> None:
    sweep = Sweep(num_samples=1)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.suggest(1)
    sweep.send(ev.NodeDraining, node="b")
    commands = sweep.send(ev.SlotOpened, slot=0, node="a", others=("b",))
    assert cmd.CloseSlot(slot=0) in commands


def test_of_the_nodes_of_a_gang_none_is_blamed() -> None:
    failure = {"max_failures": 0, "breaker_trials": 0, "bad_node_failures": 1}
    sweep = gang_on("a", "b", failure=failure)
    sweep.failed(0)
    assert (sweep.state.room.node_failures, sweep.state.room.excluded) == ({}, [])
    sweep.failed(1)
    assert sweep.state.room.node_failures == {"elsewhere": [1]}
