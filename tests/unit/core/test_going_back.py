"""A trial whose newest checkpoint is damaged: it resumes from the one before, and the journal says so."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.sweep import Commands, Sweep, running
from tests.unit.core.toys import NODE_DIED


def going_back(**options: Any) -> Sweep:
    """A trial with two checkpoints, after its second and fourth report, whose worker dies; it runs again."""
    sweep = running(1, trials=1, checkpoint={"keep_last": 2, "keep_best": False, **options})
    for number in range(2):
        for value in (0.5, 0.4):
            sweep.report(0, value)
        sweep.saved(0, number, report=2 * number + 1)
    sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    return sweep


def damaged(sweep: Sweep, attempt: int, number: int) -> Commands:
    return sweep.send(
        ev.CheckpointDamaged, trial=0, attempt=attempt, uri=f"mem://0/{number}", problem="its hash is wrong"
    )


def started(commands: Commands) -> cmd.StartTrial:
    (start,) = (command for command in commands if isinstance(command, cmd.StartTrial))
    return start


def test_a_trial_whose_newest_checkpoint_is_damaged_resumes_from_the_one_before() -> None:
    sweep = going_back()
    start = started(sweep.send(ev.SlotOpened, slot=1))
    assert (start.checkpoint, start.iteration, start.has_older) == ("mem://0/1", 4, True)
    sweep.send(ev.TrialStarted, trial=0, attempt=2)
    delete, stop = damaged(sweep, 2, 1)
    assert delete == cmd.DeleteCheckpoint(trial=0, number=1, uri="mem://0/1")
    assert isinstance(stop, cmd.StopTrial)
    assert stop.reason == "damage"
    assert damaged(sweep, 2, 1) == [], "said twice"
    start = started(sweep.stopped(0, attempt=2))
    assert (start.checkpoint, start.iteration, start.has_older) == ("mem://0/0", 2, False)
    trial = sweep.state.trials[0]
    assert [attempt.end for attempt in trial.attempts] == ["lost", "went_back"]
    assert trial.results.iteration == 2
    assert trial.count_failures("user_error", "worker_died") == 0, "it costs the trial nothing"
    (note,) = sweep.state.notes
    what = "checkpoint 1 is damaged (its hash is wrong); it resumed from checkpoint 0, 2 reports earlier"
    assert note == f"trial 0: {what}"


@pytest.mark.parametrize("how", ["stopped", "returned", "failed", "lost"])
def test_it_goes_back_however_the_attempt_ends(how: str) -> None:
    sweep = going_back()
    sweep.send(ev.SlotOpened, slot=1)
    sweep.send(ev.TrialStarted, trial=0, attempt=2)
    damaged(sweep, 2, 1)
    match how:
        case "stopped":
            sweep.stopped(0, attempt=2)
        case "returned":
            sweep.returned(0, attempt=2)
        case "failed":
            sweep.send(ev.TrialFailed, trial=0, attempt=2, failure=Failure(origin="exception"))
        case _:
            sweep.send(ev.SlotLost, slot=1, failure=NODE_DIED)
    trial = sweep.state.trials[0]
    assert trial.attempts[-1].end == "went_back"
    assert trial.checkpoint is not None
    assert trial.checkpoint.number == 0


def test_a_sweep_that_ends_meanwhile_keeps_the_one_before() -> None:
    sweep = going_back()
    sweep.send(ev.SlotOpened, slot=1)
    sweep.send(ev.TrialStarted, trial=0, attempt=2)
    damaged(sweep, 2, 1)
    sweep.send(ev.CancelRequested)
    sweep.stopped(0, attempt=2)
    trial = sweep.state.trials[0]
    assert trial.state == "cancelled"
    assert [checkpoint.number for checkpoint in trial.checkpoints] == [0]


@pytest.mark.parametrize("options", [{"on_damage": "fail"}, {"keep_last": 1}])
def test_without_an_older_one_or_where_it_is_to_fail_nothing_is_offered(options: dict[str, Any]) -> None:
    assert not started(going_back(**options).send(ev.SlotOpened, slot=1)).has_older
