"""`step`: for the main ways of a sweep, the whole list of commands after each event."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import pytest

from raysweep.core import commands as cmd
from raysweep.core import events as ev
from raysweep.core import make_outcome
from raysweep.core.failures import Failure, backoff_s
from tests.unit.core.sweep import ASHA, Commands, Sweep, running, start_trial, stop_trial, tell
from tests.unit.core.world import DIED, METRIC, NODE_DIED, RAISED, make_spec

# -- the straight way -------------------------------------------------------------------------------


def test_fifo_from_start_to_end() -> None:
    """Configs are asked for at once, slots opened for as many trials as there are."""
    sweep = Sweep(num_samples=2)
    assert sweep.start() == [cmd.SuggestConfigs(first=0, count=16)]
    assert sweep.send(ev.CapacityChanged, slots=8) == []
    assert sweep.suggest(2) == [cmd.OpenSlot(slot=0), cmd.OpenSlot(slot=1)]
    assert sweep.send(ev.SlotOpened, slot=1, node="b") == [start_trial(1, 0)]
    assert sweep.send(ev.SlotOpened, slot=0, node="a") == [start_trial(0, 1)]
    assert sweep.began(0) == []
    assert sweep.began(1) == []
    assert sweep.report(0, 0.5) == []
    assert sweep.report(1, 0.25, 0.75) == []
    assert sweep.returned(0) == [tell(0, 0.5, "completed"), cmd.CloseSlot(slot=1)]
    assert sweep.returned(1) == [
        tell(1, 0.75, "completed"),
        cmd.EndSweep(status="completed", why="every trial has ended"),
    ]
    assert sweep.send(ev.SweepEnded) == []
    outcome = make_outcome(sweep.state, sweep_id="s", key="k", uri="u", version="0")
    assert outcome.best is not None
    assert (outcome.best.number, outcome.best.score) == (0, 0.5)
    assert outcome.counts == {"completed": 2}
    assert [trial.attempts[0].node for trial in outcome.trials] == ["b", "a"]


def test_score_best_ranks_by_the_best_report() -> None:
    sweep = running(2, score="best")
    sweep.report(0, 0.5)
    sweep.report(1, 0.25, 0.75)
    assert sweep.returned(1)[0] == tell(1, 0.25, "completed")
    sweep.returned(0)
    assert sweep.state.best_ended == 1


def test_equal_scores_rank_by_number() -> None:
    """Whichever ends first."""
    sweep = running(2)
    sweep.report(1, 0.5)
    sweep.returned(1)
    sweep.report(0, 0.5)
    sweep.returned(0)
    assert sweep.state.best_ended == 0


def test_no_configs_at_all() -> None:
    """A searcher that has nothing ends the sweep at once, and is not asked for ever."""
    sweep = Sweep()
    sweep.start()
    end = cmd.EndSweep(status="completed", why="every trial has ended")
    assert sweep.suggest(0, is_exhausted=False) == [end]


def test_an_adaptive_searcher_is_asked_for_idle_slots_only() -> None:
    sweep = Sweep(num_samples=5, search="tpe")
    assert sweep.start() == [cmd.SuggestConfigs(first=0, count=1)]
    assert sweep.suggest(1, is_exhausted=False) == []
    assert sweep.send(ev.CapacityChanged, slots=2) == [cmd.OpenSlot(slot=0), cmd.OpenSlot(slot=1)]
    assert sweep.send(ev.SlotOpened, slot=0) == [start_trial(0, 0)]
    assert sweep.send(ev.SlotOpened, slot=1) == [cmd.SuggestConfigs(first=1, count=1)]
    assert sweep.suggest(1, is_exhausted=False) == [start_trial(1, 1)]
    sweep.began(0)
    sweep.report(0, 0.5)
    assert sweep.returned(0) == [tell(0, 0.5, "completed"), cmd.SuggestConfigs(first=2, count=1)]


def test_short_trials_are_queued_ahead() -> None:
    """Trials of 25 ms: as many as fill 50 ms lie ready behind the running one."""
    sweep = running(1, trials=5)
    sweep.at += 0.025
    sweep.report(0, 0.5)
    assert sweep.returned(0) == [tell(0, 0.5, "completed"), *(start_trial(0, n) for n in (1, 2, 3))]
    sweep.began(1)
    sweep.at += 0.025
    sweep.report(1, 0.5)
    assert sweep.returned(1) == [tell(1, 0.5, "completed"), start_trial(0, 4)]


def test_max_concurrent_trials_bounds_the_slots() -> None:
    sweep = Sweep(num_samples=9, max_concurrent_trials=2)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=8)
    assert sweep.suggest(9) == [cmd.OpenSlot(slot=0), cmd.OpenSlot(slot=1)]
    assert sweep.send(ev.CapacityChanged, slots=16) == []


def test_a_waiting_trial_is_answered_after_the_decision() -> None:
    sweep = running(1, trials=1, scheduler={"asha": {"max_t": 2, "grace_period": 1, "reduction_factor": 2}})
    answer = cmd.AnswerReport(slot=0, trial=0, attempt=1, report=0)
    assert sweep.report(0, 0.5, is_waiting=True) == [answer]
    # A checkpoint of that report is on record: asked for again without a row.
    assert sweep.report(0, is_waiting=True) == [answer]
    assert sweep.report(0, 0.4, is_waiting=True) == [
        stop_trial(0, 0, "limit"),
        cmd.AnswerReport(slot=0, trial=0, attempt=1, report=1),
    ]


# -- early ends of trials ---------------------------------------------------------------------------


def asha_with_a_loser() -> Sweep:
    sweep = running(2, scheduler=ASHA)
    assert sweep.report(0, 0.1) == []
    return sweep


def test_asha_stops_in_the_middle_of_a_batch() -> None:
    """What the batch holds past the decision is overrun: counted, and used for nothing."""
    sweep = asha_with_a_loser()
    assert sweep.report(1, 0.9, 0.05, 0.04) == [stop_trial(1, 1, "scheduler")]
    assert sweep.report(1, 0.01) == []
    trial = sweep.state.trials[1]
    assert (trial.reports, trial.overrun, trial.iteration, trial.last_score) == (4, 3, 1, 0.9)
    assert sweep.stopped(1) == [tell(1, 0.9, "stopped"), cmd.CloseSlot(slot=1)]
    assert trial.attempts[-1].end == "halted"


def test_a_stopped_trial_that_returns_at_that_moment_is_stopped() -> None:
    sweep = asha_with_a_loser()
    sweep.report(1, 0.9)
    assert sweep.returned(1) == [tell(1, 0.9, "stopped"), cmd.CloseSlot(slot=1)]
    assert sweep.stopped(1) == []


@pytest.mark.parametrize("how", ["fails", "dies"])
def test_a_trial_that_was_asked_to_stop_is_not_retried(how: str) -> None:
    sweep = asha_with_a_loser()
    sweep.report(1, 0.9)
    if how == "fails":
        commands = sweep.failed(1)
    else:
        commands = sweep.send(ev.SlotLost, slot=1, failure=DIED)
    assert commands[0] == tell(1, 0.9, "stopped")
    assert sweep.trial_state(1) == "stopped"


def test_max_t_completes_a_trial() -> None:
    sweep = running(1, trials=1, scheduler=ASHA)
    assert sweep.report(0, 0.4, 0.3, 0.2, 0.1) == [stop_trial(0, 0, "limit")]
    assert sweep.stopped(0)[0] == tell(0, 0.1, "completed")


def test_a_trial_ends_at_its_own_limit() -> None:
    sweep = running(1, trials=1, stop={"trial": {"training_iteration": 2}})
    assert sweep.report(0, 0.4) == []
    assert sweep.report(0, 0.3) == [stop_trial(0, 0, "limit")]


def test_trial_time() -> None:
    """The clock runs from the attempt's start; the timer follows the attempt that is due first."""
    sweep = Sweep(num_samples=2, stop={"trial_time_s": 30.0}, max_concurrent_trials=1)
    sweep.start()
    sweep.suggest(2)
    sweep.send(ev.CapacityChanged, slots=1)
    assert sweep.send(ev.SlotOpened, slot=0) == [start_trial(0, 0)]
    assert sweep.began(0) == [cmd.SetTimer(at=130.0)]
    sweep.report(0, 0.5)
    assert sweep.timer(129.0) == [cmd.SetTimer(at=130.0)]
    assert sweep.timer(130.5) == [stop_trial(0, 0, "limit")]
    assert sweep.stopped(0) == [tell(0, 0.5, "completed"), start_trial(0, 1)]
    assert sweep.began(1) == [cmd.SetTimer(at=160.5)]
    sweep.timer(161.0)
    # Without a single report there is nothing to complete with.
    assert sweep.stopped(1)[0] == tell(1, None, "failed")
    assert sweep.state.trials[1].attempts[-1].failure is not None
    assert sweep.state.status == "completed"


