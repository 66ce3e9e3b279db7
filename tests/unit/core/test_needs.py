"""`step` where what a trial needs follows from its config (`resources.by_config`)."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.handlers import continuations, large_trials, sizes
from raysweep.core.state.invariants import check
from raysweep.core.state.trial_parts import Turn
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.schedulers import Decisions, Pause, Resume, load_scheduler
from tests.policies import Whim
from tests.unit.core.faults import GIB, NO_WAIT, OOM
from tests.unit.core.sized import BY_N, BY_X, open_all, run_all, run_sized, sweep_of
from tests.unit.core.sweep import Sweep
from tests.unit.core.toys import make_spec

ASHA = {"asha": {"max_t": 9, "grace_period": 1}}


def large_slots(sweep: Sweep) -> list[int | None]:
    return [
        slot.needs.memory_bytes for slot in sweep.state.slots.values() if slot.needs.memory_bytes is not None
    ]


def test_a_config_that_needs_more_gets_a_slot_of_that_size() -> None:
    sweep = sweep_of(1.0, 3.5, 1.0)
    assert sweep.state.trials[0].needs.memory_bytes is None
    assert sweep.state.trials[1].needs.memory_bytes == 3.5 * GIB
    ran = dict(run_all(sweep))
    assert ran[1] == 3.5 * GIB
    assert sweep.state.line.counts["completed"] == 3


def test_a_need_below_the_usual_is_the_usual() -> None:
    sweep = sweep_of(0.1, 1.0)
    assert sweep.state.line.hungry_for_memory == 0
    assert run_all(sweep) == [(0, None), (1, None)]


def test_usual_trials_go_on_beside_one_large_slot_that_serves_the_large_ones() -> None:
    sweep = sweep_of(*[1.0, 4.0] * 10)
    seen = set()
    while sweep.state.phase == "running" and any(
        sweep.state.trials[number].needs.memory_bytes is None for number in sweep.state.line.pending
    ):
        open_all(sweep)
        seen.add(len(large_slots(sweep)))
        head = min(slot.queue[0] for slot in sweep.state.slots.values() if slot.queue)
        sweep.began(head)
        sweep.report(head, 0.5)
        sweep.returned(head)
    assert seen <= {0, 1}
    assert 1 in seen
    run_all(sweep)
    assert sweep.state.line.counts["completed"] == 20


def test_large_trials_run_at_once_when_nothing_else_waits() -> None:
    sweep = sweep_of(4.0, 4.0, 4.0, 4.0, slots=3)
    open_all(sweep)
    assert large_slots(sweep) == [4 * GIB] * 3
    assert sorted(number for number, _ in run_all(sweep)) == [0, 1, 2, 3]


def test_a_further_slot_is_as_large_as_what_waits_for_it() -> None:
    sweep = sweep_of(8.0, 2.0, 2.0)
    open_all(sweep)
    assert sorted(large_slots(sweep)) == [2 * GIB, 8 * GIB]  # type: ignore[type-var]
    assert len(run_all(sweep)) == 3


def test_a_slot_that_does_as_well_is_not_closed_for_one_that_finds_no_room() -> None:
    """The node has room for one large slot only; the second one waits for its place."""
    sweep = sweep_of(4.0, 4.0, 4.0)
    while large_slots(sweep) != [4 * GIB] * 2:
        opening = min(slot.number for slot in sweep.state.slots.values() if not slot.is_open)
        sweep.send(ev.SlotOpened, slot=opening, node="node0")
    (first,) = [slot.number for slot in sweep.state.slots.values() if slot.is_open]
    for trial in (0, 1):
        sweep.began(trial)
        sweep.report(trial, 0.5)
        commands = sweep.returned(trial)
        assert cmd.CloseSlot(slot=first) not in commands
        assert [each.trial for each in commands if isinstance(each, cmd.StartTrial)] == [trial + 1]


def test_no_slot_is_opened_beside_idle_ones_that_do() -> None:
    sweep = sweep_of(4.0, 4.0)
    open_all(sweep)
    sweep.began(0)
    sweep.began(1)
    sweep.send(ev.CapacityChanged, slots=3, memory_bytes=16 * GIB)
    sweep.failed(0)
    sweep.failed(1)
    commands = sweep.send(ev.TimerFired)
    assert [type(each) for each in commands].count(cmd.StartTrial) == 2
    assert not any(isinstance(each, cmd.OpenSlot) for each in commands)


def test_another_config_may_raise_what_a_trial_needs_and_never_lowers_it() -> None:
    sweep = sweep_of(1.0)
    for need, memory_bytes in ((3.0, 3 * GIB), (2.0, 3 * GIB), (5.0, 5 * GIB)):
        trial = sweep.state.trials[0]
        continuations.follow(sweep.state, trial, Turn(reason="exploit", config={"x": need}), [])
        assert trial.needs.memory_bytes == memory_bytes
        assert sweep.state.line.hungry_for_memory == 1
        check(sweep.state)


def test_a_need_that_no_node_has_fails_that_trial_and_no_other() -> None:
    sweep = sweep_of(1.0, 64.0, 1.0, failure={**NO_WAIT, "placement_timeout_s": 5.0})
    run_all(sweep)
    assert sweep.state.line.counts["completed"] == 2
    assert sweep.trial_state(1) == "pending"
    sweep.timer(sweep.at + 5.0)
    assert sweep.trial_state(1) == "failed"
    failure = sweep.state.trials[1].attempts[-1].failure
    assert failure is not None
    assert "is large by its config (resources.by_config): it needs 64 GiB" in failure.message
    assert "the largest node offers 16 GiB" in failure.message


def test_a_need_that_cannot_be_told_fails_that_trial_and_no_other() -> None:
    resources = {"cpu": 1, "memory": GIB, "by_config": {"memory": f"{GIB} / x"}}
    sweep = sweep_of(0.0, 1.0, resources=resources)
    assert sweep.trial_state(0) == "failed"
    failure = sweep.state.trials[0].attempts[-1].failure
    assert failure is not None
    assert "resources.by_config.memory" in failure.message
    assert run_all(sweep) == [(1, None)]


def test_a_retry_out_of_memory_builds_on_what_the_config_needed() -> None:
    sweep = sweep_of(1.0, 3.0)
    open_all(sweep)
    sweep.began(1)
    sweep.failed(1, OOM)
    assert sweep.state.trials[1].needs.memory_bytes == 6 * GIB


def test_the_needs_are_the_same_after_a_restart() -> None:
    sweep = sweep_of(1.0, 4.0, 2.0)
    open_all(sweep)
    sweep.start(generation=2)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=16 * GIB)
    assert [trial.needs.memory_bytes for trial in sweep.state.trials.values()] == [None, 4 * GIB, 2 * GIB]
    assert sorted({number for number, _ in run_all(sweep)}) == [0, 1, 2]


def waiting_for_memory(monkeypatch: pytest.MonkeyPatch, *needs: float, **verdicts: Decisions) -> Sweep:
    """Trial 0 is done, the others wait or are paused; the scheduler decides so when it is called so."""
    for name, decided in verdicts.items():
        monkeypatch.setattr(Whim, name, lambda self, *args, decided=decided: decided)
    scheduler = {"tests.policies:Whim": {"left": 0}}
    load_scheduler(make_spec(scheduler=scheduler))
    failure = {**NO_WAIT, "placement_timeout_s": 5.0}
    sweep = sweep_of(1.0, *needs, failure=failure, scheduler=scheduler)
    open_all(sweep)
    for number in (0, 1):
        if sweep.trial_state(number) == "queued":
            sweep.began(number)
    sweep.report(0, 0.5)
    return sweep


def test_paused_trials_do_not_hide_that_the_line_waits_for_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first of two paused trials is resumed with a config that no node can hold."""
    sweep = waiting_for_memory(monkeypatch, 1.0, 64.0, idle=[(1, Resume({"x": 32.0}))])
    sweep.state.work.undecided.extend([(1, Pause()), (2, Pause())])
    sweep.report(1, 0.4)
    sweep.send(ev.TrialStopped, trial=1, attempt=1)
    sweep.returned(0)
    assert [sweep.trial_state(number) for number in (1, 2)] == ["pending", "stopped"]
    assert sweep.state.clock.timer_at == large_trials.due_at(sweep.state) == sweep.at + 5.0


