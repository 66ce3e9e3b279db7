"""A sweep that shares the cluster keeps to its share, and gives slots back when their trials end."""

from __future__ import annotations

from datetime import UTC, datetime

from raysweep.core.handlers.sharing import needed_slots, wanted_slots
from raysweep.core.state.sweep import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import Sweep, running, start_trial


def share(sweep: Sweep, slots: int | None, **fields: object) -> list[cmd.Command]:
    return sweep.send(ev.ShareChanged, slots=slots, beside=1, **fields)


def end(sweep: Sweep, trial: int) -> list[cmd.Command]:
    sweep.report(trial, 0.5)
    return sweep.returned(trial)


def closed(commands: list[cmd.Command]) -> list[int]:
    return [each.slot for each in commands if isinstance(each, cmd.CloseSlot)]


def test_no_more_slots_are_opened_than_the_share() -> None:
    sweep = Sweep(num_samples=20)
    sweep.start()
    share(sweep, 2)
    sweep.send(ev.CapacityChanged, slots=8)
    assert sweep.suggest(20) == [cmd.OpenSlot(slot=0), cmd.OpenSlot(slot=1)]
    assert share(sweep, 3) == [cmd.OpenSlot(slot=2)]
    assert share(sweep, None) == [cmd.OpenSlot(slot=number) for number in range(3, 8)]


def test_a_slot_beyond_the_share_is_closed_when_its_trial_ends_and_the_first_that_ends_gives_it() -> None:
    sweep = running(4, 10)
    assert share(sweep, 2) == []
    assert closed(end(sweep, 2)) == [2]
    assert closed(end(sweep, 1)) == [1]
    assert start_trial(0, 4) in end(sweep, 0)
    assert len(sweep.state.slots) == 2


def test_a_slot_that_starts_is_given_back_once_it_is_open() -> None:
    sweep = running(2, 10)
    sweep.send(ev.CapacityChanged, slots=4)
    assert share(sweep, 3) == []
    assert closed(sweep.send(ev.SlotOpened, slot=3)) == [3]
    assert start_trial(2, 2) in sweep.send(ev.SlotOpened, slot=2)


def test_slots_that_idle_are_given_back_at_once() -> None:
    adaptive = Sweep(num_samples=10, search="tpe")
    adaptive.start()
    adaptive.send(ev.CapacityChanged, slots=2)
    adaptive.send(ev.SlotOpened, slot=0)
    adaptive.send(ev.SlotOpened, slot=1)
    adaptive.suggest(1, is_exhausted=False)  # the next config is not there yet
    assert closed(share(adaptive, 1)) == [0]


def test_a_share_that_grows_again_keeps_the_slots() -> None:
    sweep = running(3, 10)
    share(sweep, 1)
    share(sweep, 3)
    assert start_trial(1, 3) in end(sweep, 1)
    assert len(sweep.state.slots) == 3


def test_a_share_of_nothing_ends_no_sweep_and_is_no_lack_of_room() -> None:
    sweep = running(1, 3)
    share(sweep, 0)
    assert closed(end(sweep, 0)) == [0]
    assert sweep.state.phase == "running"
    assert sweep.state.room.no_room_since is None
    assert sweep.state.clock.timer_at is None
    assert share(sweep, 1) == [cmd.OpenSlot(slot=1)]


def test_trials_with_a_checkpoint_give_their_slots_back_to_a_nearer_deadline() -> None:
    sweep = running(3, 10)
    sweep.report(0, 0.5)
    sweep.saved(0, 0, 0)
    sweep.report(1, 0.5)
    sweep.saved(1, 0, 0)
    commands = share(sweep, 1, is_hurried=True)
    asked = [each for each in commands if isinstance(each, cmd.StopTrial)]
    assert [(each.trial, each.reason, each.wants_checkpoint) for each in asked] == [
        (1, "preempt", True),
        (0, "preempt", True),
    ]
    assert sweep.trial_state(2) == "running"  # it never stored one
    assert closed(sweep.stopped(1)) == [1]
    assert sweep.trial_state(1) == "pending"
    assert sweep.state.trials[1].attempts[-1].end == "moved"
    assert closed(sweep.stopped(0)) == [0]
    # It continues first, from its checkpoint, on the slot that remains.
    started = [each for each in end(sweep, 2) if isinstance(each, cmd.StartTrial)]
    assert [(each.trial, each.checkpoint) for each in started[:1]] == [(0, "mem://0/0")]