def test_user_code_that_stops_itself_has_returned() -> None:
    sweep = running(1, trials=1)
    sweep.report(0, 0.5)
    assert sweep.stopped(0)[0] == tell(0, 0.5, "completed")


# -- failures ---------------------------------------------------------------------------------------


def test_a_retry_waits_and_goes_on_from_the_last_checkpoint() -> None:
    sweep = running(1, trials=1)
    sweep.report(0, 0.5, 0.4)
    assert sweep.saved(0, 0, report=1) == []
    sweep.report(0, 0.3)
    due = 100.0 + backoff_s(sweep.state.spec.failure, 7, 0, 1)
    assert sweep.failed(0) == [cmd.SetTimer(at=due)]
    assert sweep.trial_state(0) == "waiting"
    assert sweep.timer(due) == [start_trial(0, 0, attempt=2, checkpoint="mem://0/0", iteration=2)]
    assert sweep.began(0, attempt=2) == []
    sweep.report(0, 0.25, attempt=2)
    trial = sweep.state.trials[0]
    assert (trial.reports, trial.iteration, trial.last["training_iteration"]) == (4, 3, 3)
    assert sweep.failed(0, attempt=2)[0] == tell(0, 0.25, "failed")
    assert [attempt.kind for attempt in trial.attempts] == ["user_error", "user_error"]


