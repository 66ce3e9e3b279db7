"""`step`: for the main ways of a sweep, the whole list of commands after each event."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raysweep.core import make_outcome
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import (
    ASHA,
    Commands,
    Sweep,
    asha_with_a_loser,
    running,
    start_trial,
    stop_trial,
    tell,
)
from tests.unit.core.toys import DIED, NODE_DIED

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
    assert sweep.state.ranking.best_ended == 1


def test_equal_scores_rank_by_number() -> None:
    """Whichever ends first."""
    sweep = running(2)
    sweep.report(1, 0.5)
    sweep.returned(1)
    sweep.report(0, 0.5)
    sweep.returned(0)
    assert sweep.state.ranking.best_ended == 0


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


def test_asha_stops_in_the_middle_of_a_batch() -> None:
    """What the batch holds past the decision is overrun: counted, and used for nothing."""
    sweep = asha_with_a_loser()
    assert sweep.report(1, 0.9, 0.05, 0.04) == [stop_trial(1, 1, "scheduler")]
    assert sweep.report(1, 0.01) == []
    trial = sweep.state.trials[1]
    assert (
        trial.results.reports,
        trial.results.overrun,
        trial.results.iteration,
        trial.results.last_score,
    ) == (4, 3, 1, 0.9)
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
    assert sweep.state.end.status == "completed"


def test_user_code_that_stops_itself_has_returned() -> None:
    sweep = running(1, trials=1)
    sweep.report(0, 0.5)
    assert sweep.stopped(0)[0] == tell(0, 0.5, "completed")


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


def test_what_a_worker_notes_is_said_and_changes_nothing() -> None:
    sweep = running(1)
    for _ in range(2):
        assert sweep.send(ev.TrialNoted, trial=0, attempt=1, text="no place") == []
    sweep.send(ev.TrialNoted, trial=7, attempt=1, text="of a trial that is not there")
    assert sweep.state.notes == ("trial 0: no place",)


def test_what_a_worker_counts_is_noted_once_with_the_highest_count() -> None:
    sweep = running(1)
    sweep.send(ev.TrialNoted, trial=0, attempt=1, text="no place")
    for count in (1, 8, 2):
        sweep.send(ev.TrialNoted, trial=0, attempt=1, text="stray calls", count=count)
    assert sweep.state.notes == ("trial 0: no place", "trial 0: stray calls (8 times)")


def test_a_note_that_ends_like_another_is_another() -> None:
    sweep = running(2)
    sweep.send(ev.TrialNoted, trial=0, attempt=1, text="of Ray: no place", is_shared=True)
    sweep.send(ev.TrialNoted, trial=1, attempt=1, text="no place", is_shared=True)
    sweep.send(ev.TrialNoted, trial=0, attempt=1, text="no place", is_shared=True)
    sweep.send(ev.TrialNoted, trial=0, attempt=1, text="stray calls (many of them)", count=3)
    sweep.send(ev.TrialNoted, trial=0, attempt=1, text="stray calls", count=2)
    assert sweep.state.notes == (
        "trial 0: of Ray: no place",
        "trial 1: no place",
        "trial 0: stray calls (many of them) (3 times)",
        "trial 0: stray calls (2 times)",
    )


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
    assert (sweep.state.trials[0].results.reports, sweep.state.trials[0].results.last_score) == (3, 0.3)
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
