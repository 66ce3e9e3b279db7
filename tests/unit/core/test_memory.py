"""`step` when memory is short: more of it for the trial, as far as nodes have it."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from raysweep.core.handlers import assignment, transitions
from raysweep.core.state.trial_parts import Attempt
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.schedulers import Pause, Resume, load_scheduler
from raysweep.space.amounts import Needs
from tests.policies import Whim
from tests.unit.core.faults import GIB, NO_WAIT, OOM, kinds, out_of_memory
from tests.unit.core.sweep import Sweep, running, start_trial, tell
from tests.unit.core.toys import NODE_DIED, make_spec


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
    assert make_large(sweep)[1:] == [
        cmd.CloseSlot(slot=2),
        cmd.OpenSlot(slot=3, needs=Needs(memory_bytes=4 * GIB)),
    ]
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
    large = next(slot.number for slot in sweep.state.slots.values() if slot.needs.memory_bytes)
    sweep.send(ev.SlotOpened, slot=large, node="big")
    for trial in (0, 1):
        assert sweep.state.trials[trial].slot == large
        attempt = sweep.state.trials[trial].attempt
        sweep.began(trial, attempt)
        sweep.report(trial, 0.5, attempt=attempt)
        for slot in [slot.number for slot in sweep.state.slots.values() if not slot.is_open]:
            sweep.send(ev.SlotOpened, slot=slot, node="small")
        sweep.returned(trial, attempt)
    assert sweep.state.line.counts["completed"] == 2


def test_memory_that_no_node_has_ends_the_trial() -> None:
    sweep = out_of_memory(largest=2 * GIB)
    commands = sweep.send(ev.SlotLost, slot=0, failure=OOM)
    assert tell(0, None, "infeasible") in commands
    failure = sweep.state.trials[0].attempts[-1].failure
    assert failure is not None
    assert "the largest node has 2 GiB" in failure.message
    assert sweep.state.phase == "running"


def test_all_of_a_nodes_memory_is_tried_before_giving_up() -> None:
    sweep = out_of_memory(largest=3 * GIB)
    sweep.send(ev.SlotLost, slot=0, failure=OOM)
    assert sweep.state.trials[0].needs.memory_bytes == 3 * GIB


def test_out_of_memory_shares_the_budget_of_deaths() -> None:
    sweep = running(1, failure={"max_failures": 0, "max_worker_deaths": 2, **NO_WAIT})
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
    assert sweep.state.trials[0].needs.memory_bytes == 2 * GIB


def test_a_large_slot_is_given_back_when_nobody_needs_it() -> None:
    sweep = out_of_memory()
    make_large(sweep)
    sweep.send(ev.SlotOpened, slot=3, node="big")
    sweep.began(0, 2)
    sweep.report(0, 0.5, attempt=2)
    assert [slot.needs.memory_bytes for slot in sweep.state.tally.large_slots] == [4 * GIB]
    assert cmd.CloseSlot(slot=3) in sweep.returned(0, 2)
    assert sweep.state.line.hungry_for_memory == 0
    assert not sweep.state.tally.has_large


# -- memory that no node has (any more) ----------------------------------------------------------------


def out_of_reach(**fields: Any) -> Sweep:
    """Trial 0 needs 4 GiB, and its slot is about to open, when the only node with so much goes."""
    sweep = running(2, trials=8, resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT, **fields)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=16 * GIB)
    sweep.failed(0, OOM)
    sweep.send(ev.TimerFired)
    run(sweep, 1)
    run(sweep, 2)
    assert [slot.needs.memory_bytes for slot in sweep.state.slots.values() if not slot.is_open] == [4 * GIB]
    return sweep


def run(sweep: Sweep, trial: int) -> list[cmd.Command]:
    """A trial runs for long, and well; what opens on the way opens."""
    attempt = sweep.state.trials[trial].attempt
    if sweep.trial_state(trial) == "queued":
        sweep.began(trial, attempt)
    sweep.at += 5
    sweep.report(trial, 0.5, attempt=attempt)
    return sweep.returned(trial, attempt)


def run_all_others(sweep: Sweep) -> None:
    """Everything that slots take is run; small slots open at once."""
    for _ in range(40):
        for slot in [slot for slot in sweep.state.slots.values() if not slot.is_open]:
            if not slot.needs.memory_bytes:
                sweep.send(ev.SlotOpened, slot=slot.number, node="small")
        heads = [slot.queue[0] for slot in sweep.state.slots.values() if slot.queue]
        if not heads:
            return
        run(sweep, heads[0])


def test_a_trial_that_no_node_can_hold_does_not_starve_the_others() -> None:
    sweep = out_of_reach()
    (large,) = [slot.number for slot in sweep.state.slots.values() if slot.needs.memory_bytes]
    commands = sweep.send(ev.CapacityChanged, slots=2, memory_bytes=3 * GIB)
    assert commands[0] == cmd.CloseSlot(slot=large)
    run_all_others(sweep)
    assert sweep.state.line.counts == {"pending": 1, "queued": 0, "running": 0, "waiting": 0, "completed": 7}
    assert not sweep.state.slots, "nobody needs them"


def test_no_slot_is_opened_for_a_trial_that_no_node_can_hold() -> None:
    """While configs are still to come, too: one of two is there, and its trial cannot run."""
    sweep = Sweep(num_samples=2, resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=16 * GIB)
    sweep.suggest(1, is_exhausted=False)
    for slot in (0, 1):
        sweep.send(ev.SlotOpened, slot=slot, node=f"node{slot}")
    sweep.began(0)
    sweep.failed(0, OOM)
    sweep.send(ev.TimerFired)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=3 * GIB)
    assert sweep.trial_state(0) == "pending"
    assert not sweep.state.search.is_exhausted
    assert len(sweep.state.slots) == 1, "for the config to come"


def test_a_sweep_with_results_ends_without_the_trial_that_no_node_can_hold() -> None:
    sweep = out_of_reach()
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=3 * GIB)
    run_all_others(sweep)
    due = sweep.at + sweep.state.rules.slots.placement_timeout_s
    assert sweep.state.clock.timer_at == due
    commands = sweep.timer(due)
    assert commands == [
        tell(0, None, "infeasible"),
        cmd.EndSweep(status="completed", why="every trial has ended"),
    ]
    trial = sweep.state.trials[0]
    assert [(attempt.end, attempt.kind) for attempt in trial.attempts] == [
        ("retried", "oom"),
        ("gave_up", "oom"),
    ]
    why = "trial 0 ran out of memory: it needs 4 GiB, and the largest node offers 3 GiB"
    assert trial.attempts[-1].failure is not None
    assert trial.attempts[-1].failure.message == f"{why}; waited 300 s for more"
    assert any(note.startswith(why) for note in sweep.state.notes)


def test_a_sweep_without_results_is_left_where_no_node_can_hold_its_trials() -> None:
    """It can be resumed on a cluster that has such nodes: nothing has failed for good."""
    sweep = running(1, trials=1, resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=16 * GIB)
    sweep.failed(0, OOM)
    sweep.send(ev.TimerFired)
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=2 * GIB)
    assert sweep.state.clock.timer_at is not None
    commands = sweep.timer(sweep.state.clock.timer_at)
    assert [type(command) for command in commands if not isinstance(command, cmd.SetTimer)] == [
        cmd.LeaveSweep
    ]
    assert (sweep.state.end.fault, sweep.trial_state(0)) == ("infrastructure", "pending")
    # A smaller cluster again: nothing is opened for it, and the wait begins anew.
    sweep.start(generation=2)
    assert sweep.send(ev.CapacityChanged, slots=1, memory_bytes=2 * GIB) == [
        cmd.SetTimer(at=sweep.at + sweep.state.rules.slots.placement_timeout_s)
    ]
    commands = sweep.send(ev.CapacityChanged, slots=1, memory_bytes=8 * GIB)
    assert commands[0] == cmd.OpenSlot(slot=sweep.state.room.next_slot - 1, needs=Needs(memory_bytes=4 * GIB))


def test_a_node_that_comes_in_time_takes_the_large_trial() -> None:
    sweep = out_of_reach()
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=3 * GIB)
    run_all_others(sweep)
    sweep.at += 100
    commands = sweep.send(ev.CapacityChanged, slots=2, memory_bytes=32 * GIB)
    large = sweep.state.room.next_slot - 1
    assert commands[0] == cmd.OpenSlot(slot=large, needs=Needs(memory_bytes=4 * GIB))
    (start,) = sweep.send(ev.SlotOpened, slot=large, node="big")
    assert start == start_trial(large, 0, attempt=2)
    run(sweep, 0)
    assert sweep.state.end.status == "completed"


def test_an_adaptive_searcher_is_asked_on_while_a_large_trial_waits() -> None:
    sweep = running(1, trials=3, search="tpe", resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    state = sweep.state
    state.search.is_exhausted = False
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=3 * GIB)
    trial = state.trials[0]
    sweep.failed(0, OOM)
    assert trial.needs.memory_bytes == 3 * GIB
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=2 * GIB)
    sweep.send(ev.TimerFired)
    for number in (1, 2):
        run(sweep, number)
    assert state.search.asked == 4, "the next config is asked for"


def test_an_adaptive_searcher_says_that_it_is_done_while_a_large_trial_waits() -> None:
    """The last slot has gone, and nobody but it would have asked: the wait for memory begins, and ends."""
    sweep = running(1, trials=2, search="tpe", resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    state = sweep.state
    state.search.is_exhausted = False
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=3 * GIB)
    sweep.failed(0, OOM)
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=2 * GIB)
    sweep.send(ev.TimerFired)
    sweep.send(ev.NodeDraining, node="node0")
    commands = run(sweep, 1)
    assert any(isinstance(command, cmd.CloseSlot) for command in commands)
    assert cmd.SuggestConfigs(first=2, count=1) in commands
    sweep.send(ev.ConfigsSuggested, first=2, configs=(), is_exhausted=True)
    assert state.clock.timer_at is not None
    sweep.timer(state.clock.timer_at)
    assert state.end.status == "completed"
    assert sweep.trial_state(0) == "failed"


def test_large_trials_that_no_slot_takes_go_back_into_the_line_in_order(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of trials in order, one that was under way is taken first; it does not stay before lower numbers."""
    sweep = running(
        1,
        trials=4,
        max_concurrent_trials=1,
        scheduler={"asha": {"type": "promotion", "max_t": 9, "grace_period": 3}},
        resources={"cpu": 1, "memory": 2 * GIB},
    )
    state = sweep.state
    for number in (1, 2):
        state.trials[number].needs = Needs(memory_bytes=4 * GIB)
    state.trials[2].attempts = [Attempt(attempt=1, started_at=100.0, ended_at=101.0, end="lost")]
    monkeypatch.setattr(transitions, "depth", lambda state: 2)
    state.line.hungry.append(0)
    assignment.assign(state, [])
    assert list(state.slots[0].queue) == [0, 3]
    assert list(state.line.pending) == [1, 2]


