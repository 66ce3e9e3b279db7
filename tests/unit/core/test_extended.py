"""The best trials of an ended sweep continue from their checkpoints."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core import SweepState
from raysweep.core.state.trial_parts import Told
from raysweep.core.views.scores import told
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.limited import until
from tests.unit.core.reopened import KEEPS_ON, asha_sweep, end, open_slots, outcome_of, reopen, starts
from tests.unit.core.sweep import ASHA, Sweep, running


def test_the_best_go_further_from_their_checkpoints() -> None:
    sweep = asha_sweep()
    assert [sweep.trial_state(trial) for trial in range(3)] == ["completed", "completed", "stopped"]
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=1)
    assert sweep.trial_state(1) == "completed", "not before it is known that there are no more configs"
    sweep.suggest(0)
    assert [sweep.trial_state(trial) for trial in range(3)] == ["completed", "pending", "stopped"]
    known = Told(end="completed", value=sweep.state.trials[1].results.last_score)
    assert told(sweep.state, sweep.state.trials[1]) == known, "as the search of this controller has it"
    again = starts(open_slots(sweep, 1))[1]
    assert again.iteration == 4
    sweep.began(1, attempt=2)
    for value in (0.08, 0.05):
        assert sweep.trial_state(1) == "running"
        sweep.report(1, value, attempt=2)
    assert sweep.state.trials[1].stop_reason == "limit"
    sent = sweep.stopped(1, attempt=2)
    assert not [each for each in sent if isinstance(each, cmd.TellSearch)], "it has been told of this one"
    assert sweep.trial_state(1) == "completed"
    assert told(sweep.state, sweep.state.trials[1]) == known, "or a resume would suggest others than this one"
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.best is not None
    assert (outcome.best.number, outcome.best.score, outcome.best.max_t) == (1, 0.05, 6.0)
    # The same words once more: that has been done.
    reopen(sweep, extend_to=6.0, extend_top=1)
    sweep.suggest(0)
    assert sweep.state.phase == "ending"
    assert sweep.trial_state(1) == "completed"


@pytest.mark.parametrize("ended_first", [False, True])
def test_what_was_stored_past_its_end_is_no_place_to_go_further_from(ended_first: bool) -> None:
    """It ran on until the word to end had come: reports of then count for nothing, nor does a checkpoint."""
    sweep = running(1, scheduler=ASHA, checkpoint={"keep_last": 2, "keep_best": False})
    sweep.report(0, 0.4, 0.3, 0.2)
    sweep.saved(0, 0, 1)
    sweep.report(0, 0.1, 0.6, 0.7)
    if ended_first:
        sweep.returned(0)
    assert sweep.saved(0, 1, 3) == [], "where it was to end"
    (gone,) = sweep.saved(0, 2, 5)
    assert isinstance(gone, cmd.DeleteCheckpoint)
    assert gone.number == 2
    if not ended_first:
        sweep.returned(0)
    trial = sweep.state.trials[0]
    assert (trial.results.last_score, trial.results.overrun) == (0.1, 2)
    assert trial.checkpoint is not None
    assert (trial.checkpoint.number, trial.checkpoint.iteration) == (1, 4)
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=1)
    sweep.suggest(0)
    assert starts(open_slots(sweep, 1))[0].iteration == 4


def test_the_only_checkpoint_of_a_trial_is_kept_also_where_it_lies_past_its_end() -> None:
    sweep = running(1, scheduler=ASHA)
    sweep.report(0, 0.4, 0.3, 0.2, 0.1, 0.6)
    assert not [each for each in sweep.saved(0, 0, 4) if isinstance(each, cmd.DeleteCheckpoint)]
    sweep.returned(0)
    assert sweep.state.trials[0].checkpoint is not None


PLATEAU = {"plateau": {"window": 1, "min_improvement": 1.0}}


TARGET = {"target": 0.15}


def searched(stop: dict[str, Any], **started: Any) -> Sweep:
    """One trial at a time of five; the second ends the search: it is no better, or as good as is wanted."""
    sweep = Sweep(num_samples=5, scheduler=ASHA, stop=stop, failure=KEEPS_ON)
    sweep.send(ev.ControllerStarted, generation=1, **started)
    sweep.suggest(5)
    open_slots(sweep, 1)
    for trial, value in ((0, 0.3), (1, 0.1)):
        sweep.began(trial)
        for number in range(4):
            sweep.at += 5.0
            sweep.report(trial, 0.3 if number < 3 else value)
        sweep.saved(trial, 0, 3)
        sweep.stopped(trial)
    return sweep


@pytest.mark.parametrize(("stop", "status"), [(PLATEAU, "plateau"), (TARGET, "target")])
@pytest.mark.parametrize("asked", ["at its start", "at its end"])
def test_a_search_that_ended_by_itself_stays_so_while_its_best_goes_further(
    stop: dict[str, Any], status: str, asked: str
) -> None:
    wanted = {"extend_to": 6.0, "extend_top": 1}
    sweep = searched(stop, **(wanted if asked == "at its start" else {}))
    if asked == "at its end":
        end(sweep)
        ended = outcome_of(sweep.state)
        assert ended.status == status
        reopen(sweep, **wanted)
        sweep.suggest(0)
        open_slots(sweep, 1)
    assert [sweep.trial_state(trial) for trial in range(5)] == ["completed", "queued", *["cancelled"] * 3]
    sweep.began(1, attempt=2)
    for value in (0.08, 0.05):
        assert sweep.trial_state(1) == "running"
        sweep.report(1, value, attempt=2)
    last = sweep.stopped(1, attempt=2)
    assert [each.status for each in last if isinstance(each, cmd.EndSweep)] == [status]
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.ended_by is not None
    assert (outcome.status, outcome.ended_by.rule) == (status, f"stop.{status}")
    assert outcome.best is not None
    assert (outcome.best.score, outcome.best.max_t) == (0.05, 6.0)
    assert outcome.counts == {"cancelled": 3, "completed": 2}
    if asked == "at its end":
        assert outcome.why.partition(";")[0] == ended.why.partition(";")[0]
    again = outcome_of(SweepState.from_json(sweep.state.to_json()))
    assert again == outcome


def test_a_limit_that_cuts_what_goes_further_brings_only_that_back() -> None:
    sweep = searched(PLATEAU | {"time_budget_s": 1000}, extend_to=9.0, extend_top=1)
    sweep.began(1, attempt=2)
    sweep.timer(1200.0)
    sweep.stopped(1, attempt=2)
    end(sweep)
    assert sweep.state.end.status == "budget"
    reopen(sweep)
    spec = sweep.state.spec.replace(stop=PLATEAU | {"time_budget_s": 9000}).to_dict()
    sweep.send(ev.SpecChanged, spec=spec, changes=("stop.time_budget_s: 1000 -> 9000",))
    sweep.suggest(0)
    open_slots(sweep, 1)
    assert [sweep.trial_state(trial) for trial in range(5)] == ["completed", "queued", *["cancelled"] * 3]


@pytest.mark.parametrize("stop", [{"time_budget_s": 10}, until(110)], ids=["budget", "deadline"])
def test_a_limit_that_comes_before_is_noted(stop: dict[str, Any]) -> None:
    sweep = Sweep(num_samples=2, stop=stop)
    sweep.send(ev.ControllerStarted, generation=1, extend_to=8.0, extend_top=1)
    sweep.suggest(2)
    open_slots(sweep, 1)
    sweep.began(0)
    sweep.timer(110.0)
    sweep.stopped(0)
    assert "extend: no trial has gone further, as the sweep was ended by" in sweep.state.notes[-1]


def test_a_plateau_at_the_last_trial_is_no_end_of_the_search() -> None:
    sweep = Sweep(num_samples=2, scheduler=ASHA, stop=PLATEAU)
    sweep.send(ev.ControllerStarted, generation=1, extend_to=6.0, extend_top=1)
    sweep.suggest(2)
    open_slots(sweep, 1)
    for trial in (0, 1):
        sweep.began(trial)
        sweep.report(trial, 0.5, 0.5, 0.5, 0.5)
        sweep.saved(trial, 0, 3)
        sweep.stopped(trial)
    assert [sweep.trial_state(trial) for trial in (0, 1)] == ["queued", "completed"]
    sweep.began(0, attempt=2)
    sweep.report(0, 0.5, 0.5, attempt=2)
    sweep.stopped(0, attempt=2)
    assert sweep.state.end.status == "completed"


def test_it_can_be_asked_for_from_the_start() -> None:
    sweep = Sweep(num_samples=1, scheduler=ASHA)
    sweep.send(ev.ControllerStarted, generation=1, extend_to=8.0, extend_trials=(0,))
    sweep.suggest(1)
    open_slots(sweep, 1)
    sweep.began(0)
    for _ in range(4):
        sweep.report(0, 0.5)
    sweep.saved(0, sweep.state.trials[0].results.next_checkpoint, 3)
    commands = sweep.stopped(0)
    assert sweep.state.phase == "running"
    assert starts(commands)[0].iteration == 4, "its slot takes it at once"


def test_what_fails_where_it_was_to_go_further_keeps_what_it_had() -> None:
    sweep = asha_sweep()
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_trials=(1,))
    sweep.suggest(0)
    open_slots(sweep, 1)
    sweep.began(1, attempt=2)
    sweep.failed(1, attempt=2)
    assert sweep.trial_state(1) == "completed"
    assert any("failed where it was to go further" in note for note in sweep.state.notes)
    end(sweep)
    outcome = outcome_of(sweep.state)
    assert outcome.status == "completed"
    assert outcome.best is not None
    assert outcome.best.score == 0.1
    assert outcome.best.attempts[-1].end == "failed"


def test_without_a_checkpoint_nothing_goes_further_and_a_note_says_so() -> None:
    sweep = running(1)
    sweep.report(0, 0.5)
    sweep.returned(0)
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=3)
    sweep.suggest(0)
    assert sweep.state.phase == "ending"
    assert any("no trial has a checkpoint" in note for note in sweep.state.notes)


def test_where_the_sweep_fails_first_it_is_done_after_the_retry() -> None:
    sweep = running(1, failure=KEEPS_ON, scheduler=ASHA)
    sweep.failed(0)
    end(sweep)
    reopen(sweep, extend_to=6.0, extend_top=1)
    sweep.suggest(0)
    end(sweep)
    assert (sweep.state.end.status, sweep.state.notes) == ("failed", ())
    reopen(sweep, retried=(0,))
    open_slots(sweep, 1)
    sweep.suggest(0)
    sweep.began(0, attempt=2)
    for _ in range(4):
        sweep.report(0, 0.5, attempt=2)
    sweep.saved(0, sweep.state.trials[0].results.next_checkpoint, 3, attempt=2)
    sweep.stopped(0, attempt=2)
    assert sweep.state.trials[0].continued.max_t == 6.0
    assert sweep.state.phase == "running"


def test_a_sweep_whose_search_found_no_config_ends_again_when_it_is_extended() -> None:
    sweep = Sweep(num_samples=1)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.suggest(0)
    end(sweep)
    reopen(sweep, extend_to=2.0, extend_top=2)
    sweep.suggest(0)
    assert (sweep.state.phase, sweep.state.end.status) == ("ending", "completed")
    assert list(sweep.state.notes) == ["no trial has a checkpoint from which it could go further"]
