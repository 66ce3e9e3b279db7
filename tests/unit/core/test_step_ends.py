"""`step` towards a sweep's end, and in interrupts, crashes and resumes: the whole list of commands."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.handlers.assignment import CHECKPOINTS_AN_ATTEMPT
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import ASHA, Sweep, asha_with_a_loser, running, start_trial, stop_trial, tell
from tests.unit.core.toys import DIED, make_spec

# -- the sweep's end --------------------------------------------------------------------------------


def test_the_target() -> None:
    """The trial that reached it completes; the others are cut, queued and pending ones as well."""
    sweep = running(2, trials=9, stop={"target": 0.1})
    assert sweep.report(0, 0.5) == []
    assert sweep.report(0, 0.05, 0.01) == [stop_trial(0, 0, "limit"), stop_trial(1, 1, "sweep")]
    assert sweep.stopped(0) == [tell(0, 0.05, "completed")]
    why = "trial 0 reached the target 0.1"
    assert sweep.stopped(1) == [cmd.EndSweep(status="target", why=why)]
    assert sweep.state.line.counts["cancelled"] == 8


def test_a_target_in_max_mode() -> None:
    sweep = running(1, mode="max", stop={"target": 0.9})
    assert sweep.report(0, 0.89) == []
    assert sweep.report(0, 0.9) == [stop_trial(0, 0, "limit")]


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduler": {"asha": {"max_t": 2, "grace_period": 1, "reduction_factor": 2}}},
        {"stop": {"target": 0.1, "trial": {"training_iteration": 2}}},
    ],
)
def test_a_target_that_comes_with_the_last_report(fields: dict[str, Any]) -> None:
    """Under ASHA the usual case: the best report is the last one, at max_t."""
    sweep = Sweep(num_samples=9, **{"stop": {"target": 0.1}, **fields})
    sweep.start()
    sweep.suggest(9)
    sweep.send(ev.CapacityChanged, slots=1)
    sweep.send(ev.SlotOpened, slot=0)
    sweep.began(0)
    assert sweep.report(0, 0.5) == []
    assert sweep.report(0, 0.05) == [stop_trial(0, 0, "limit")]
    sweep.stopped(0)
    assert sweep.trial_state(0) == "completed"
    assert sweep.state.end.status == "target"
    assert sweep.state.end.by == {"rule": "stop.target", "limit": 0.1, "value": 0.05, "trial": 0}


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
    assert sweep.state.ranking.best_ended == 1, "what a cancelled trial reported counts"


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
    assert (sweep.state.trials[0].results.overrun, sweep.state.trials[0].results.last_score) == (0, 0.4)
    assert sweep.send(ev.CapacityChanged, slots=1) == [cmd.OpenSlot(slot=2)]
    resumed = {"checkpoint": "mem://0/0", "iteration": 2, "next_checkpoint": 1_001 * CHECKPOINTS_AN_ATTEMPT}
    assert sweep.send(ev.SlotOpened, slot=2) == [start_trial(2, 0, attempt=2, **resumed)]


def test_a_verdict_on_a_report_that_crosses_an_interrupt_stands() -> None:
    sweep = asha_with_a_loser()
    sweep.send(ev.InterruptRequested)
    assert sweep.report(1, 0.9, 0.8) == []
    assert sweep.stopped(1) == [tell(1, 0.9, "stopped")]
    assert sweep.state.trials[1].results.overrun == 1


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
    due = sweep.state.line.waiting[2]
    sweep.at += 0.25
    assert sweep.start(generation=2) == [tell(1, 0.9, "stopped"), cmd.SetTimer(at=due)]
    states = [sweep.trial_state(number) for number in range(4)]
    assert states == ["pending", "stopped", "waiting", "pending"]
    assert list(sweep.state.line.pending) == [0, 3, 4, 5, 6, 7, 8]
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
    assert list(sweep.state.line.pending) == [0, 1, 2, 3]


@pytest.mark.parametrize("how", ["stopped", "returned"])
def test_a_trial_cut_at_its_time_before_its_first_report_says_so(how: str) -> None:
    """The report that crossed the cut on the wire counts for nothing; the metric has the right name."""
    sweep = running(1, trials=2, stop={"trial_time_s": 5.0})
    sweep.timer(sweep.at + 5)
    sweep.report(0, 0.5)
    sweep.stopped(0) if how == "stopped" else sweep.returned(0)
    (attempt,) = sweep.state.trials[0].attempts
    assert attempt.failure is not None
    assert attempt.failure.type == "TrialTimeLimit"
    assert "within stop.trial_time_s=5" in attempt.failure.message
    assert sweep.state.phase == "running", "the sweep continues with the other trial"
