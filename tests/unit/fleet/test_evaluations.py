"""Reports wait for the evaluations of their checkpoints; nothing overtakes them, nothing is lost."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet.actions import Action, CancelEvaluation, StartEvaluation
from raysweep.fleet.evaluations import EvaluationRules, Evaluations
from raysweep.messages import Judged, Validation
from tests.unit.core.toys import DIED, RAISED


class Desk:
    """One trial (number 5) on slot 0, and what becomes of what it says."""

    def __init__(
        self,
        *,
        every: int = 1,
        tries: int = 2,
        saved: int = 0,
        ranks_by: str = "",
        is_by_trainer: bool = False,
    ) -> None:
        rules = EvaluationRules(
            every=every, tries=tries, metric="acc", ranks_by=ranks_by, is_by_trainer=is_by_trainer
        )
        self.actions: list[Action] = []
        self.told: list[tuple[int, Judged]] = []
        self.evaluations = Evaluations(
            rules, self.actions.append, lambda slot, judged: self.told.append((slot, judged))
        )
        self.at = 100.0
        start = cmd.StartTrial(slot=0, trial=5, attempt=1, config={"x": 1}, seed=3, iteration=10, saved=saved)
        self.evaluations.begin(start)
        self.say(ev.TrialStarted)

    def say(self, make: Any, **fields: Any) -> list[ev.Event]:
        self.at += 1.0
        if "slot" not in fields:
            fields |= {"trial": 5, "attempt": 1}
        self.evaluations.take(make(at=self.at, **fields))
        return self.heard()

    def heard(self) -> list[ev.Event]:
        events = list(self.evaluations.events)
        self.evaluations.events.clear()
        return events

    def report(
        self, number: int, *, is_saved: bool = True, validation: Validation | None = None
    ) -> list[ev.Event]:
        if is_saved:
            self.evaluations.expect(5, 1, number, validation)
        return self.say(ev.TrialReported, first=number, keys=("loss",), rows=([number],), is_waiting=is_saved)

    def store(self, number: int) -> list[ev.Event]:
        uri = f"checkpoints/00005/{number}"
        return self.say(ev.CheckpointCommitted, number=number, report=number, uri=uri, score=None)

    def done(self, evaluation: int, **metrics: Any) -> list[ev.Event]:
        self.at += 1.0
        self.evaluations.done(evaluation, metrics, self.at)
        return self.heard()

    def failed(self, evaluation: int) -> list[ev.Event]:
        self.at += 1.0
        self.evaluations.failed(evaluation, "WorkerDied: signal 9", self.at)
        return self.heard()

    def stop(self, reason: Any, grace_s: float = 10.0) -> list[ev.Event]:
        self.at += 1.0
        command = cmd.StopTrial(slot=0, trial=5, attempt=1, reason=reason, grace_s=grace_s)
        self.evaluations.stop(command, self.at)
        return self.heard()


def names(events: list[ev.Event]) -> list[str]:
    """Without the reports that only ask for an answer."""
    return [type(e).__name__ for e in events if not isinstance(e, ev.TrialReported) or e.rows]


def reported(events: list[ev.Event]) -> list[tuple[int, tuple[str, ...], Any]]:
    return [(e.first, e.keys, e.rows[0]) for e in events if isinstance(e, ev.TrialReported) and e.rows]


def test_a_report_counts_with_both_metrics_once_its_evaluation_is_in() -> None:
    desk = Desk()
    assert names(desk.report(0)) == ["TrialBusy"], "the core is told that it hears nothing for a while"
    assert desk.actions == [], "what is not stored cannot be evaluated"
    assert desk.store(0) == []
    (started,) = desk.actions
    assert isinstance(started, StartEvaluation)
    assert (started.trial, started.iteration, started.uri) == (5, 11, "checkpoints/00005/0")
    events = desk.done(0, acc=0.5)
    assert reported(events) == [(0, ("loss", "acc"), [0, 0.5])]
    assert names(events) == ["TrialReported", "CheckpointCommitted"]
    assert isinstance(events[1], ev.CheckpointCommitted)
    assert events[1].score == 0.5, "the checkpoint is ranked by what was evaluated"
    assert {event.at for event in events} == {desk.at}, "they count from now on"
    assert desk.evaluations.is_idle


def test_nothing_overtakes_a_report_that_waits() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    assert desk.report(1, is_saved=False) == []
    assert desk.say(ev.TrialReturned) == []
    desk.evaluations.begin(cmd.StartTrial(slot=0, trial=6, attempt=1, config={}, seed=0))
    desk.evaluations.take(ev.TrialStarted(at=desk.at, trial=6, attempt=1))
    assert desk.heard() == [], "not even the next trial of that slot"
    said = names(desk.done(0, acc=1))
    assert said[:4] == ["TrialReported", "CheckpointCommitted", "TrialReported", "TrialReturned"]
    assert said[4:] == ["TrialStarted"]


def test_other_slots_are_not_held_up() -> None:
    desk = Desk()
    desk.report(0)
    other = cmd.StartTrial(slot=1, trial=6, attempt=1, config={}, seed=0)
    desk.evaluations.begin(other)
    started = ev.TrialStarted(at=desk.at, trial=6, attempt=1)
    desk.evaluations.take(started)
    assert desk.heard() == [started]


def test_a_checkpoint_follows_its_report_at_once_and_the_trial_is_answered_after_both() -> None:
    """A controller that dies between the two would have the report made again."""
    desk = Desk()
    for number in range(2):
        desk.report(number)
    for number in range(2):
        desk.store(number)
    report, checkpoint, question, busy = desk.done(0, acc=1)
    assert isinstance(report, ev.TrialReported)
    assert not report.is_waiting
    assert isinstance(checkpoint, ev.CheckpointCommitted)
    assert checkpoint.report == 0
    assert isinstance(question, ev.TrialReported)
    assert (question.first, question.rows, question.is_waiting) == (1, (), True)
    assert isinstance(busy, ev.TrialBusy)


def test_a_trial_that_has_stored_its_checkpoint_is_not_taken_to_store_it_still() -> None:
    """Else it could hang for ever: the silence of a trial that stores means nothing."""
    desk = Desk()
    desk.report(0)
    desk.say(ev.TrialBusy)
    desk.store(0)
    said = [event for event in desk.done(0, acc=1) if isinstance(event, ev.TrialBusy)]
    assert [event.is_over for event in said] == [False, True]


def test_evaluations_of_one_trial_may_come_in_any_order() -> None:
    desk = Desk()
    for number in range(2):
        desk.report(number)
        desk.store(number)
    assert desk.done(1, acc=2) == []
    assert reported(desk.done(0, acc=1)) == [(0, ("loss", "acc"), [0, 1]), (1, ("loss", "acc"), [1, 2])]


def test_the_core_is_told_again_that_it_hears_nothing_after_each_report() -> None:
    """A report says to it that the trial can be heard: a silent one would be taken for hung."""
    desk = Desk()
    for number in range(2):
        desk.report(number)
        desk.store(number)
    assert names(desk.done(0, acc=1)) == ["TrialReported", "CheckpointCommitted", "TrialBusy"]


def test_an_attempt_that_begins_anew_has_no_evaluation_of_the_one_before() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    desk.evaluations.begin(cmd.StartTrial(slot=1, trial=5, attempt=2, config={}, seed=0))
    assert desk.actions[1:] == [CancelEvaluation(evaluation=0)]
    assert desk.done(0, acc=1) == []


def test_only_each_so_manyth_checkpoint_is_evaluated_counted_from_the_trials_first() -> None:
    desk = Desk(every=2, saved=3)
    assert names(desk.report(0)) == ["TrialBusy"], "the fourth"
    desk.store(0)
    desk.done(0, acc=1)
    assert reported(desk.report(1)) == [(1, ("loss",), [1])], "the fifth"
    assert names(desk.store(1)) == ["CheckpointCommitted"]
    assert len(desk.actions) == 1


def test_a_checkpoint_that_could_not_be_stored_does_not_count_among_them() -> None:
    for is_handed_over in (True, False):
        desk = Desk(every=2)
        desk.report(0)
        if is_handed_over:
            desk.say(ev.CheckpointFailed, number=0, problem="full")
        else:
            desk.evaluations.expect_none(5, 1, 0, desk.at)
            desk.heard()
        assert reported(desk.report(1)), "the first"
        desk.store(1)
        assert not reported(desk.report(2)), "the second"


def test_an_evaluation_that_fails_is_run_again_and_then_given_up_with_a_note() -> None:
    desk = Desk(tries=2)
    desk.report(0)
    desk.store(0)
    assert desk.failed(0) == []
    assert [action.tried for action in desk.actions if isinstance(action, StartEvaluation)] == [1, 2]
    events = desk.failed(0)
    assert names(events) == ["TrialReported", "CheckpointCommitted", "TrialNoted"]
    assert reported(events) == [(0, ("loss",), [0])]
    assert isinstance(events[-1], ev.TrialNoted)
    assert events[-1].text.startswith(
        "the evaluation after report 11 failed 2 times, the last time with Work"
    )
    assert desk.failed(0) == desk.done(0, acc=1) == [], "what comes twice is passed over"


@pytest.mark.parametrize("name", ["loss", "training_iteration"])
def test_a_name_that_the_report_has_is_a_clear_note_and_overwrites_nothing(name: str) -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    events = desk.done(0, acc=1, **{name: 7})
    assert reported(events) == [(0, ("loss",), [0])]
    assert f"gave '{name}', which the report has already" in str(events)


def test_a_checkpoint_is_ranked_by_another_metric_of_either_side() -> None:
    for ranks_by, rank in (("f1", 0.75), ("loss", 0.0)):
        desk = Desk(ranks_by=ranks_by)
        desk.report(0)
        desk.store(0)
        committed = desk.done(0, acc=1, f1=0.75)[1]
        assert isinstance(committed, ev.CheckpointCommitted)
        assert (committed.score, committed.rank) == (1.0, rank)


def test_a_report_whose_checkpoint_cannot_be_stored_counts_as_it_is() -> None:
    desk = Desk()
    desk.report(0)
    events = desk.say(ev.CheckpointFailed, number=0, problem="full")
    assert names(events) == ["TrialReported", "CheckpointFailed"]
    desk.report(1)
    desk.evaluations.expect_none(5, 1, 1, desk.at)
    assert reported(desk.heard()) == [(1, ("loss",), [1])]


@pytest.mark.parametrize("reason", ["scheduler", "pause", "exploit", "limit"])
def test_a_verdict_ends_the_wait_and_the_evaluation(reason: str) -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    assert names(desk.stop(reason)) == ["TrialReported", "CheckpointCommitted"]
    assert desk.actions[1:] == [CancelEvaluation(evaluation=0)]
    assert reported(desk.report(1)) == [(1, ("loss",), [1])], "nor does anything later wait"
    assert names(desk.say(ev.TrialStopped)) == ["TrialStopped"]


@pytest.mark.parametrize(("reason", "grace_s"), [("interrupt", 10.0), ("sweep", 10.0), ("ending", 0.0)])
def test_what_is_open_when_the_sweep_is_left_is_made_again(reason: str, grace_s: float) -> None:
    desk = Desk()
    for number in range(3):
        desk.report(number)
        desk.store(number)
    desk.done(0, acc=1)
    assert desk.stop(reason, grace_s) == []
    assert sum(isinstance(action, CancelEvaluation) for action in desk.actions) == 2
    events = desk.say(ev.TrialReturned)
    assert names(events) == ["TrialStopped"], "it has returned, but not all that it did counts"


def test_a_trial_that_moves_to_another_node_takes_its_evaluated_checkpoint_along() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    assert desk.stop("preempt") == []
    assert desk.say(ev.TrialStopped) == []
    assert names(desk.done(0, acc=1)) == ["TrialReported", "CheckpointCommitted", "TrialStopped"]


def test_a_lost_slot_waits_for_what_its_trial_had_stored_and_drops_the_rest() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    desk.report(1)
    assert desk.say(ev.SlotLost, slot=0, failure=DIED) == []
    events = desk.done(0, acc=1)
    assert names(events) == ["TrialReported", "CheckpointCommitted", "SlotLost"]
    assert isinstance(events[-1], ev.SlotLost)
    assert events[-1].was_handed


def test_a_worker_that_died_after_its_trial_is_held_against_none() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    desk.say(ev.TrialReturned)
    assert desk.say(ev.SlotLost, slot=0, failure=DIED) == []
    *_, returned, lost = desk.done(0, acc=1)
    assert isinstance(returned, ev.TrialReturned)
    assert isinstance(lost, ev.SlotLost)
    assert not lost.was_handed


def test_an_attempt_that_fails_is_judged_by_what_it_had_stored_first() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    assert desk.say(ev.TrialFailed, failure=RAISED) == []
    assert names(desk.done(0, acc=1)) == ["TrialReported", "CheckpointCommitted", "TrialFailed"]


def test_what_an_earlier_attempt_says_late_passes_by() -> None:
    desk = Desk()
    desk.report(0)
    late = ev.CheckpointCommitted(at=desk.at, trial=5, attempt=0, number=0, report=0, uri="u")
    desk.evaluations.take(late)
    assert desk.heard() == [late]


def test_a_slot_that_the_core_has_closed_is_forgotten() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    desk.say(ev.TrialReturned)
    desk.say(ev.SlotLost, slot=0, failure=Failure(origin="process", type="WorkerDied", message=""))
    desk.evaluations.close(cmd.CloseSlot(slot=0))
    assert desk.done(0, acc=1) == []
    assert desk.evaluations.is_idle


def test_a_trainer_says_which_checkpoints_are_validated_and_hears_what_came_of_it() -> None:
    desk, asked = Desk(every=1, is_by_trainer=True), Validation(call=b"call", timeout_s=5.0)
    assert names(desk.report(0)) == ["TrialReported"], "nothing was asked for"
    assert names(desk.store(0)) == ["CheckpointCommitted"]
    assert desk.actions == []
    desk.report(1, validation=asked)
    desk.store(1)
    (start,) = desk.actions
    assert isinstance(start, StartEvaluation)
    assert start.validation is asked
    assert desk.told == []
    assert reported(desk.done(start.evaluation, acc=0.5)) == [(1, ("loss", "acc"), [1, 0.5])]
    desk.report(2, validation=asked)
    desk.store(2)
    desk.failed(1)
    assert len(desk.told) == 1, "it is tried again"
    desk.failed(1)
    assert desk.told == [
        (0, Judged(5, 1, 1, metrics={"acc": 0.5})),
        (0, Judged(5, 1, 2, metrics={}, problem="WorkerDied: signal 9")),
    ]


def test_a_trial_that_is_evaluated_by_the_sweep_hears_nothing_of_it() -> None:
    desk = Desk()
    desk.report(0)
    desk.store(0)
    desk.done(0, acc=0.5)
    assert desk.told == []