def test_a_hopeless_error_is_not_retried() -> None:
    sweep = running(2)
    wrong = Failure(origin="exception", type="TypeError", bases=("TypeError", "Exception"))
    assert sweep.failed(0, wrong)[0] == tell(0, None, "failed")


def test_a_lost_node_costs_nothing() -> None:
    """Also not when it happens more often than any budget allows."""
    sweep = running(1, trials=1, failure={"max_failures": 0, "max_worker_deaths": 0})
    sweep.report(0, 0.5)
    sweep.saved(0, 0, report=0)
    for attempt in range(1, 6):
        slot = attempt - 1
        assert sweep.send(ev.SlotLost, slot=slot, failure=NODE_DIED) == [cmd.OpenSlot(slot=slot + 1)]
        assert sweep.send(ev.SlotOpened, slot=slot + 1) == [
            start_trial(slot + 1, 0, attempt=attempt + 1, checkpoint="mem://0/0", iteration=1)
        ]
        sweep.began(0, attempt=attempt + 1)
    assert [attempt.kind for attempt in sweep.state.trials[0].attempts] == ["preempted"] * 5


def test_a_dead_worker_takes_its_queue_back_into_the_line() -> None:
    """The running trial pays for the death; those behind it had not begun."""
    sweep = running(1, trials=4)
    sweep.at += 0.025
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.began(1)
    due = sweep.at + backoff_s(sweep.state.spec.failure, 7, 1, 1)
    assert sweep.send(ev.SlotLost, slot=0, failure=DIED) == [cmd.OpenSlot(slot=1), cmd.SetTimer(at=due)]
    assert [sweep.trial_state(number) for number in (1, 2, 3)] == ["waiting", "pending", "pending"]
    assert list(sweep.state.pending) == [2, 3]


def test_a_retry_after_all_slots_were_given_back() -> None:
    """The searcher is exhausted and the slot dies with its trial: the retry gets a new slot."""
    sweep = running(1, trials=1)
    commands = sweep.send(ev.SlotLost, slot=0, failure=DIED)
    assert commands[0] == cmd.OpenSlot(slot=1)
    assert sweep.send(ev.SlotOpened, slot=1) == []
    assert sweep.timer(200.0) == [start_trial(1, 0, attempt=2)]


def test_a_non_finite_metric_fails_the_trial() -> None:
    sweep = running(2)
    assert sweep.report(0, 0.5, "NaN", 0.4) == [stop_trial(0, 0, "non_finite")]
    assert sweep.stopped(0) == [tell(0, 0.5, "failed"), cmd.CloseSlot(slot=0)]
    assert sweep.state.trials[0].attempts[-1].kind == "non_finite"
    assert sweep.state.failed_kinds == {"non_finite": 1}


def test_a_non_finite_metric_may_be_passed_over() -> None:
    sweep = running(2, failure={"non_finite": "ignore"})
    assert sweep.report(0, 0.5, "Infinity", 0.4, "NaN") == []
    assert sweep.returned(0)[0] == tell(0, 0.4, "completed")
    # Nothing but NaN is no result, but the metric's name is right: the sweep goes on.
    sweep.report(1, "NaN")
    assert sweep.returned(1)[0] == tell(1, None, "failed")
    assert sweep.state.fault is None