def test_no_more_trials_are_paused_than_slots_are_beyond_the_share() -> None:
    sweep = running(3, 10)
    for trial in range(3):
        sweep.report(trial, 0.5)
        sweep.saved(trial, 0, 0)
    asked = [each for each in share(sweep, 2, is_hurried=True) if isinstance(each, cmd.StopTrial)]
    assert [each.trial for each in asked] == [2]
    assert not [each for each in sweep.report(0, 0.4) if isinstance(each, cmd.StopTrial)]


def test_nothing_is_paused_for_a_weight_or_a_priority() -> None:
    sweep = running(3, 10)
    sweep.report(0, 0.5)
    sweep.saved(0, 0, 0)
    assert share(sweep, 1) == []


def test_the_next_controller_has_no_share_until_it_has_looked() -> None:
    sweep = running(2, 10)
    share(sweep, 1, is_hurried=True)
    sweep.start(generation=2)
    room = sweep.state.room
    assert (room.share, room.beside, room.is_hurried) == (None, 0, False)


def test_the_share_is_in_a_snapshot() -> None:
    sweep = running(2, 10)
    share(sweep, 1, is_hurried=True)
    room = SweepState.from_json(sweep.state.to_json()).room
    assert (room.share, room.beside, room.is_hurried) == (1, 1, True)


def test_a_sweep_wants_slots_for_the_trials_that_are_left() -> None:
    sweep = running(2, 3)
    assert wanted_slots(sweep.state, 8) == 3
    end(sweep, 0)
    assert wanted_slots(sweep.state, 8) == 2
    assert wanted_slots(sweep.state, 1) == 1
    open_ended = Sweep(num_samples=None, stop={"time_budget_s": 1000})
    open_ended.start()
    assert wanted_slots(open_ended.state, 8) == 8
    limited = Sweep(num_samples=100, max_concurrent_trials=3)
    limited.start()
    assert wanted_slots(limited.state, 8) == 3
    sweep.send(ev.CancelRequested)
    assert wanted_slots(sweep.state, 8) == 0


def test_a_share_does_not_lower_what_a_sweep_wants() -> None:
    sweep = Sweep(num_samples=100)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=50)
    share(sweep, 1)
    sweep.suggest(16, is_exhausted=False)
    assert wanted_slots(sweep.state, 50) == 50


def test_what_a_deadline_needs_is_known_from_the_time_of_trials() -> None:
    deadline = datetime.fromtimestamp(200.0, UTC).isoformat()
    sweep = running(1, 12, stop={"deadline": deadline, "grace_s": 10})
    assert needed_slots(sweep.state, 100.0) == 1
    assert needed_slots(sweep.state, 110.0) == 2  # the one that runs has taken 10 s: 12 * 10 * 1.25 / 90
    sweep.at = 140.0
    end(sweep, 0)
    assert needed_slots(sweep.state, 140.0) == 10  # 11 trials of 40 s, in 60 s
    assert needed_slots(sweep.state, 200.0) == 0
    assert needed_slots(running(1, 12).state, 1000.0) == 0


def on_nodes(*nodes: str) -> Sweep:
    """A sweep with a busy slot on each of these nodes."""
    sweep = Sweep(num_samples=50)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=len(nodes))
    sweep.suggest(20)
    for slot, node in enumerate(nodes):
        sweep.send(ev.SlotOpened, slot=slot, node=node)
        sweep.began(slot)
    return sweep


def test_slots_on_a_node_that_is_cleared_are_given_back_and_others_are_kept_in_their_place() -> None:
    sweep = on_nodes("a", "b", "a", "b")
    assert share(sweep, 2, kept=(("b", 0),)) == []
    assert not closed(end(sweep, 0)), "its node stays, although the share is smaller"
    assert closed(end(sweep, 1)) == [1]
    assert closed(end(sweep, 3)) == [3]
    assert len(sweep.state.slots) == 2


def test_as_many_slots_stay_on_the_node_as_are_kept_there() -> None:
    sweep = on_nodes("a", "b", "b", "b")
    share(sweep, 3, kept=(("b", 2),))
    assert closed(end(sweep, 2)) == [2]
    assert not closed(end(sweep, 3))


def test_no_slot_is_opened_before_the_other_sweep_has_its_own() -> None:
    sweep = on_nodes("a", "b")
    share(sweep, 2, kept=(("b", 0),))
    assert closed(end(sweep, 1)) == [1]
    assert not [each for each in end(sweep, 0) if isinstance(each, cmd.OpenSlot)]
    assert share(sweep, 2) == [cmd.OpenSlot(slot=2)]