def test_what_comes_to_wait_for_memory_when_a_wait_is_over_waits_as_long() -> None:
    """The sweep would be complete, but for a trial that is to go further, on a node that has gone."""
    sweep = sweep_of(8.0, 64.0, failure={**NO_WAIT, "placement_timeout_s": 5.0})
    sweep.state.end.extend_to, sweep.state.end.extend_trials = 9.0, [0]
    open_all(sweep)
    sweep.began(0)
    sweep.report(0, 0.5)
    sweep.saved(0, 1, 1)
    sweep.returned(0)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=GIB)
    due_at = sweep.state.clock.timer_at
    assert due_at is not None
    sweep.timer(due_at)
    assert [sweep.trial_state(number) for number in (0, 1)] == ["pending", "failed"]
    assert sweep.state.clock.timer_at == due_at + 5.0


def sized(*needs: float, **fields: Any) -> Sweep:
    return sweep_of(*needs, resources=BY_N, **fields)


@pytest.mark.parametrize("slots", [1, 2, 5])
def test_each_trial_runs_in_a_slot_of_its_own_size(slots: int) -> None:
    needs = [1.0, 2.0, 1.0, 3.5, 2.0, 1.0, 3.5]
    expected = ["" if need == 1.0 else f"cpu={need:g}" for need in needs]
    sweep = sized(*needs, slots=slots)
    assert sorted(run_sized(sweep)) == list(enumerate(expected))
    assert sweep.state.end.status == "completed"


