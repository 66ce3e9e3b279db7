"""`step` never goes in circles: what is recalled finds a place, what is declined is not tried at once."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

from raysweep.core.handlers.assignment import CHECKPOINTS_AN_ATTEMPT, _prefer_other_node
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.space.amounts import Needs
from tests.unit.core.faults import GIB, NO_WAIT, OOM
from tests.unit.core.sweep import Sweep, running, start_trial
from tests.unit.core.toys import NODE_DIED

# -- recall and assign --------------------------------------------------------------------------------


def answer_recalls(sweep: Sweep, commands: list[cmd.Command], limit: int = 20) -> int:
    """Give back all that is recalled, as long as anything is; how often that was."""
    for times in range(limit):
        recalls = [command for command in commands if isinstance(command, cmd.RecallTrials)]
        if not recalls:
            return times
        commands = sweep.send(ev.TrialsRecalled, slot=recalls[0].slot, trials=recalls[0].trials)
    return limit


def short_trials() -> Sweep:
    """Trials so short that slots hold three at once: slot 0 runs trial 2, slot 1 runs 3, both take more."""
    sweep = running(2, trials=4, failure={"bad_node_failures": 0, "breaker_trials": 0, **NO_WAIT})
    sweep.at += 0.025
    for number in (0, 1):
        sweep.report(number, 0.5)
        sweep.returned(number)
    sweep.began(2)
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(3,)) == [start_trial(1, 3, attempt=2)]
    sweep.began(3, attempt=2)
    assert sorted(sweep.state.line.hungry) == [0, 1]
    return sweep


@pytest.mark.parametrize("trial", [2, 3])
def test_a_retry_is_not_queued_behind_another_while_its_own_slot_idles(trial: int) -> None:
    """It was recalled for that slot at once, and queued behind the other again: 8,766 attempts in 20 s."""
    sweep = short_trials()
    attempt, slot = sweep.state.trials[trial].attempt, sweep.state.trials[trial].slot
    assert slot is not None
    sweep.failed(trial, attempt=attempt)
    commands = sweep.send(ev.TimerFired)
    assert answer_recalls(sweep, commands) == 0
    assert commands[0] == start_trial(slot, trial, attempt=attempt + 1)


def test_a_retry_still_prefers_another_node_that_idles() -> None:
    sweep = short_trials()
    sweep.failed(2)
    sweep.failed(3, attempt=2)
    assert [start.trial for start in sweep.send(ev.TimerFired) if isinstance(start, cmd.StartTrial)] == [2, 3]
    assert (sweep.state.trials[2].slot, sweep.state.trials[3].slot) == (1, 0)


def test_a_retry_does_not_prefer_another_node_whose_slot_is_too_small() -> None:
    sweep = short_trials()
    sweep.failed(2)
    trial, slot, other = sweep.state.trials[2], sweep.state.slots[0], sweep.state.slots[1]
    slot.node, other.node = "big", "small"
    other.queue.clear()
    trial.attempts = (replace(trial.attempts[-1], node="big"),)
    sweep.state.line.hungry.append(other.number)
    slot.needs = trial.needs = Needs(memory_bytes=4 * GIB)
    assert _prefer_other_node(sweep.state, trial, slot) is slot
    other.needs = Needs(memory_bytes=4 * GIB)
    assert _prefer_other_node(sweep.state, trial, slot) is other


def test_what_a_small_slot_cannot_take_is_not_recalled_for_it() -> None:
    """Two large trials at the only large slot, one behind the other, while a small slot idles."""
    sweep = running(3, trials=3, resources={"cpu": 1, "memory": 2 * GIB}, failure=NO_WAIT)
    sweep.send(ev.CapacityChanged, slots=3, memory_bytes=16 * GIB)
    sweep.failed(0, OOM)
    sweep.failed(1, OOM)
    sweep.at += 0.025
    sweep.report(2, 0.5)
    sweep.send(ev.TimerFired)
    (large,) = [slot.number for slot in sweep.state.slots.values() if slot.needs.memory_bytes]
    commands = sweep.returned(2)
    commands += sweep.send(ev.SlotOpened, slot=large, node="big")
    assert answer_recalls(sweep, commands) == 0
    begun = [trial for trial in sweep.state.trials.values() if trial.state == "queued"]
    assert [trial.attempt for trial in begun] == [2] * len(begun)


def test_an_idle_slot_comes_before_one_that_runs_a_trial() -> None:
    """It was in the line already when it still ran one: it moves to the front."""
    sweep = short_trials()
    last = sweep.state.slots[sweep.state.line.hungry[-1]]
    trial = sweep.state.trials[last.queue[0]]
    sweep.failed(trial.number, attempt=trial.attempt)
    assert sweep.state.line.hungry[0] == last.number


# -- timers -------------------------------------------------------------------------------------------


def test_no_timer_runs_for_a_place_while_trials_run() -> None:
    """47,000 events a second: the wait for a place was over, but trials still ran."""
    sweep = running(1, trials=1, failure={"placement_timeout_s": 100.0})
    assert sweep.send(ev.CapacityChanged, slots=0, problem="full") == []
    sweep.timer(sweep.at + 100)
    assert sweep.state.clock.timer_at is None
    # When they have ended, the time has come.
    assert sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED) == [cmd.SetTimer(at=200.0)]
    assert [type(command) for command in sweep.timer(200.0)] == [cmd.LeaveSweep]


def with_deadline() -> Sweep:
    sweep = running(1, trials=2, stop={"deadline": datetime.fromtimestamp(200, UTC)})
    sweep.send(ev.InterruptRequested)
    return sweep


def with_time_limit() -> Sweep:
    sweep = running(1, trials=2, stop={"trial_time_s": 5.0})
    sweep.send(ev.NodeDraining, node="node0", deadline=sweep.at + 3600)
    return sweep


def with_a_stalled_journal() -> Sweep:
    sweep = running(1, trials=2, failure={"report_timeout_s": 5.0})
    sweep.send(ev.StorageStalled)
    return sweep


def with_a_trial_that_stores() -> Sweep:
    sweep = running(1, trials=2, failure={"report_timeout_s": 5.0})
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    return sweep


def with_a_budget_that_is_used_up() -> Sweep:
    sweep = running(1, trials=2, stop={"budget": {"cpu_hours": 0.01}})
    sweep.send(ev.InterruptRequested)
    return sweep


def at_an_odd_moment(**fields: Any) -> Sweep:
    """At 1000.1, from where 0.3 s later is not 0.3 s later, to the last bit."""
    sweep = Sweep(num_samples=2, **fields)
    sweep.at = 1000.1
    sweep.start()
    sweep.suggest(2)
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.send(ev.SlotOpened, slot=0)
    sweep.began(0)
    return sweep


def with_an_odd_time_limit() -> Sweep:
    return at_an_odd_moment(stop={"trial_time_s": 0.3})


def with_an_odd_report_timeout() -> Sweep:
    return at_an_odd_moment(failure={"report_timeout_s": 0.3})


def with_an_odd_placement_timeout() -> Sweep:
    sweep = at_an_odd_moment(failure={"placement_timeout_s": 0.3})
    sweep.send(ev.CapacityChanged, slots=0)
    sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    return sweep


@pytest.mark.parametrize(
    "make",
    [
        with_deadline,
        with_time_limit,
        with_a_stalled_journal,
        with_a_trial_that_stores,
        with_a_budget_that_is_used_up,
        with_an_odd_time_limit,
        with_an_odd_report_timeout,
        with_an_odd_placement_timeout,
    ],
)
def test_no_timer_is_set_to_a_moment_that_has_just_come(make: Callable[[], Sweep]) -> None:
    """What is not done at its time must not ask for the same time again."""
    sweep = make()
    for _ in range(5):
        due = sweep.state.clock.timer_at
        if due is None:
            return
        sweep.timer(max(sweep.at, due))
        assert sweep.state.clock.timer_at is None or sweep.state.clock.timer_at > sweep.at


# -- checkpoints' numbers -----------------------------------------------------------------------------


def numbers_of_two_attempts(seen: int) -> int:
    """The first number of the second attempt, after one of which the checkpoint numbered `seen` is known."""
    sweep = Sweep(num_samples=1, failure=NO_WAIT)
    sweep.start()
    sweep.suggest(1)
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.send(ev.SlotOpened, slot=0)
    sweep.began(0)
    sweep.report(0, 0.5)
    sweep.saved(0, seen, report=0)
    sweep.failed(0)
    (start,) = sweep.send(ev.TimerFired)
    assert isinstance(start, cmd.StartTrial)
    return start.next_checkpoint


def test_what_an_attempt_stored_unseen_is_never_in_the_way_of_the_next() -> None:
    """It stored 1,500 checkpoints, and 990 of them are known: the others' numbers are used as well."""
    assert numbers_of_two_attempts(989) >= CHECKPOINTS_AN_ATTEMPT >= 1_000_000_000
    assert numbers_of_two_attempts(1_499) == CHECKPOINTS_AN_ATTEMPT


def test_an_attempt_begins_behind_all_that_is_known() -> None:
    assert numbers_of_two_attempts(3 * CHECKPOINTS_AN_ATTEMPT) == 4 * CHECKPOINTS_AN_ATTEMPT