@pytest.mark.parametrize(
    ("reports", "key", "why"),
    [
        (
            [],
            METRIC,
            "'loss' was never reported by trial 0; the trainable returned without reporting anything",
        ),
        ([1], "los", "'loss' was never reported by trial 0; the trainable reports 'los'"),
        (["high"], METRIC, "'loss' was reported as 'high' by trial 0: it must be a number"),
        ([True], METRIC, "'loss' was reported as True by trial 0: it must be a number"),
    ],
)
def test_a_metric_that_never_comes_ends_the_sweep(reports: list[Any], key: str, why: str) -> None:
    """It is the spec that is wrong; what else runs is stopped, the trial that has returned is not."""
    sweep = running(2, trials=3)
    if reports:
        sweep.report(0, *reports, key=key)
    assert sweep.returned(0) == [tell(0, None, "failed"), stop_trial(1, 1, "sweep")]
    state = sweep.state
    assert (state.status, state.fault, state.fault_field, state.why) == ("failed", "spec", "metric", why)
    assert sweep.stopped(1) == [cmd.EndSweep(status="failed", why=why)]
    assert [sweep.trial_state(number) for number in range(3)] == ["failed", "cancelled", "cancelled"]


def test_a_metric_that_never_comes_is_found_at_a_limit_too() -> None:
    sweep = running(1, trials=1, stop={"trial": {"training_iteration": 2}})
    assert sweep.report(0, 1, 2, key="los") == [stop_trial(0, 0, "limit")]
    sweep.stopped(0)
    assert (sweep.state.status, sweep.state.fault) == ("failed", "spec")


def test_a_metric_that_is_missing_once_others_scored_fails_its_trial_only() -> None:
    sweep = running(2)
    sweep.report(0, 0.5)
    assert sweep.returned(1) == [tell(1, None, "failed"), cmd.CloseSlot(slot=1)]
    assert sweep.state.status is None


def test_a_time_attribute_that_never_comes_ends_the_sweep() -> None:
    sweep = running(2, scheduler={"asha": {"max_t": 9, "time_attr": "epoch"}})
    sweep.report(0, 0.5)
    assert sweep.returned(0) == [tell(0, 0.5, "completed"), stop_trial(1, 1, "sweep")]
    assert (sweep.state.fault, sweep.state.fault_field) == ("spec", "scheduler.asha.time_attr")


def test_the_breaker() -> None:
    """The first three trials fail in user code: the others are not tried."""
    sweep = running(3, trials=9, failure={"max_failures": 0})
    assert sweep.failed(0) == [tell(0, None, "failed"), start_trial(0, 3)]
    assert sweep.failed(1) == [tell(1, None, "failed"), start_trial(1, 4)]
    assert sweep.failed(2) == [
        tell(2, None, "failed"),
        cmd.RecallTrials(slot=0, trials=(3,)),
        cmd.RecallTrials(slot=1, trials=(4,)),
    ]
    assert sweep.state.fault == "user"
    assert sweep.state.why == (
        "the first 3 trials all failed in user code (failure.breaker_trials=3); trial 2: ValueError: boom"
    )
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(3,)) == []
    assert [type(command) for command in sweep.send(ev.TrialsRecalled, slot=1, trials=(4,))] == [cmd.EndSweep]


def test_the_breaker_lets_a_sweep_go_on_that_has_had_a_result() -> None:
    sweep = running(4, trials=9, failure={"max_failures": 0})
    sweep.report(0, 0.5)
    sweep.returned(0)
    for number in (1, 2, 3):
        sweep.failed(number)
    assert sweep.state.status is None


def test_max_failed_fraction_counts_every_class() -> None:
    sweep = running(5, trials=9, failure={"max_failed_fraction": 0.5, "max_failures": 0, "breaker_trials": 0})
    for number in (0, 1):
        sweep.report(number, 0.5)
        sweep.returned(number)
    sweep.failed(2)
    sweep.report(3, "NaN")
    sweep.stopped(3)
    assert sweep.state.status is None
    sweep.report(4, "NaN")
    sweep.stopped(4)
    assert sweep.state.why.startswith("3 of 5 trials failed (failure.max_failed_fraction=0.5)")


@pytest.mark.parametrize(
    ("failure", "fault"),
    [(RAISED, "user"), (DIED, "infrastructure")],
)
def test_all_trials_failed(failure: Failure, fault: str) -> None:
    sweep = running(1, trials=1, failure={"max_failures": 0, "max_worker_deaths": 0})
    assert sweep.failed(0, failure) == [
        tell(0, None, "failed"),
        cmd.EndSweep(status="failed", why="every trial failed"),
    ]
    assert sweep.state.fault == fault


def test_a_trial_that_fails_before_it_is_known_to_have_begun() -> None:
    sweep = Sweep(num_samples=1)
    sweep.start()
    sweep.suggest(1)
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.send(ev.SlotOpened, slot=0)
    assert [type(command) for command in sweep.failed(0)] == [cmd.SetTimer]
    assert sweep.trial_state(0) == "waiting"