def test_one_at_a_time_they_keep_their_order() -> None:
    sweep = sized(1.0, 2.0, 1.0, 3.0, 2.0, 1.0, max_concurrent_trials=1, slots=4, scheduler=ASHA)
    assert [number for number, _ in run_sized(sweep)] == list(range(6))


def test_a_slot_of_a_size_that_nobody_waits_for_makes_room_for_those_that_wait() -> None:
    """Trial 1 backs off: what has its size would be kept for it, and usual ones could not have it."""
    sweep = sized(2.0, 1.0, 1.0, max_concurrent_trials=1, failure={"backoff_initial_s": 60.0})
    open_all(sweep)
    sweep.began(0)
    sweep.failed(0)
    assert sweep.trial_state(0) == "waiting"
    assert run_sized(sweep) == [], "the order is kept until something has succeeded"
    sweep.timer(sweep.at + 60.0)
    assert run_sized(sweep) == [(0, "cpu=2"), (1, ""), (2, "")]


def test_usual_trials_take_the_place_of_a_large_slot_whose_trial_is_out_of_reach() -> None:
    sweep = sized(2.0, 3.0, 1.0, 1.0, slots=1)
    open_all(sweep)
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=0, beyond=("cpu=3",))
    assert [number for number, _ in run_sized(sweep)] == [0, 2, 3]
    assert sweep.trial_state(1) == "pending"
    sweep.send(ev.CapacityChanged, slots=1, memory_bytes=0)
    assert run_sized(sweep) == [(1, "cpu=3")]
    assert sweep.state.end.status == "completed"


def test_a_slot_that_no_node_can_hold_any_more_is_closed_and_its_trial_waits() -> None:
    sweep = sized(3.0, 1.0, slots=2, failure={**NO_WAIT, "placement_timeout_s": 5.0})
    (large,) = [slot.number for slot in sweep.state.slots.values() if slot.needs.size]
    commands = sweep.send(ev.CapacityChanged, slots=2, memory_bytes=0, beyond=("cpu=3",))
    assert cmd.CloseSlot(slot=large) in commands
    run_sized(sweep)
    sweep.timer(sweep.at + 5.0)
    assert [sweep.trial_state(number) for number in (0, 1)] == ["failed", "completed"]
    failure = sweep.state.trials[0].attempts[-1].failure
    assert failure is not None
    assert "(resources.by_config): it needs cpu=3, for which no node has room" in failure.message


def seated(*needs: float, **fields: Any) -> Sweep:
    resources = {"cpu": 1, "custom": {"seat": 1}, "by_config": {"custom": {"seat": "x"}}}
    return sweep_of(*needs, resources=resources, **fields)


def test_a_custom_amount_makes_a_size_of_its_own() -> None:
    sweep = seated(1.0, 2.0, 0.5, 3.0, slots=2)
    assert sizes.needed_sizes(sweep.state) == ["custom.seat=2", "custom.seat=3"]
    expected = ["", "custom.seat=2", "", "custom.seat=3"]
    assert sorted(run_sized(sweep)) == list(enumerate(expected))
    assert sweep.state.end.status == "completed"


def test_a_custom_amount_that_no_node_has_fails_that_trial_by_its_field() -> None:
    sweep = seated(3.0, 1.0, failure={**NO_WAIT, "placement_timeout_s": 5.0})
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=0, beyond=("custom.seat=3",))
    run_sized(sweep)
    sweep.timer(sweep.at + 5.0)
    assert [sweep.trial_state(number) for number in (0, 1)] == ["failed", "completed"]
    failure = sweep.state.trials[0].attempts[-1].failure
    assert failure is not None
    assert "(resources.by_config): it needs custom.seat=3, for which no node has room" in failure.message


def test_another_config_makes_a_trial_of_another_size() -> None:
    sweep = sized(1.0)
    for need, size, count in ((3.0, "cpu=3", 1), (2.0, "cpu=2", 1), (1.0, "", 0)):
        continuations.follow(
            sweep.state, sweep.state.trials[0], Turn(reason="exploit", config={"x": need}), []
        )
        assert sweep.state.trials[0].needs.size == size
        assert sweep.state.line.hungry_for_memory == count
        check(sweep.state)


