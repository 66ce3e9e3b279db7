"""`step` when memory is short: more of it for the trial, as far as nodes have it."""

from __future__ import annotations

from raysweep.core import commands as cmd
from raysweep.core import events as ev
from raysweep.core.failures import Failure
from tests.unit.core.faults import GIB, NO_WAIT, OOM, kinds, out_of_memory
from tests.unit.core.sweep import Sweep, running, start_trial, tell


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