# -- slots ------------------------------------------------------------------------------------------


def no_worker(*, is_fatal: bool = False) -> Failure:
    return Failure(origin="start", type="ImportError", message="no module named toys", is_fatal=is_fatal)


def opening(slots: int) -> Sweep:
    sweep = Sweep(num_samples=9)
    sweep.start()
    sweep.suggest(9)
    sweep.send(ev.CapacityChanged, slots=slots)
    return sweep


def test_a_trainable_that_cannot_be_loaded_leaves_at_once() -> None:
    """It says nothing about the sweep's trials, which can be resumed."""
    sweep = opening(2)
    assert sweep.send(ev.SlotFailed, slot=0, failure=no_worker(is_fatal=True)) == [
        cmd.LeaveSweep(why="ImportError: no module named toys")
    ]
    assert (sweep.state.fault, sweep.state.fault_field, sweep.state.status) == ("spec", "trainable", None)


def test_a_cluster_that_starts_no_worker_is_left() -> None:
    sweep = opening(1)
    assert sweep.send(ev.SlotFailed, slot=0, failure=no_worker()) == [cmd.OpenSlot(slot=1)]
    assert sweep.send(ev.SlotFailed, slot=1, failure=no_worker()) == [cmd.OpenSlot(slot=2)]
    commands = sweep.send(ev.SlotFailed, slot=2, failure=no_worker())
    assert [type(command) for command in commands] == [cmd.LeaveSweep]
    assert sweep.state.fault == "infrastructure"


def test_slots_that_fail_beside_others_that_work_are_done_without() -> None:
    """No more are opened, until something has changed."""
    sweep = opening(4)
    sweep.send(ev.SlotOpened, slot=3)
    for slot in (0, 1):
        assert len(sweep.send(ev.SlotFailed, slot=slot, failure=no_worker())) == 1
    assert sweep.send(ev.SlotFailed, slot=2, failure=no_worker()) == []
    assert sweep.state.notes == (
        "3 workers in a row could not be started: ImportError: no module named toys",
    )
    assert sweep.send(ev.CapacityChanged, slots=4) == [cmd.OpenSlot(slot=6)]


def test_queued_trials_are_shared_out_at_the_end() -> None:
    """One slot has three trials waiting behind a long one, the other is idle: it gets the later two."""
    sweep = running(2, trials=6)
    sweep.at += 0.025
    for number in (0, 1):
        sweep.report(number, 0.5)
        sweep.returned(number)
    state = sweep.state
    assert [list(slot.queue) for slot in state.slots.values()] == [[2, 3, 4], [5]]
    sweep.began(2)
    sweep.began(5)
    sweep.report(5, 0.5)
    assert sweep.returned(5) == [tell(5, 0.5, "completed"), cmd.RecallTrials(slot=0, trials=(4,))]
    # Asked once; what comes meanwhile changes nothing about it.
    assert sweep.report(2, 0.5) == []
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(4,)) == [
        start_trial(1, 4, attempt=2),
    ]
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(4,)) == []
    assert [list(slot.queue) for slot in state.slots.values()] == [[2, 3], [4]]


def test_a_recall_answered_twice() -> None:
    """The trial has gone back to the slot that gave it up: the second answer must not take it from there."""
    sweep = running(2, trials=4)
    sweep.at += 0.025
    for number in (0, 1):
        sweep.report(number, 0.5)
        sweep.returned(number)
    sweep.began(2)
    sweep.send(ev.SlotLost, slot=1, failure=NODE_DIED)
    sweep.send(ev.CapacityChanged, slots=1)
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(3,)) == [start_trial(0, 3, attempt=2)]
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(3,)) == []
    assert list(sweep.state.slots[0].queue) == [2, 3]


def test_a_recall_that_came_too_late() -> None:
    """The trial had begun: it stays where it is, and the idle slot is given back."""
    sweep = running(2, trials=4)
    sweep.at += 0.025
    for number in (0, 1):
        sweep.report(number, 0.5)
        sweep.returned(number)
    sweep.began(2)
    assert [list(slot.queue) for slot in sweep.state.slots.values()] == [[2, 3], []]
    assert sweep.state.slots[0].recalling == ((3, 1),)
    sweep.report(2, 0.5)
    assert sweep.returned(2) == [tell(2, 0.5, "completed"), cmd.CloseSlot(slot=1)]
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=()) == []
    assert sweep.began(3) == []


