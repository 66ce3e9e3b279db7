"""Verdicts of a scheduler on trials in any state, and the checkpoints that they keep."""

from __future__ import annotations

import orjson
import pytest

from raysweep.core import SweepState
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.schedulers import (
    NOTHING,
    Exploit,
    Pause,
    Resume,
    Stop,
    Verdict,
)
from tests.unit.core.scheduled import OTHER, Scheduled, asha_of, deleted, exploiting, started
from tests.unit.core.sweep import stop_trial, tell
from tests.unit.core.toys import DIED, NODE_DIED


def test_a_paused_trial_gives_its_slot_to_the_next_and_goes_on_from_its_checkpoint() -> None:
    it = Scheduled(1, 3)
    it.sweep.report(0, 0.9)
    it.sweep.saved(0, 0, report=0)
    assert it.decide(0, (0, Pause())) == [stop_trial(0, 0, "pause")]
    (start,) = started(it.sweep.stopped(0))
    assert (start.trial, it.sweep.trial_state(0), it.of(0).slot) == (1, "paused", None)
    it.sweep.began(1)
    it.decide(1, (0, Resume()))
    assert it.sweep.trial_state(0) == "pending"
    start = started(it.sweep.returned(1))[0]
    assert (start.trial, start.attempt, start.checkpoint, start.iteration) == (0, 2, "mem://0/0", 1)
    assert it.of(0).attempts[0].end == "paused"


def test_what_comes_after_a_pause_does_not_count() -> None:
    """Neither reports nor checkpoints: the trial makes them again."""
    it = Scheduled(1)
    it.sweep.report(0, 0.9)
    it.decide(0, (0, Pause()))
    assert deleted(it.sweep.saved(0, 0, report=1)) == []
    assert deleted(it.sweep.saved(0, 1, report=2)) == ["mem://0/1"]
    it.sweep.report(0, 0.1, 0.2)
    assert (it.of(0).results.last_score, it.of(0).results.overrun, len(it.scheduler.told)) == (0.5, 2, 2)
    it.scheduler.on_idle = [(0, Resume())]
    (start,) = started(it.sweep.stopped(0))
    assert (start.checkpoint, start.iteration) == ("mem://0/0", 2)
    assert deleted(it.sweep.saved(0, 2, report=3)) == ["mem://0/2"]  # late, of the attempt before


def test_a_verdict_within_a_batch_leaves_the_rest_of_it_out() -> None:
    it = Scheduled(1)
    it.scheduler.says = [(0, Pause())]
    it.sweep.report(0, 0.9, 0.1, 0.2)
    assert (it.of(0).results.iteration, it.of(0).results.overrun, it.of(0).results.best_score) == (1, 2, 0.9)


def test_a_pause_stands_where_the_return_crosses_it() -> None:
    it = Scheduled(1)
    it.decide(0, (0, Pause()))
    it.scheduler.on_idle = [(0, Resume())]
    assert [start.attempt for start in started(it.sweep.returned(0))] == [2]


@pytest.mark.parametrize("how", ["lost", "failed", "orphaned"])
def test_a_trial_that_is_lost_while_it_pauses_is_paused_and_not_charged(how: str) -> None:
    it = Scheduled(2)
    it.decide(0, (0, Pause()))
    if how == "lost":
        it.sweep.send(ev.SlotLost, slot=0, failure=NODE_DIED)
    elif how == "failed":
        it.sweep.failed(0, DIED)
    else:
        it.sweep.start(generation=2)
    assert it.sweep.trial_state(0) == "paused"
    assert it.of(0).attempts[0].kind is None


def test_a_resume_that_comes_before_the_pause_is_over_is_not_lost() -> None:
    it = Scheduled(2)
    it.decide(0, (0, Pause()))
    assert it.decide(1, (0, Resume(OTHER))) == []
    (start,) = started(it.sweep.stopped(0))
    assert (start.trial, start.config, it.sweep.trial_state(0)) == (0, OTHER, "queued")
    assert (it.of(0).attempts[0].end, it.of(0).attempts[0].config) == ("resumed", {"x": 0.0})