def test_large_slots_that_do_not_start_hold_nobody_up() -> None:
    """Three in a row fail beside a worker that works: no other is opened, the next trial gets its."""
    sweep = running(2, trials=3, resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=16 * GIB)
    sweep.failed(0, OOM)  # slot 0 takes trial 2
    sweep.began(2)
    sweep.send(ev.TimerFired)
    run(sweep, 2)
    for _ in range(3):
        (large,) = [slot.number for slot in sweep.state.slots.values() if slot.needs.memory_bytes]
        failure = Failure(origin="start", type="StartTimeout", message="slow")
        commands = sweep.send(ev.SlotFailed, slot=large, failure=failure)
    assert commands == []
    sweep.failed(1)
    sweep.send(ev.TimerFired)
    run(sweep, 1)
    assert not any(slot.needs.memory_bytes for slot in sweep.state.slots.values()), "nothing has changed"
    assert sweep.state.clock.timer_at is not None
    sweep.timer(sweep.state.clock.timer_at)
    assert sweep.state.end.status == "completed"
    failure = sweep.state.trials[0].attempts[-1].failure
    assert failure is not None
    assert "no worker with that starts" in failure.message


def test_a_cut_trial_that_comes_back_still_gets_its_memory() -> None:
    spec = {"resources": {"cpu": 1, "memory": 2 * GIB}, "failure": NO_WAIT}
    sweep = running(1, trials=1, stop={"deadline": datetime.fromtimestamp(200, UTC)}, **spec)
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=16 * GIB)
    sweep.failed(0, OOM)
    sweep.timer(200.0)
    assert sweep.trial_state(0) == "cancelled"
    sweep.send(ev.SweepEnded)
    sweep.send(ev.ControllerStarted, generation=2, is_reopening=True)
    plain = make_spec(num_samples=1, **spec).model_dump(mode="json")
    sweep.send(ev.SpecChanged, spec=plain, changes=("stop",))
    commands = sweep.send(ev.CapacityChanged, slots=1, memory_bytes=16 * GIB)
    assert sweep.state.line.hungry_for_memory == 1
    (large,) = [c for c in commands if isinstance(c, cmd.OpenSlot)]
    assert large.needs.memory_bytes == 4 * GIB
    (start,) = sweep.send(ev.SlotOpened, slot=large.slot, node="big")
    assert isinstance(start, cmd.StartTrial)