def test_a_slot_lost_while_it_is_asked_to_give_back() -> None:
    sweep = running(2, trials=4)
    sweep.at += 0.025
    for number in (0, 1):
        sweep.report(number, 0.5)
        sweep.returned(number)
    sweep.began(2)
    commands = sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    assert commands == [start_trial(1, 2, attempt=2), start_trial(1, 3, attempt=2)]
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(3,)) == []


# -- the sweep's end --------------------------------------------------------------------------------


def test_the_target() -> None:
    """The trial that reached it completes; the others are cut, queued and pending ones as well."""
    sweep = running(2, trials=9, stop={"target": 0.1})
    assert sweep.report(0, 0.5) == []
    assert sweep.report(0, 0.05, 0.01) == [stop_trial(0, 0, "limit"), stop_trial(1, 1, "sweep")]
    assert sweep.stopped(0) == [tell(0, 0.05, "completed")]
    why = "trial 0 reached the target 0.1"
    assert sweep.stopped(1) == [cmd.EndSweep(status="target", why=why)]
    assert sweep.state.counts["cancelled"] == 8


def test_a_target_in_max_mode() -> None:
    sweep = running(1, mode="max", stop={"target": 0.9})
    assert sweep.report(0, 0.89) == []
    assert sweep.report(0, 0.9) == [stop_trial(0, 0, "limit")]


def test_the_deadline() -> None:
    """Running trials are asked to end; one in its pause before a retry is cut."""
    sweep = Sweep(num_samples=9, stop={"deadline": datetime.fromtimestamp(200, UTC)})
    assert sweep.start() == [cmd.SuggestConfigs(first=0, count=16), cmd.SetTimer(at=200.0)]
    sweep.suggest(9)
    sweep.send(ev.CapacityChanged, slots=2)
    for slot in (0, 1):
        sweep.send(ev.SlotOpened, slot=slot)
        sweep.began(slot)
    sweep.at = 199.8
    assert sweep.failed(1) == [start_trial(1, 2)]
    sweep.began(2)
    assert sweep.timer(200.0) == [stop_trial(0, 0, "sweep"), stop_trial(1, 2, "sweep")]
    assert sweep.trial_state(1) == "cancelled"
    sweep.stopped(0)
    assert sweep.stopped(2) == [cmd.EndSweep(status="deadline", why="the deadline has come")]


def test_the_time_budget_is_shared_by_all_controllers() -> None:
    """60 s; the first controller was at work for 20 s, the time until the second one is not counted."""
    sweep = Sweep(num_samples=9, stop={"time_budget_s": 60.0})
    assert sweep.start() == [cmd.SuggestConfigs(first=0, count=16), cmd.SetTimer(at=160.0)]
    sweep.at = 120.0
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.at = 1000.0
    assert sweep.start(generation=2) == [cmd.SuggestConfigs(first=0, count=16), cmd.SetTimer(at=1040.0)]
    assert sweep.timer(1039.0) == [cmd.SetTimer(at=1040.0)]
    why = "the time budget of 60 s is spent"
    assert sweep.timer(1040.0) == [cmd.EndSweep(status="budget", why=why)]


def test_cancel() -> None:
    """Running trials end, queued ones come back and are cut; a late answer of the searcher is not taken."""
    sweep = running(1, trials=3)
    sweep.at += 0.025
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.began(1)
    sweep.report(1, 0.4)
    assert sweep.send(ev.CancelRequested, reason="enough") == [
        stop_trial(0, 1, "sweep"),
        cmd.RecallTrials(slot=0, trials=(2,)),
    ]
    assert sweep.send(ev.CancelRequested, reason="again") == []
    assert sweep.suggest(2) == []
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(2,)) == []
    assert sweep.stopped(1) == [cmd.EndSweep(status="cancelled", why="enough")]
    assert [sweep.trial_state(number) for number in range(3)] == ["completed", "cancelled", "cancelled"]
    assert sweep.state.best_ended == 1, "what a cancelled trial reported counts"


def test_a_queued_trial_that_begins_while_the_sweep_ends_is_stopped() -> None:
    sweep = running(1, trials=3)
    sweep.at += 0.025
    sweep.report(0, 0.5)
    sweep.returned(0)
    assert sweep.send(ev.CancelRequested) == [cmd.RecallTrials(slot=0, trials=(1, 2))]
    assert sweep.began(1) == [stop_trial(0, 1, "sweep")]
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(2,)) == []
    assert [type(command) for command in sweep.stopped(1)] == [cmd.EndSweep]


def test_a_trial_that_returns_while_the_sweep_ends_completes() -> None:
    """Unless it reported something that was not taken."""
    sweep = running(2)
    sweep.report(0, 0.5)
    sweep.report(1, 0.5)
    sweep.send(ev.CancelRequested)
    assert sweep.returned(0) == [tell(0, 0.5, "completed")]
    sweep.report(1, 0.1)
    sweep.returned(1)
    assert sweep.trial_state(1) == "cancelled"