def test_results_are_those_of_the_present_config() -> None:
    """What an earlier one scored is not shown beside another; its searcher learns nothing."""
    it = Scheduled(2)
    it.pause(0)
    assert it.of(0).results.last_score == 0.5
    it.decide(1, (0, Resume(it.of(0).config)))
    assert (it.of(0).results.last_score, it.of(0).ancestry.suggested) == (0.5, None)
    it.sweep.began(0, 2)
    it.decide(0, (0, Exploit(0, OTHER)), attempt=2)
    it.sweep.stopped(0, 2)
    assert (it.of(0).results.last_score, it.of(0).results.best, it.of(0).ancestry.suggested) == (
        None,
        {},
        {"x": 0.0},
    )
    it.sweep.began(0, 3)
    it.sweep.report(0, 0.7, attempt=3)
    assert it.of(0).results.best_score == 0.7
    assert tell(0, None, "completed") in it.sweep.returned(0, 3)


def test_the_order_of_the_ways_out_of_a_pause_when_nothing_else_can_run() -> None:
    """The scheduler is asked once nothing else runs; what it does not resume then is stopped."""
    it = Scheduled(2)
    it.pause(0)
    assert ("idle", 0) not in it.scheduler.told
    it.scheduler.on_idle = [(1, Resume())]
    it.pause(1)
    assert ("idle", 0, 1) in it.scheduler.told
    assert (it.sweep.trial_state(0), it.sweep.trial_state(1)) == ("paused", "queued")
    it.scheduler.on_idle = NOTHING
    it.sweep.began(1, 2)
    commands = it.sweep.returned(1, 2)
    assert tell(0, 0.5, "stopped") in commands
    assert it.state.end.status == "completed"
    assert dict(it.state.line.counts) | {"stopped": 1, "completed": 1} == it.state.line.counts


def test_slots_wait_for_the_paused() -> None:
    """At a barrier, where nobody knows yet who continues, no worker is thrown away."""
    it = Scheduled(3)
    it.pause(0)
    it.pause(1)
    assert len(it.state.slots) == 3


def test_stopped_trials_make_others_go_on() -> None:
    it = Scheduled(3)
    it.pause(0)
    it.pause(1)
    it.scheduler.says = [(0, Stop()), (1, Resume())]
    it.sweep.returned(2)
    assert (it.sweep.trial_state(0), it.sweep.trial_state(1)) == ("stopped", "queued")
    assert it.of(0).ended_at is not None


# -- any state ----------------------------------------------------------------------------------------------


VERDICTS: list[tuple[Verdict, str]] = [
    (Stop(), "stopped"),
    (Pause(), "paused"),
    (Exploit(0, OTHER), "pending"),
]


@pytest.mark.parametrize(("verdict", "after"), VERDICTS)
def test_pending_and_waiting_trials_are_moved_at_once(verdict: Verdict, after: str) -> None:
    it = Scheduled(2, 4)
    it.sweep.failed(1, DIED)
    assert (it.sweep.trial_state(1), it.sweep.trial_state(3)) == ("waiting", "pending")
    it.decide(0, (1, verdict), (3, verdict))
    assert (it.sweep.trial_state(1), it.sweep.trial_state(3)) == (after, after)
    assert not it.state.line.waiting
    assert (it.of(1).config == OTHER) == (it.of(3).config == OTHER) == (after == "pending")
    it.sweep.timer(10_000.0)


@pytest.mark.parametrize("how", ["began", "lost", "failed", "recalled"])
@pytest.mark.parametrize(("verdict", "after"), VERDICTS)
def test_a_queued_trial_is_moved_when_it_begins_or_comes_back(verdict: Verdict, after: str, how: str) -> None:
    it = Scheduled(2, 3)
    it.complete(1)
    assert it.sweep.trial_state(2) == "queued"
    assert it.decide(0, (2, verdict)) == []
    if how == "began":
        (stop,) = it.sweep.began(2)
        assert isinstance(stop, cmd.StopTrial)
        it.sweep.stopped(2)
    elif how == "lost":
        it.sweep.send(ev.SlotLost, slot=1, failure=DIED, was_handed=False)
    elif how == "failed":
        it.sweep.failed(2, DIED)
    else:
        it.sweep.send(ev.NodeDraining, node="node1")
        it.sweep.send(ev.TrialsRecalled, slot=1, trials=(2,))
    state = it.sweep.trial_state(2)
    assert state == after or (after == "pending" and state == "queued")
    assert (it.of(2).config == OTHER) == (after == "pending")


