"""`step` when trials are silent: what counts as a sign of life, and what becomes of those without."""

from __future__ import annotations

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.faults import NO_WAIT, kinds, stop_commands
from tests.unit.core.sweep import running, tell
from tests.unit.core.toys import DIED

SILENT = {"report_timeout_s": 60.0, **NO_WAIT}


def test_a_silent_trial_is_killed_and_tried_again() -> None:
    sweep = running(1, failure=SILENT)
    assert sweep.state.clock.timer_at == sweep.at + 60
    sweep.at += 50
    assert sweep.report(0, 0.5) == [], "the timer is left alone: an early one costs less than many"
    sweep.at += 10
    assert sweep.timer(sweep.at) == [cmd.SetTimer(at=sweep.at + 50)]
    commands = sweep.timer(sweep.at + 50)
    assert stop_commands(commands) == [cmd.StopTrial(slot=0, trial=0, attempt=1, reason="hung", grace_s=0.0)]
    sweep.send(ev.TrialStopped, trial=0, attempt=1, where="File x.py, line 3, in wait")
    (attempt,) = sweep.state.trials[0].attempts
    assert (attempt.end, attempt.kind) == ("retried", "hung")
    assert attempt.failure is not None
    assert "no report for 60 s" in attempt.failure.message
    assert "line 3" in attempt.failure.traceback


def test_silence_counts_as_a_workers_death() -> None:
    sweep = running(1, failure={**SILENT, "max_worker_deaths": 1})
    sweep.failed(0, DIED)
    sweep.send(ev.TimerFired)
    sweep.began(0, 2)
    sweep.timer(sweep.at + 60)
    sweep.send(ev.TrialStopped, trial=0, attempt=2, was_killed=True)
    assert sweep.trial_state(0) == "failed"
    assert [kind for _, kind in kinds(sweep, 0)] == ["worker_died", "hung"]


def test_a_trial_that_is_to_leave_its_node_and_is_silent_is_killed_long_before_the_node_goes() -> None:
    """A node may announce hours ahead that it goes, and its clock may differ from the controller's."""
    sweep = running(1, failure=SILENT)
    sweep.at += 10
    sweep.send(ev.NodeDraining, node="node0", deadline=sweep.at + 3600, reason="spot")
    sweep.at += 20
    assert stop_commands(sweep.report(0, 0.5)) == [], "it continues until its checkpoint"
    assert stop_commands(sweep.timer(sweep.at + 59)) == []
    commands = sweep.timer(sweep.at + 1)
    assert stop_commands(commands) == [cmd.StopTrial(slot=0, trial=0, attempt=1, reason="hung", grace_s=0.0)]
    assert stop_commands(sweep.timer(sweep.at + 60)) == [], "once"
    sweep.send(ev.TrialStopped, trial=0, attempt=1, was_killed=True)
    assert [kind for _, kind in kinds(sweep, 0)] == ["hung"]


def test_a_trial_that_is_to_leave_its_node_has_the_time_limit_of_the_node_and_not_its_own() -> None:
    sweep = running(1, failure=SILENT, stop={"trial_time_s": 100.0})
    sweep.send(ev.NodeDraining, node="node0", deadline=sweep.at + 3600, reason="spot")
    for _ in range(4):
        sweep.at += 50
        assert stop_commands(sweep.report(0, 0.5)) == []
    assert stop_commands(sweep.timer(sweep.at + 60)) == [
        cmd.StopTrial(slot=0, trial=0, attempt=1, reason="hung", grace_s=0.0)
    ]


def test_a_trial_that_returns_while_it_is_being_killed_has_completed() -> None:
    sweep = running(1, failure=SILENT)
    sweep.timer(sweep.at + 60)
    sweep.report(0, 0.5)
    assert sweep.returned(0)[0] == tell(0, 0.5, "completed")


def test_a_checkpoint_breaks_the_silence() -> None:
    sweep = running(1, failure=SILENT)
    sweep.report(0, 0.5)
    sweep.at += 59
    sweep.saved(0, 0, report=0)
    assert stop_commands(sweep.timer(sweep.at + 2)) == []
    assert stop_commands(sweep.timer(sweep.at + 58))


def test_a_trial_that_moves_a_checkpoint_is_not_silent() -> None:
    """It could not report if it wanted to: an upload may take longer than any report."""
    sweep = running(1, failure=SILENT)
    sweep.report(0, 0.5)
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    assert stop_commands(sweep.timer(sweep.at + 600)) == []
    assert sweep.state.clock.timer_at is None
    sweep.saved(0, 0, report=0)
    assert sweep.state.clock.timer_at == sweep.at + 60
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    sweep.at += 100
    sweep.send(ev.CheckpointFailed, trial=0, attempt=1, number=1, problem="no space")
    assert stop_commands(sweep.timer(sweep.at + 59)) == []
    assert stop_commands(sweep.timer(sweep.at + 1))


def test_a_trial_that_fetches_its_checkpoint_is_not_silent() -> None:
    sweep = running(1, failure=SILENT)
    sweep.send(ev.TrialBusy, trial=0, attempt=1)
    sweep.send(ev.TrialBusy, trial=0, attempt=7)  # of another attempt
    assert stop_commands(sweep.timer(sweep.at + 600)) == []
    sweep.send(ev.TrialBusy, trial=0, attempt=1, is_over=True)
    assert stop_commands(sweep.timer(sweep.at + 60))


def test_nobody_is_silent_while_the_storage_is() -> None:
    """Reports are held back then, and trials that wait for an answer get none."""
    sweep = running(2, failure=SILENT)
    sweep.at += 59
    sweep.send(ev.StorageStalled)
    assert stop_commands(sweep.timer(sweep.at + 300)) == []
    assert sweep.state.clock.timer_at is None
    sweep.send(ev.StorageStalled, is_over=True)
    assert sweep.state.clock.timer_at == sweep.at + 60
    sweep.at += 1
    sweep.report(0, 0.5)
    (stop,) = stop_commands(sweep.timer(sweep.at + 59))
    assert (stop.trial, stop.reason) == (1, "hung")
    sweep.send(ev.StorageStalled)
    sweep.start(generation=2)
    assert not sweep.state.controller.is_stalled