def test_what_fails_while_the_sweep_ends_is_not_retried() -> None:
    sweep = running(1, trials=3)
    sweep.at += 0.025
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.send(ev.CancelRequested)
    commands = sweep.send(ev.SlotLost, slot=0, failure=DIED)
    assert [type(command) for command in commands] == [cmd.EndSweep]
    trial = sweep.state.trials[1]
    assert (trial.state, trial.attempts[-1].end) == ("cancelled", "cut")


# -- interrupts, crashes, resumes -------------------------------------------------------------------


def test_interrupt_and_resume() -> None:
    """What runs is asked to end and runs again from its checkpoint; what it still reports is taken."""
    sweep = running(2, trials=3)
    sweep.report(0, 0.5)
    assert sweep.send(ev.InterruptRequested, reason="Ctrl-C") == [
        stop_trial(0, 0, "interrupt"),
        stop_trial(1, 1, "interrupt"),
    ]
    assert sweep.send(ev.InterruptRequested) == []
    assert sweep.report(0, 0.4) == []
    assert sweep.saved(0, 0, report=1) == []
    assert sweep.stopped(1) == []
    assert sweep.stopped(0) == [cmd.LeaveSweep(why="Ctrl-C")]
    assert sweep.send(ev.CapacityChanged, slots=3) == []
    assert sweep.start(generation=2) == []
    assert (sweep.state.trials[0].overrun, sweep.state.trials[0].last_score) == (0, 0.4)
    assert sweep.send(ev.CapacityChanged, slots=1) == [cmd.OpenSlot(slot=2)]
    resumed = {"checkpoint": "mem://0/0", "iteration": 2, "next_checkpoint": 1_001_000}
    assert sweep.send(ev.SlotOpened, slot=2) == [start_trial(2, 0, attempt=2, **resumed)]


def test_a_verdict_on_a_report_that_crosses_an_interrupt_stands() -> None:
    sweep = asha_with_a_loser()
    sweep.send(ev.InterruptRequested)
    assert sweep.report(1, 0.9, 0.8) == []
    assert sweep.stopped(1) == [tell(1, 0.9, "stopped")]
    assert sweep.state.trials[1].overrun == 1


def test_cancel_overrides_an_interrupt() -> None:
    sweep = running(1)
    sweep.send(ev.InterruptRequested)
    assert sweep.send(ev.CancelRequested) == []
    assert sweep.stopped(0) == [cmd.EndSweep(status="cancelled", why="cancelled")]


def test_an_interrupt_that_crosses_the_last_return() -> None:
    """Nothing is left to resume: the sweep is over, not interrupted."""
    sweep = running(1)
    sweep.report(0, 0.5)
    sweep.send(ev.InterruptRequested)
    sweep.returned(0)
    commands = sweep.start(generation=2)
    assert [type(command) for command in commands] == [cmd.EndSweep]


def test_a_crash_gives_everything_back() -> None:
    """A running trial goes back into the line; one that was told to stop has stopped; timers are set anew."""
    sweep = running(3, trials=9, scheduler=ASHA, stop={"time_budget_s": 1000.0})
    sweep.report(0, 0.1)
    sweep.report(1, 0.9)
    sweep.failed(2)
    assert [sweep.trial_state(number) for number in range(4)] == ["running", "stopping", "waiting", "queued"]
    due = sweep.state.waiting[2]
    sweep.at += 0.25
    assert sweep.start(generation=2) == [tell(1, 0.9, "stopped"), cmd.SetTimer(at=due)]
    states = [sweep.trial_state(number) for number in range(4)]
    assert states == ["pending", "stopped", "waiting", "pending"]
    assert list(sweep.state.pending) == [0, 3, 4, 5, 6, 7, 8]
    assert sweep.state.trials[0].attempts[-1].node == "node0"
    assert sweep.start(generation=2) == [], "delivered twice"


def test_an_ask_that_was_lost_with_its_controller_is_asked_again() -> None:
    sweep = Sweep()
    ask = [cmd.SuggestConfigs(first=0, count=16)]
    assert sweep.start() == ask
    assert sweep.start(generation=2) == ask


def test_a_crash_between_the_end_and_its_record_ends_again() -> None:
    sweep = running(1)
    sweep.report(0, 0.5)
    end = [cmd.EndSweep(status="completed", why="every trial has ended")]
    assert sweep.returned(0)[1:] == end
    assert sweep.start(generation=2) == end