def test_a_pause_of_a_queued_trial_can_be_taken_back() -> None:
    it = Scheduled(2, 3)
    it.complete(1)
    it.decide(0, (2, Pause()), (2, Resume()))
    assert it.sweep.began(2) == []
    it = Scheduled(2, 3)
    it.complete(1)
    it.decide(0, (2, Pause()), (2, Resume(OTHER)))
    it.sweep.began(2)
    assert [start.config for start in started(it.sweep.stopped(2))] == [OTHER]


def test_the_last_word_counts() -> None:
    it = Scheduled(2)
    it.decide(0, (1, Exploit(0, OTHER)))
    it.decide(0, (1, Pause()))
    it.decide(0, (1, Stop()))
    it.decide(0, (1, Pause()), (1, Resume()), (1, Exploit(0, OTHER)))
    it.sweep.stopped(1)
    assert it.sweep.trial_state(1) == "stopped"


def test_a_trial_that_is_to_move_to_another_node_is_paused_instead() -> None:
    it = Scheduled(2)
    it.sweep.send(ev.NodeDraining, node="node1", deadline=1000.0)
    (again,) = it.decide(0, (1, Pause()))
    assert again == stop_trial(1, 1, "pause")
    it.sweep.stopped(1)
    assert it.sweep.trial_state(1) == "paused"


def test_what_has_ended_and_what_there_is_not_is_passed_over() -> None:
    it = Scheduled(2)
    it.complete(1)
    before = it.sweep.trial_state(1)
    assert it.decide(0, (1, Stop()), (1, Exploit(0, OTHER)), (0, Resume()), (77, Stop())) == []
    assert it.sweep.trial_state(1) == before == "completed"
    assert "trial 77, which there is not" in it.state.notes[-1]


def test_limits_come_before_verdicts() -> None:
    it = Scheduled(1, stop={"trial": {"training_iteration": 1}})
    assert it.decide(0, (0, Pause())) == [stop_trial(0, 0, "limit")]


# -- the sweep's end ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("verdict", [Pause(), Exploit(0, OTHER)])
def test_paused_and_pausing_trials_end_with_the_sweep(verdict: Verdict) -> None:
    it = Scheduled(3)
    it.pause(0)
    it.sweep.report(1, 0.9)
    it.sweep.saved(1, 0, report=0)
    it.decide(1, (1, verdict))
    it.sweep.send(ev.CancelRequested)
    assert it.sweep.trial_state(0) == "cancelled"
    it.sweep.stopped(1)
    it.sweep.stopped(2)
    assert [it.sweep.trial_state(trial) for trial in range(3)] == ["cancelled"] * 3
    assert (it.of(1).config, it.of(1).checkpoint.uri) == ({"x": 0.1}, "mem://1/0")


def test_a_pause_outlives_the_controller() -> None:
    it = Scheduled(2)
    it.pause(0)
    it.decide(1, (1, Pause()))
    it.sweep.send(ev.InterruptRequested)
    it.scheduler.on_idle = [(1, Resume())]
    assert it.sweep.stopped(1) == [cmd.LeaveSweep(why="interrupted")]
    assert [it.sweep.trial_state(trial) for trial in range(2)] == ["paused"] * 2
    it.sweep.start(generation=2)
    assert [it.sweep.trial_state(trial) for trial in range(2)] == ["paused", "pending"]


def test_a_snapshot_holds_what_was_decided() -> None:
    it = exploiting()
    it.sweep.saved(0, 1, report=0)
    plain = it.state.to_json()
    copy = SweepState.from_json(orjson.loads(orjson.dumps(plain)) | {"scheduler": asha_of(plain)})
    assert copy.trials[1].turn == it.of(1).turn
    assert copy.tally.pins == it.state.tally.pins == {"mem://0/0": 1}
