"""`step` when workers come to nothing: before their slot is open, in the place of another, unused."""

from __future__ import annotations

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.faults import kinds
from tests.unit.core.sweep import Sweep, running, start_trial
from tests.unit.core.toys import DIED

NO_WORKER = Failure(origin="start", type="ImportError", message="no module named toys")
FATAL = Failure(origin="start", type="ImportError", message="no module named toys", is_fatal=True)
GONE = Failure(origin="process", type="WorkerDied", node_state="dead")


def with_a_queue() -> Sweep:
    """Slot 0 runs trial 2, trials 3 and 4 wait behind it; slot 1 runs trial 1."""
    sweep = running(2, trials=5)
    sweep.at += 0.025
    sweep.report(0, 0.5)
    sweep.returned(0)
    assert list(sweep.state.slots[0].queue) == [2, 3, 4]
    sweep.began(2)
    return sweep


# -- a replacement that cannot be started, under an open slot ------------------------------------------


def test_a_failed_replacement_gives_the_queue_back_and_nobody_is_charged() -> None:
    sweep = with_a_queue()
    commands = sweep.send(ev.SlotFailed, slot=0, failure=NO_WORKER, node="node0")
    assert [sweep.trial_state(number) for number in (2, 3, 4)] == ["pending"] * 3
    assert kinds(sweep, 2) == [("lost", None)]
    assert (kinds(sweep, 3), kinds(sweep, 4)) == ([], [])
    assert sweep.state.line.failed_kinds == {}
    assert sweep.state.room.slot_failures == 1
    assert cmd.OpenSlot(slot=2) in commands


def test_a_failed_replacement_of_an_idle_slot_is_not_handed_a_trial() -> None:
    """It was in the line of slots that can take another: the next trial would go to a slot that is gone."""
    sweep = running(1, trials=1)
    sweep.failed(0)  # waits for its retry, and the slot for it
    assert list(sweep.state.line.hungry) == [0]
    assert sweep.send(ev.SlotFailed, slot=0, failure=NO_WORKER)[0] == cmd.OpenSlot(slot=1)
    assert list(sweep.state.line.hungry) == []
    due = sweep.state.trials[0].due_at
    assert due is not None
    sweep.timer(due)
    assert sweep.trial_state(0) == "pending"


def test_a_trial_that_is_to_end_ends_with_its_slot() -> None:
    sweep = with_a_queue()
    sweep.send(ev.CancelRequested)
    assert sweep.trial_state(2) == "stopping"
    sweep.send(ev.SlotFailed, slot=0, failure=NO_WORKER)
    assert [sweep.trial_state(number) for number in (2, 3, 4)] == ["cancelled"] * 3


def test_a_trainable_that_a_replacement_cannot_load_leaves_the_sweep_resumable() -> None:
    sweep = running(1, trials=3)
    commands = sweep.send(ev.SlotFailed, slot=0, failure=FATAL)
    assert [type(command) for command in commands] == [cmd.LeaveSweep]
    assert (sweep.state.end.fault, sweep.state.end.status) == ("spec", None)
    assert sweep.trial_state(0) == "pending"
    sweep.start(generation=2)
    sweep.send(ev.CapacityChanged, slots=1)
    assert sweep.send(ev.SlotOpened, slot=sweep.state.room.next_slot - 1)[0].trial == 0  # type: ignore[union-attr]


def test_a_replacement_on_a_node_that_goes_is_nobodys_failure() -> None:
    sweep = running(1, trials=1)
    assert sweep.send(ev.SlotFailed, slot=0, failure=GONE) == [cmd.OpenSlot(slot=1)]
    assert (sweep.state.room.slot_failures, sweep.trial_state(0)) == (0, "pending")


def test_replacements_that_fail_one_after_the_other_leave_the_sweep() -> None:
    """Each new slot opens well; what comes in its worker's place does not, before any trial has begun."""
    sweep = running(1, trials=3)
    for slot in range(2):
        sweep.send(ev.SlotFailed, slot=slot, failure=NO_WORKER)
        sweep.send(ev.SlotOpened, slot=slot + 1, node="node0")
    commands = sweep.send(ev.SlotFailed, slot=2, failure=NO_WORKER)
    assert [type(command) for command in commands] == [cmd.LeaveSweep]
    assert sweep.state.end.fault == "infrastructure"


# -- workers that die before they were handed anything -------------------------------------------------


def test_a_worker_that_dies_unused_charges_nobody() -> None:
    """A promoted spare, or a replacement, that dies before it is handed the head of the queue."""
    sweep = running(1, trials=1, failure={"max_worker_deaths": 0, "max_failures": 0})
    sweep.send(ev.SlotLost, slot=0, failure=DIED)
    assert sweep.trial_state(0) == "failed"
    sweep = Sweep(num_samples=2, failure={"max_worker_deaths": 0, "max_failures": 0})
    sweep.start()
    sweep.suggest(2)
    sweep.send(ev.CapacityChanged, slots=1)
    assert sweep.send(ev.SlotOpened, slot=0) == [start_trial(0, 0)]
    assert sweep.send(ev.SlotLost, slot=0, failure=DIED, was_handed=False) == [cmd.OpenSlot(slot=1)]
    assert (sweep.trial_state(0), kinds(sweep, 0)) == ("pending", [])
    assert sweep.state.room.node_failures == {}
    assert sweep.send(ev.SlotOpened, slot=1) == [start_trial(1, 0, attempt=2)]


def test_a_running_trial_is_not_charged_for_a_worker_that_was_handed_nothing() -> None:
    sweep = with_a_queue()
    sweep.send(ev.SlotLost, slot=0, failure=DIED, was_handed=False)
    assert kinds(sweep, 2) == [("lost", None)]


def test_workers_that_die_unused_one_after_the_other_leave_the_sweep() -> None:
    """They open well: that must not hide that none of them lives to take a trial."""
    sweep = Sweep(num_samples=2)
    sweep.start()
    sweep.suggest(2)
    sweep.send(ev.CapacityChanged, slots=1)
    for slot in range(3):
        sweep.send(ev.SlotOpened, slot=slot)
        commands = sweep.send(ev.SlotLost, slot=slot, failure=DIED, was_handed=False)
    assert [type(command) for command in commands] == [cmd.LeaveSweep]
    assert sweep.state.end.fault == "infrastructure"


def test_idle_workers_that_die_after_their_work_are_no_failed_starts() -> None:
    sweep = running(4, trials=4)
    sweep.failed(0)  # waits for its retry, and so does the sweep
    for slot in (1, 2, 3):
        sweep.report(slot, 0.5)
        sweep.returned(slot)
    (idle,) = sweep.state.line.hungry
    sweep.send(ev.SlotLost, slot=idle, failure=DIED, was_handed=False)
    assert sweep.state.room.slot_failures == 0


def test_when_the_last_worker_goes_after_others_failed_the_sweep_is_left() -> None:
    """Beside workers that ran, three could not be started: no more are. Then the node of these is drained."""
    sweep = running(1, trials=9)
    sweep.send(ev.CapacityChanged, slots=4)
    for slot in range(1, 6):
        sweep.send(ev.SlotFailed, slot=slot, failure=NO_WORKER)
    assert list(sweep.state.slots) == [0]
    sweep.send(ev.NodeDraining, node="node0")
    commands = sweep.stopped(0)
    assert [type(command) for command in commands] == [cmd.CloseSlot, cmd.LeaveSweep]
    assert "no other is left" in sweep.state.end.why
