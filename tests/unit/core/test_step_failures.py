"""`step` when trials or workers fail, for the main ways: the whole list of commands after each event."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure, backoff_s
from tests.unit.core.sweep import Sweep, running, start_trial, stop_trial, tell
from tests.unit.core.toys import DIED, METRIC, NODE_DIED, RAISED

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
    assert (trial.results.reports, trial.results.iteration, trial.results.last["training_iteration"]) == (
        4,
        3,
        3,
    )
    assert sweep.failed(0, attempt=2)[0] == tell(0, 0.25, "infeasible")
    assert [attempt.kind for attempt in trial.attempts] == ["user_error", "user_error"]


@pytest.mark.parametrize(
    "error", [TypeError, ImportError, AttributeError, NameError, SyntaxError, NotImplementedError, KeyError]
)
def test_a_hopeless_error_is_not_retried(error: type[Exception]) -> None:
    sweep = running(2)
    bases = tuple(base.__name__ for base in error.__mro__)
    wrong = Failure(origin="exception", type=error.__name__, bases=bases)
    assert sweep.failed(0, wrong)[0] == tell(0, None, "infeasible")


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
    assert list(sweep.state.line.pending) == [2, 3]


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
    assert sweep.stopped(0) == [tell(0, 0.5, "infeasible"), cmd.CloseSlot(slot=0)]
    assert sweep.state.trials[0].attempts[-1].kind == "non_finite"
    assert sweep.state.line.failed_kinds == {"non_finite": 1}


def test_a_non_finite_metric_may_be_passed_over() -> None:
    sweep = running(2, failure={"non_finite": "ignore"})
    assert sweep.report(0, 0.5, "Infinity", 0.4, "NaN") == []
    assert sweep.returned(0)[0] == tell(0, 0.4, "completed")
    # Nothing but NaN is no result, but the metric's name is right: the sweep continues.
    sweep.report(1, "NaN")
    assert sweep.returned(1)[0] == tell(1, None, "infeasible")
    assert sweep.state.end.fault is None


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
    ],
)
def test_a_metric_that_never_comes_ends_the_sweep(reports: list[Any], key: str, why: str) -> None:
    """It is the spec that is wrong; what else runs is stopped, the trial that has returned is not."""
    sweep = running(2, trials=3)
    if reports:
        sweep.report(0, *reports, key=key)
    assert sweep.returned(0) == [tell(0, None, "failed"), stop_trial(1, 1, "sweep")]
    state = sweep.state
    assert (state.end.status, state.end.fault, state.end.fault_field, state.end.why) == (
        "failed",
        "spec",
        "metric",
        why,
    )
    assert sweep.stopped(1) == [cmd.EndSweep(status="failed", why=why)]
    assert [sweep.trial_state(number) for number in range(3)] == ["failed", "cancelled", "cancelled"]


def test_a_metric_that_never_comes_is_found_at_a_limit_too() -> None:
    sweep = running(1, trials=1, stop={"trial": {"training_iteration": 2}})
    assert sweep.report(0, 1, 2, key="los") == [stop_trial(0, 0, "limit")]
    sweep.stopped(0)
    assert (sweep.state.end.status, sweep.state.end.fault) == ("failed", "spec")


def test_a_metric_that_is_missing_once_others_scored_fails_its_trial_only() -> None:
    sweep = running(2)
    sweep.report(0, 0.5)
    assert sweep.returned(1) == [tell(1, None, "failed"), cmd.CloseSlot(slot=1)]
    assert sweep.state.end.status is None


def test_a_time_attribute_that_never_comes_ends_the_sweep() -> None:
    sweep = running(2, scheduler={"asha": {"max_t": 9, "time_attr": "epoch"}})
    sweep.report(0, 0.5)
    assert sweep.returned(0) == [tell(0, 0.5, "completed"), stop_trial(1, 1, "sweep")]
    assert (sweep.state.end.fault, sweep.state.end.fault_field) == ("spec", "scheduler.asha.time_attr")


EPOCHS = {"asha": {"max_t": 9, "time_attr": "epoch"}}


def report_epoch(sweep: Sweep, trial: int, value: float, epoch: int) -> None:
    first = sweep.state.trials[trial].results.attempt_reports
    fields: dict[str, Any] = {"keys": (METRIC, "epoch"), "rows": ([value, epoch],), "first": first}
    sweep.send(ev.TrialReported, trial=trial, attempt=1, **fields)


def test_a_time_attribute_that_one_last_report_lacks_ends_nothing() -> None:
    """Others have reported it: the spec is right, and the trial has its score."""
    sweep = running(2, scheduler=EPOCHS)
    report_epoch(sweep, 1, 0.4, 1)
    sweep.report(0, 0.5)
    assert sweep.returned(0)[0] == tell(0, 0.5, "completed")
    assert (sweep.state.phase, sweep.state.end.fault) == ("running", None)
    assert sweep.state.notes == ("the last report of trial 0 has no 'epoch' (scheduler.asha.time_attr)",)
    sweep.returned(1)
    assert sweep.state.end.status == "completed"


def test_a_time_attribute_that_only_the_last_report_of_the_first_trial_lacks_ends_nothing() -> None:
    sweep = running(1, trials=3, scheduler=EPOCHS)
    report_epoch(sweep, 0, 0.4, 1)
    sweep.report(0, 0.5)
    sweep.returned(0)
    assert sweep.state.end.status is None


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
    assert sweep.state.end.fault == "user"
    assert sweep.state.end.why == (
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
    assert sweep.state.end.status is None


def test_max_failed_fraction_counts_every_class() -> None:
    sweep = running(5, trials=9, failure={"max_failed_fraction": 0.5, "max_failures": 0, "breaker_trials": 0})
    for number in (0, 1):
        sweep.report(number, 0.5)
        sweep.returned(number)
    sweep.failed(2)
    sweep.report(3, "NaN")
    sweep.stopped(3)
    assert sweep.state.end.status is None
    sweep.report(4, "NaN")
    sweep.stopped(4)
    assert sweep.state.end.why.startswith("3 of 5 trials failed (failure.max_failed_fraction=0.5)")


@pytest.mark.parametrize(("fraction", "trials"), [(0.0, 9), (0.1, 2), (0.4, 3), (0.5, 3), (0.0, None)])
def test_a_fraction_that_is_exceeded_for_certain_ends_the_sweep(fraction: float, trials: int | None) -> None:
    """Before four trials have ended, too."""
    failure = {"max_failed_fraction": fraction, "max_failures": 0, "breaker_trials": 0}
    limit = {} if trials else {"stop": {"target": 0.0}}
    sweep = running(3, trials=trials, failure=failure, **limit)
    for number in range(int(fraction * (trials or 0))):
        sweep.failed(number)
        assert sweep.state.end.status is None
    sweep.failed(int(fraction * (trials or 0)))
    assert sweep.state.end.status == "failed"


def test_true_is_better_than_false() -> None:
    sweep = running(2, trials=2, mode="max")
    for number, value in enumerate([False, True]):
        sweep.report(number, value)
        sweep.returned(number)
    assert [trial.results.best_score for trial in sweep.state.trials.values()] == [0.0, 1.0]


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
    assert sweep.state.end.fault == fault


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
    assert (sweep.state.end.fault, sweep.state.end.fault_field, sweep.state.end.status) == (
        "spec",
        "trainable",
        None,
    )


def test_a_cluster_that_starts_no_worker_is_left() -> None:
    sweep = opening(1)
    assert sweep.send(ev.SlotFailed, slot=0, failure=no_worker()) == [cmd.OpenSlot(slot=1)]
    assert sweep.send(ev.SlotFailed, slot=1, failure=no_worker()) == [cmd.OpenSlot(slot=2)]
    commands = sweep.send(ev.SlotFailed, slot=2, failure=no_worker())
    assert [type(command) for command in commands] == [cmd.LeaveSweep]
    assert sweep.state.end.fault == "infrastructure"


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