def test_a_trial_that_is_resumed_out_of_reach_leaves_no_paused_one_unasked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The node that held it has gone since it was paused. Nothing ran any more, and no timer was set."""
    for name, decided in (("report", []), ("end", []), ("idle", [(1, Resume())])):
        monkeypatch.setattr(Whim, name, lambda self, *args, decided=decided: decided)
    failure = {**NO_WAIT, "placement_timeout_s": 5.0}
    fields: dict[str, Any] = {"scheduler": {"tests.policies:Whim": {"left": 0}}, "failure": failure}
    load_scheduler(make_spec(**fields))
    sweep = running(3, trials=3, resources={"cpu": 1, "memory": 2 * GIB}, **fields)
    sweep.send(ev.CapacityChanged, slots=3, memory_bytes=16 * GIB)
    for trial in (0, 2):
        sweep.report(trial, 0.5)
    sweep.failed(1, OOM)
    sweep.send(ev.TimerFired)
    (large,) = [slot.number for slot in sweep.state.slots.values() if slot.needs.memory_bytes]
    sweep.send(ev.SlotOpened, slot=large, node="big")
    sweep.began(1, 2)
    sweep.report(1, 0.5, attempt=2)
    sweep.state.work.undecided.extend([(1, Pause()), (2, Pause())])
    sweep.report(0, 0.4)
    for trial, attempt in ((1, 2), (2, 1)):
        sweep.send(ev.TrialStopped, trial=trial, attempt=attempt)
    sweep.send(ev.SlotLost, slot=large, failure=NODE_DIED)
    sweep.send(ev.CapacityChanged, slots=3, memory_bytes=2 * GIB)
    sweep.returned(0)
    assert [sweep.trial_state(trial) for trial in (0, 1, 2)] == ["completed", "pending", "stopped"]
    assert sweep.state.clock.timer_at == sweep.at + 5.0
    sweep.timer(sweep.state.clock.timer_at)
    assert sweep.trial_state(1) == "failed"
    assert sweep.state.end.status == "completed"


def test_an_idle_slot_makes_way_also_where_no_other_event_will_come() -> None:
    """All others have ended: the larger slot and the idle one do not fit the node together."""
    sweep = out_of_memory()
    for trial in (1, 2):
        if sweep.trial_state(trial) == "queued":
            sweep.began(trial)
    sweep.failed(0, OOM)
    sweep.began(2)
    for trial in (1, 2):
        sweep.report(trial, 0.5)
        sweep.returned(trial)
    assert [slot.needs.memory_bytes for slot in sweep.state.slots.values()] == [None], "for what backs off"
    commands = sweep.send(ev.TimerFired)
    assert [type(each) for each in commands if isinstance(each, cmd.OpenSlot | cmd.CloseSlot)] == [
        cmd.OpenSlot,
        cmd.CloseSlot,
    ]
    assert [slot.needs.memory_bytes for slot in sweep.state.slots.values()] == [4 * GIB]