def test_a_sized_trial_that_runs_out_of_memory_keeps_its_size() -> None:
    resources = {"cpu": 1, "memory": GIB, "by_config": {"cpu": "x"}}
    sweep = sweep_of(2.0, resources=resources)
    open_all(sweep)
    sweep.began(0)
    sweep.failed(0, OOM)
    sweep.send(ev.TimerFired)
    (slot,) = [slot for slot in sweep.state.slots.values() if not slot.is_open]
    assert (slot.needs.size, slot.needs.memory_bytes) == ("cpu=2", 2 * GIB)
    assert run_sized(sweep) == [(0, "cpu=2")]


def test_sizes_are_told_once_each_and_of_active_trials_alone() -> None:
    sweep = sized(2.0, 3.0, 2.0, 1.0, slots=1)
    assert sizes.needed_sizes(sweep.state) == ["cpu=2", "cpu=3"]
    run_sized(sweep)
    assert sizes.needed_sizes(sweep.state) == []


def test_each_size_has_a_slot_while_usual_trials_wait() -> None:
    sweep = sized(2.0, 2.0, 3.0, *[1.0] * 20, slots=4)
    open_all(sweep)
    assert sorted({slot.needs.size for slot in sweep.state.slots.values()}) == ["", "cpu=2", "cpu=3"]
    assert [slot.needs.size for slot in sweep.state.slots.values()].count("cpu=2") == 1
    assert len(run_sized(sweep)) == 23


def test_a_slot_that_opens_is_not_kept_waiting_by_one_of_another_size() -> None:
    """Both of size 2 would continue one after the other on the room that the one of size 3 waits for."""
    sweep = sized(2.0, 2.0, 3.0, slots=3)
    while not (opening := [s.number for s in sweep.state.slots.values() if s.needs.size == "cpu=3"]):
        slot = min(slot.number for slot in sweep.state.slots.values() if not slot.is_open)
        sweep.send(ev.SlotOpened, slot=slot, node="node0")
    (first,) = [slot.number for slot in sweep.state.slots.values() if slot.queue]
    assert not sweep.state.slots[opening[0]].is_open
    sweep.began(0)
    sweep.report(0, 0.5)
    assert cmd.CloseSlot(slot=first) in sweep.returned(0)
    assert sorted(run_sized(sweep)) == [(1, "cpu=2"), (2, "cpu=3")]


def test_a_usual_slot_behind_an_idle_one_of_another_size_gets_its_trial() -> None:
    """Trial 2 backs off, and what is of its size is kept for it while there is room for all."""
    sweep = Sweep(num_samples=5, resources=BY_N, failure={"backoff_initial_s": 60.0})
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=4, memory_bytes=0)
    configs = tuple({"x": need} for need in (1.0, 2.0, 2.0))
    sweep.send(ev.ConfigsSuggested, first=0, configs=configs, is_exhausted=False)
    for number in (0, 1, 2):
        open_all(sweep)
        sweep.began(number)
        if number < 2:
            sweep.report(number, 0.5)
            sweep.returned(number)
    sweep.failed(2)
    idle = [sweep.state.slots[number].needs.size for number in sweep.state.line.hungry]
    assert idle[:1] == ["cpu=2"], idle
    assert "" in idle
    more = ({"x": 3.0}, {"x": 1.0})
    commands = sweep.send(ev.ConfigsSuggested, first=3, configs=more, is_exhausted=True)
    assert [each.trial for each in commands if isinstance(each, cmd.StartTrial)] == [4]


# -- gangs: what each of their workers takes ---------------------------------------------------------------

EACH = {"num_workers": 2, "resources": {"cpu": 1, "memory": GIB}}


def gangs(*needs: float, by_config: dict[str, Any], **fields: Any) -> Sweep:
    return sweep_of(*needs, resources={"cpu": 1}, scaling={**EACH, "by_config": by_config}, **fields)


def message_of(sweep: Sweep, trial: int) -> str:
    failure = sweep.state.trials[trial].attempts[-1].failure
    assert failure is not None
    return failure.message


def test_a_gang_is_of_the_size_of_its_workers_and_of_their_number() -> None:
    asked = {"num_workers": "x", "resources": {"cpu": "x - 1", "custom": {"seat": "x // 4"}}}
    sweep = gangs(2.0, 3.0, 4.0, 3.0, by_config=asked)
    expected = ["", "cpu=2 num_workers=3", "cpu=3 custom.seat=1 num_workers=4", "cpu=2 num_workers=3"]
    assert sizes.needed_sizes(sweep.state) == sorted({size for size in expected if size})
    assert sorted(run_sized(sweep)) == list(enumerate(expected))
    assert sweep.state.end.status == "completed"