def test_more_samples_on_resume() -> None:
    sweep = running(1, trials=2)
    sweep.start(generation=2)
    more = make_spec(num_samples=4).model_dump(mode="json")
    assert sweep.send(ev.SpecChanged, spec=more, changes=("num_samples: 2 -> 4",)) == [
        cmd.SuggestConfigs(first=2, count=16)
    ]
    assert sweep.state.notes == ("spec changed: num_samples: 2 -> 4",)
    sweep.suggest(2)
    assert list(sweep.state.pending) == [0, 1, 2, 3]


# -- checkpoints ------------------------------------------------------------------------------------


def delete(number: int, trial: int = 0) -> cmd.DeleteCheckpoint:
    return cmd.DeleteCheckpoint(trial=trial, number=number, uri=f"mem://{trial}/{number}")


def test_the_last_and_the_best_checkpoint_are_kept() -> None:
    sweep = running(1, checkpoint={"keep_last": 2, "keep_best": True})
    commands = []
    for number, value in enumerate([0.5, 0.1, 0.4, 0.3, 0.2]):
        sweep.report(0, value)
        commands.append(sweep.saved(0, number, report=number))
    assert commands == [[], [], [delete(0)], [], [delete(2)]]
    assert [checkpoint.number for checkpoint in sweep.state.trials[0].checkpoints] == [1, 3, 4]


def test_without_keep_best_the_last_one_is_kept() -> None:
    sweep = running(1, checkpoint={"keep_last": 1, "keep_best": False})
    for number, value in enumerate([0.1, 0.5]):
        sweep.report(0, value)
        commands = sweep.saved(0, number, report=number)
    assert commands == [delete(0)]


def test_a_checkpoint_of_an_attempt_that_is_over_is_deleted() -> None:
    """It was stored while its worker was being lost; the new attempt has begun without it."""
    sweep = running(1, trials=1)
    sweep.report(0, 0.5)
    sweep.saved(0, 0, report=0)
    sweep.report(0, 0.4)
    sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    sweep.send(ev.SlotOpened, slot=1)
    assert sweep.saved(0, 1, report=1) == [delete(1)]
    assert sweep.saved(0, 0, report=0) == [], "this one it has"


def test_a_checkpoint_that_could_not_be_stored_is_said() -> None:
    sweep = running(1)
    sweep.report(0, 0.5)
    for _ in range(2):
        sweep.send(ev.CheckpointFailed, trial=0, attempt=1, number=0, problem="disk full")
    assert sweep.state.notes == ("trial 0: checkpoint 0 could not be stored: disk full",)
    assert sweep.saved(0, 1, report=0) == []


# -- late and doubled -------------------------------------------------------------------------------


def test_every_event_of_a_trial_may_come_twice() -> None:
    """The second one changes nothing; a batch that overlaps adds what is new."""
    sweep = running(1, trials=2)
    twice: list[Callable[[], Commands]] = [
        lambda: sweep.began(0),
        lambda: sweep.report(0, 0.5, 0.4, first=0),
        lambda: sweep.saved(0, 0, report=1),
        lambda: sweep.send(ev.SlotOpened, slot=0),
        lambda: sweep.suggest(2, first=0),
    ]
    for event in twice:
        event()
        before = sweep.state.to_json()
        assert event() == []
        assert sweep.state.to_json() == before
    sweep.report(0, 0.4, 0.3, first=1)
    assert (sweep.state.trials[0].reports, sweep.state.trials[0].last_score) == (3, 0.3)
    assert sweep.returned(0) == [tell(0, 0.3, "completed"), start_trial(0, 1)]
    assert sweep.returned(0) == []
    assert sweep.failed(0) == []


def test_events_of_an_earlier_attempt_are_ignored() -> None:
    sweep = running(1, trials=1)
    sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    sweep.send(ev.SlotOpened, slot=1)
    sweep.began(0, attempt=2)
    before = sweep.state.to_json()
    for late in (sweep.began, sweep.returned, sweep.stopped, sweep.failed):
        assert late(0) == []
    assert sweep.report(0, 0.1, first=0) == []
    assert sweep.state.to_json() == before


def test_strangers_are_ignored() -> None:
    """Trials and slots that nobody knows."""
    sweep = running(1)
    before = sweep.state.to_json()
    assert sweep.returned(77) == []
    assert sweep.saved(77, 0, report=0) == []
    assert sweep.send(ev.SlotLost, slot=77, failure=DIED) == []
    assert sweep.send(ev.SlotFailed, slot=77, failure=DIED) == []
    assert sweep.send(ev.SlotOpened, slot=77) == []
    assert sweep.send(ev.TrialsRecalled, slot=0, trials=(77,)) == []
    assert sweep.state.to_json() == before