def test_the_memory_of_a_worker_is_no_size_and_grows_when_it_was_not_enough() -> None:
    sweep = gangs(1.0, 3.0, by_config={"resources": {"memory": f"{GIB} * x"}})
    assert [trial.needs.memory_bytes for trial in sweep.state.trials.values()] == [None, 3 * GIB]
    assert [trial.needs.size for trial in sweep.state.trials.values()] == ["", ""]
    open_all(sweep)
    sweep.began(1)
    sweep.failed(1, OOM)
    assert sweep.state.trials[1].needs.memory_bytes == 6 * GIB
    sweep.send(ev.TimerFired)
    assert dict(run_all(sweep))[1] == 6 * GIB


def test_the_usual_memory_of_a_worker_is_no_more_than_the_usual() -> None:
    sweep = gangs(1.0, 0.5, by_config={"resources": {"memory": f"{GIB} * x"}})
    assert sweep.state.line.hungry_for_memory == 0
    assert run_all(sweep) == [(0, None), (1, None)]


def test_a_gang_that_the_nodes_cannot_hold_fails_by_its_field_and_no_other() -> None:
    asked = {"num_workers": "x", "resources": {"cpu": "x"}}
    failure = {**NO_WAIT, "placement_timeout_s": 5.0}
    sweep = gangs(3.0, 2.0, by_config=asked, failure=failure)
    (size,) = (size for size in sizes.needed_sizes(sweep.state) if "3" in size)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=0, beyond=(size,))
    run_sized(sweep)
    sweep.timer(sweep.at + 5.0)
    assert [sweep.trial_state(number) for number in (0, 1)] == ["failed", "completed"]
    said = (
        "is large by its config (scaling.by_config): it needs 3 workers of {CPU: 3, memory: 1 GiB}, for which"
    )
    assert said in message_of(sweep, 0)


def test_memory_that_the_largest_node_has_may_be_too_much_for_all_workers_of_a_gang() -> None:
    """Each fits a node of 16 GiB, and the two of them do not: only the size with its memory tells."""
    asked = {"resources": {"cpu": "x // 6", "memory": f"{GIB} * x"}}
    sweep = gangs(1.0, 12.0, 5.0, by_config=asked, failure={**NO_WAIT, "placement_timeout_s": 5.0})
    found = sizes.needed_sizes(sweep.state)
    assert found == [f"cpu=2 memory={12 * GIB}", f"memory={5 * GIB}"]
    assert not large_trials.is_out_of_reach(sweep.state, sweep.state.trials[1])
    (large,) = [slot.number for slot in sweep.state.slots.values() if slot.needs.size]
    commands = sweep.send(ev.CapacityChanged, slots=2, memory_bytes=16 * GIB, beyond=(found[0],))
    assert large_trials.is_out_of_reach(sweep.state, sweep.state.trials[1])
    assert cmd.CloseSlot(slot=large) in commands
    assert dict(run_all(sweep)) == {0: None, 2: 5 * GIB}
    sweep.timer(sweep.at + 5.0)
    assert sweep.trial_state(1) == "failed"
    said = "(scaling.by_config): it needs 2 workers of {CPU: 2, memory: 12 GiB}, for which no node has room"
    assert said in message_of(sweep, 1)


def test_a_gang_that_ran_out_of_memory_is_out_of_reach_where_not_all_of_it_has_room() -> None:
    sweep = sweep_of(1.0, 1.0, resources={"cpu": 1}, scaling=EACH)
    open_all(sweep)
    sweep.began(0)
    sweep.failed(0, OOM)
    assert sizes.needed_sizes(sweep.state) == [f"memory={2 * GIB}"]
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=3 * GIB, beyond=(f"memory={2 * GIB}",))
    sweep.send(ev.TimerFired)
    assert dict(run_all(sweep)) == {1: None}
    sweep.timer(sweep.at + sweep.state.rules.slots.placement_timeout_s)
    assert "trial 0 ran out of memory: it needs 2 workers of {CPU: 1, memory: 2 GiB}, for" in message_of(
        sweep, 0
    )


def test_one_process_is_of_its_size_alone_as_its_memory_is_that_of_one_node() -> None:
    sweep = sweep_of(2.0, resources={**BY_X, "by_config": {"cpu": "x", "memory": f"{GIB} * x"}})
    assert sizes.needed_sizes(sweep.state) == ["cpu=2"]
