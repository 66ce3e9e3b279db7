"""Verdicts on any trial, in whatever state, and what becomes of its checkpoints."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from typing import Any

import orjson
import pytest

from raysweep.core import SweepState, make_outcome
from raysweep.core.handlers.sweep_end import BEHAVIOUR
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.errors import RaysweepError
from raysweep.schedulers import (
    NOTHING,
    Decisions,
    Exploit,
    FifoScheduler,
    Pause,
    Resize,
    Resume,
    Stop,
    Verdict,
)
from tests.unit.core.sweep import Commands, Sweep, running, stop_trial, tell
from tests.unit.core.world import DIED, METRIC, NODE_DIED

LATE = {"asha": {"max_t": 1000, "grace_period": 999}}
OTHER = {"x": 0.5}


class Scripted(FifoScheduler):
    """Decides what the test has put into `says`, once, and `on_idle`; notes what it is told."""

    moves = frozenset({"stop", "pause", "exploit"})  # type: ignore[assignment]

    def __init__(self) -> None:
        self.says: Decisions = NOTHING
        self.on_idle: Decisions = NOTHING
        self.told: list[tuple[Any, ...]] = []

    def report(self, trial: int, time: float, value: float) -> Decisions:
        self.told.append((trial, time, value))
        said, self.says = self.says, NOTHING
        return said

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        said, self.says = self.says, NOTHING
        return said

    def remove(self, trial: int) -> Decisions:
        return self.end(trial, None, None)

    def idle(self, paused: Sequence[int]) -> Decisions:
        self.told.append(("idle", *paused))
        return self.on_idle


class Scheduled:
    """A sweep whose scheduler says what the test wants, at a report of a trial."""

    def __init__(self, slots: int, trials: int | None = None, **fields: Any) -> None:
        self.sweep = running(slots, trials, scheduler=LATE, **fields)
        self.state = self.sweep.state
        self.scheduler = self.state.scheduler = Scripted()

    def decide(self, reporter: int, *decisions: tuple[int, Verdict], **fields: Any) -> Commands:
        self.scheduler.says = decisions
        return self.sweep.report(reporter, 0.5, **fields)

    def pause(self, trial: int) -> Commands:
        """Pause a running trial, after one report."""
        attempt = self.state.trials[trial].attempt
        self.decide(trial, (trial, Pause()), attempt=attempt)
        return self.sweep.stopped(trial, attempt)

    def complete(self, trial: int) -> Commands:
        self.sweep.report(trial, 0.5)
        return self.sweep.returned(trial)

    def of(self, trial: int) -> Any:
        return self.state.trials[trial]


def deleted(commands: Commands) -> list[str]:
    return [command.uri for command in commands if isinstance(command, cmd.DeleteCheckpoint)]


def started(commands: Commands) -> list[cmd.StartTrial]:
    return [command for command in commands if isinstance(command, cmd.StartTrial)]


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
    assert (it.of(0).last_score, it.of(0).overrun, len(it.scheduler.told)) == (0.5, 2, 2)
    it.scheduler.on_idle = [(0, Resume())]
    (start,) = started(it.sweep.stopped(0))
    assert (start.checkpoint, start.iteration) == ("mem://0/0", 2)
    assert deleted(it.sweep.saved(0, 2, report=3)) == ["mem://0/2"]  # late, of the attempt before


def test_a_verdict_within_a_batch_leaves_the_rest_of_it_out() -> None:
    it = Scheduled(1)
    it.scheduler.says = [(0, Pause())]
    it.sweep.report(0, 0.9, 0.1, 0.2)
    assert (it.of(0).iteration, it.of(0).overrun, it.of(0).best_score) == (1, 2, 0.9)


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
    assert it.of(0).last_score == 0.5
    it.decide(1, (0, Resume(it.of(0).config)))
    assert (it.of(0).last_score, it.of(0).suggested) == (0.5, None)
    it.sweep.began(0, 2)
    it.decide(0, (0, Exploit(0, OTHER)), attempt=2)
    it.sweep.stopped(0, 2)
    assert (it.of(0).last_score, it.of(0).best, it.of(0).suggested) == (None, {}, {"x": 0.0})
    it.sweep.began(0, 3)
    it.sweep.report(0, 0.7, attempt=3)
    assert it.of(0).best_score == 0.7
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
    assert it.state.status == "completed"
    assert dict(it.state.counts) | {"stopped": 1, "completed": 1} == it.state.counts


def test_slots_wait_for_the_paused() -> None:
    """At a barrier, where nobody knows yet who goes on, no worker is thrown away."""
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


# -- exploit ------------------------------------------------------------------------------------------------


def exploiting(**fields: Any) -> Scheduled:
    """Trial 1 has been sent to the checkpoint of trial 0, and has not come off its slot yet."""
    it = Scheduled(2, **fields)
    for trial in (0, 1):
        it.sweep.report(trial, 0.9)
        it.sweep.saved(trial, 0, report=0)
    assert it.decide(1, (1, Exploit(0, OTHER))) == [stop_trial(1, 1, "exploit")]
    return it


def test_an_exploiter_goes_on_from_the_donors_checkpoint_with_the_new_config() -> None:
    it = exploiting()
    commands = it.sweep.stopped(1)
    assert deleted(commands) == ["mem://1/0"]
    (start,) = started(commands)
    assert (start.trial, start.checkpoint, start.iteration) == (1, "mem://0/0", 1)
    assert start.config == OTHER
    (attempt,) = it.of(1).attempts
    assert (attempt.end, attempt.donor, attempt.config) == ("exploited", 0, {"x": 0.1})
    assert deleted(it.sweep.saved(1, 1, report=1)) == ["mem://1/1"]  # late, of the attempt before


def test_the_donors_checkpoint_is_kept_until_the_exploiter_has_its_own() -> None:
    it = exploiting()
    it.sweep.report(0, 0.4)
    assert deleted(it.sweep.saved(0, 1, report=1)) == []  # pinned since the verdict
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    it.sweep.send(ev.SlotLost, slot=1, failure=NODE_DIED)
    (number,) = [number for number, slot in it.state.slots.items() if not slot.is_open]
    (start,) = started(it.sweep.send(ev.SlotOpened, slot=number, node="node9"))
    assert start.checkpoint == "mem://0/0"
    it.sweep.began(1, 3)
    it.sweep.report(1, 0.3, attempt=3)
    commands = it.sweep.saved(1, start.next_checkpoint, report=0, attempt=3)
    assert commands == [cmd.DeleteCheckpoint(trial=0, number=0, uri="mem://0/0")]
    assert it.of(1).origin is None


def test_a_donation_can_be_handed_on() -> None:
    """An exploiter that has made no checkpoint yet hands on the one that it got; each of them keeps it."""
    it = exploiting()
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    it.sweep.report(0, 0.4)
    it.sweep.saved(0, 1, report=1)
    it.decide(0, (0, Exploit(1, {"x": 0.9})))
    assert deleted(it.sweep.stopped(0)) == ["mem://0/1"]
    assert (it.of(0).origin.uri, it.of(0).attempts[0].donor) == ("mem://0/0", 1)
    it.sweep.report(1, 0.3, attempt=2)
    assert deleted(it.sweep.saved(1, 10**9, report=0, attempt=2)) == []  # trial 0 still needs its own old one
    it.sweep.began(0, 2)
    it.sweep.report(0, 0.3, attempt=2)
    assert deleted(it.sweep.saved(0, 10**9, report=0, attempt=2)) == ["mem://0/0"]


def test_a_late_message_of_the_donor_does_not_delete_what_was_handed_on() -> None:
    it = exploiting()
    it.sweep.failed(0, DIED)
    it.sweep.timer(it.of(0).due_at)
    it.decide(1)
    it.sweep.began(0, 2)
    it.sweep.report(0, 0.4, attempt=2)
    assert deleted(it.sweep.saved(0, 10**9, report=0, attempt=2)) == []
    assert deleted(it.sweep.saved(0, 0, report=0)) == []


def lineage(it: Scheduled, trial: int) -> list[tuple[int, Any]]:
    return [(start, config["x"]) for start, config in it.of(trial).lineage]


def test_the_lineage_of_a_trial_goes_through_donors_that_were_replaced_themselves() -> None:
    """0 hands on to 1, that to 2, that to 0 again, each after reports and a checkpoint of its own."""
    it = Scheduled(3)
    attempts = [1, 1, 1]

    def train(trial: int, reports: int) -> None:
        attempt = attempts[trial]
        if it.of(trial).state == "queued":
            it.sweep.began(trial, attempt)
        it.sweep.report(trial, *[0.9] * reports, attempt=attempt)
        number = it.of(trial).next_checkpoint
        it.sweep.saved(trial, number, report=it.of(trial).attempt_reports - 1, attempt=attempt)

    def exploit(trial: int, donor: int, x: float) -> None:
        it.decide(trial, (trial, Exploit(donor, {"x": x})), attempt=attempts[trial])
        it.sweep.stopped(trial, attempts[trial])
        attempts[trial] += 1

    for trial in range(3):
        train(trial, 2)
    exploit(1, 0, 0.5)
    train(1, 3)
    assert lineage(it, 1) == [(0, 0.0), (2, 0.5)]
    exploit(2, 1, 0.6)
    exploit(1, 1, 0.7)  # what the donor becomes later is nothing to those that have its checkpoint
    train(2, 1)
    train(1, 1)
    exploit(0, 2, 0.8)
    train(0, 4)
    assert lineage(it, 0) == [(0, 0.0), (2, 0.5), (5, 0.6), (6, 0.8)]
    assert lineage(it, 1) == [(0, 0.0), (2, 0.5), (5, 0.7)]
    for trial in range(3):
        it.sweep.returned(trial, attempts[trial])
    it.sweep.send(ev.SweepEnded)
    outcome = make_outcome(it.state, sweep_id="s", key="k", uri="u", version="0")
    shown = [(each.start, each.config["x"]) for each in outcome.trials[0].schedule]
    assert shown == [(0, 0.0), (2, 0.5), (5, 0.6), (6, 0.8)]
    assert outcome.trials[0].model_dump()["schedule"][1] == {"from": 2, "config": {"x": 0.5}}
    assert type(outcome).from_json(outcome.to_json()) == outcome


def test_what_becomes_of_a_donor_between_verdict_and_restart_is_not_in_the_lineage() -> None:
    it = exploiting()  # trial 1 was sent to what trial 0 had after one report, and has not come off yet
    it.decide(0, (0, Exploit(1, {"x": 0.9})))
    it.sweep.stopped(0)
    it.sweep.began(0, 2)
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    assert lineage(it, 0) == [(0, 0.1), (1, 0.9)]
    assert lineage(it, 1) == [(0, 0.0), (1, 0.5)]


def test_a_retry_from_before_a_change_of_config_takes_the_new_one_from_there() -> None:
    it = Scheduled(1)
    it.sweep.report(0, 0.9, 0.9)
    it.sweep.saved(0, 0, report=0)
    it.decide(0, (0, Exploit(0, OTHER)))
    it.sweep.stopped(0)
    it.sweep.began(0, 2)
    assert lineage(it, 0) == [(0, 0.0), (1, 0.5)]
    it.sweep.failed(0, DIED, attempt=2)
    it.sweep.timer(it.of(0).due_at)
    it.sweep.began(0, 3)
    assert lineage(it, 0) == [(0, 0.0), (1, 0.5)], "once, however often it begins"
    it.sweep.report(0, 0.9, attempt=3)
    it.sweep.saved(0, 2 * 10**9, report=0, attempt=3)
    it.sweep.failed(0, DIED, attempt=3)
    it.sweep.timer(it.of(0).due_at)
    it.sweep.began(0, 4)
    assert (it.of(0).attempt_iteration, lineage(it, 0)) == (2, [(0, 0.0), (1, 0.5)])


def test_what_a_donor_has_begun_since_its_checkpoint_is_not_handed_on() -> None:
    it = Scheduled(2)
    it.sweep.report(0, 0.9)
    it.sweep.saved(0, 0, report=0)
    it.decide(0, (0, Exploit(0, OTHER)))
    it.sweep.stopped(0)
    it.sweep.began(0, 2)
    assert lineage(it, 0) == [(0, 0.0), (1, 0.5)]
    it.decide(1, (1, Exploit(0, {"x": 0.9})))
    it.sweep.stopped(1)
    assert lineage(it, 1) == [(0, 0.0)]


def test_a_trial_with_one_config_has_no_schedule_and_is_written_as_before() -> None:
    it = Scheduled(2)
    it.pause(0)
    it.decide(1, (0, Resume()))
    it.sweep.began(0, 2)
    it.sweep.returned(0, 2)
    it.sweep.returned(1)
    it.sweep.send(ev.SweepEnded)
    trial = make_outcome(it.state, sweep_id="s", key="k", uri="u", version="0").trials[0]
    assert (trial.schedule, "schedule" in trial.model_dump()) == ((), False)


@pytest.mark.parametrize(
    ("scheduler", "is_used"), [({"pbt": {"perturbation_interval": 1}}, False), (LATE, True)]
)
def test_a_snapshot_of_before_there_were_lineages_is_not_used_for_a_population(
    scheduler: Any, is_used: bool
) -> None:
    state = running(2, scheduler=scheduler).state
    assert SweepState.from_json(state.to_json()).to_json() == state.to_json()
    of_old: Any = state.to_json()
    for trial in of_old["trials"]:
        del trial["lineage"]
    with nullcontext() if is_used else pytest.raises(RaysweepError, match="which configs made its trials"):
        SweepState.from_json(of_old)


def test_a_donor_without_a_checkpoint_changes_the_config_alone() -> None:
    it = Scheduled(2)
    it.sweep.report(1, 0.9)
    it.sweep.saved(1, 0, report=0)
    it.decide(1, (1, Exploit(0, OTHER)))
    (start,) = started(it.sweep.stopped(1))
    assert (start.checkpoint, start.config) == ("mem://1/0", OTHER)
    assert it.of(1).attempts[0].donor is None
    assert "trial 0 has no checkpoint" in it.state.notes[0]


def test_an_exploiter_with_nothing_left_to_do_is_not_the_best_by_its_donors_score() -> None:
    it = exploiting()
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    assert tell(1, None, "completed") in it.sweep.returned(1, 2)
    it.sweep.returned(0)
    it.sweep.send(ev.SweepEnded)
    outcome = make_outcome(it.state, sweep_id="s", key="k", uri="u", version="0")
    assert (outcome.best and outcome.best.number, outcome.trials[1].score) == (0, 0.9)
    assert outcome.trials[1].checkpoint_uri == "mem://0/0"
    assert [(each.end, each.donor) for each in outcome.trials[1].attempts] == [
        ("exploited", 0),
        ("completed", None),
    ]


def test_a_pause_can_end_in_an_exploit() -> None:
    it = exploiting()
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    it.pause(1)
    commands = it.decide(0, (1, Exploit(0, {"x": 0.8})))
    (start,) = started(commands)
    assert (start.config, start.checkpoint) == ({"x": 0.8}, "mem://0/0")
    assert it.of(1).attempts[-1].donor == 0


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
    assert not it.state.waiting
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
    copy = SweepState.from_json(orjson.loads(orjson.dumps(plain)) | {"scheduler": _asha_of(plain)})
    assert copy.trials[1].turn == it.of(1).turn
    assert copy.tally.pins == it.state.tally.pins == {"mem://0/0": 1}


def _asha_of(plain: Any) -> Any:
    return SweepState.create(Sweep(scheduler=LATE).state.spec, 7).scheduler.to_json()


def test_who_is_resized_keeps_its_results_and_goes_on_from_its_own_checkpoint() -> None:
    it = Scheduled(1)
    it.sweep.report(0, 0.9)
    it.sweep.saved(0, 0, report=0)
    assert it.decide(0, (0, Resize(OTHER))) == [stop_trial(0, 0, "exploit")]
    (start,) = [each for each in it.sweep.stopped(0) if isinstance(each, cmd.StartTrial)]
    trial = it.of(0)
    assert (start.config, start.checkpoint, start.iteration) == (OTHER, trial.checkpoints[0].uri, 1)
    assert trial.last_score == 0.5, "it is the same experiment"
    assert trial.suggested is not None
    (attempt,) = trial.attempts
    assert (attempt.end, attempt.donor) == ("exploited", None)
    it.sweep.began(0, 2)
    it.sweep.failed(0, DIED, attempt=2)
    assert it.of(0).last_score == 0.5


def finished(*, behaviour: int = BEHAVIOUR, score: float = 0.5) -> Scheduled:
    """Trial 1 goes on from where trial 0 had done all its work, with a config that nothing is left for."""
    it = Scheduled(2)
    it.state.behaviour = behaviour
    it.sweep.report(0, 0.5)
    it.sweep.saved(0, 0, report=0)
    it.of(0).last_score, it.of(0).last = score, it.of(0).last | {METRIC: score}
    it.sweep.report(1, 0.9)
    it.decide(1, (1, Exploit(0, OTHER)))
    it.sweep.stopped(1)
    it.sweep.began(1, 2)
    return it


def test_who_has_nothing_left_to_do_has_the_result_of_the_checkpoint_that_it_went_on_from() -> None:
    it = finished()
    copy = SweepState.from_json(it.state.to_json() | {"scheduler": _asha_of(it.state.to_json())})
    assert copy.trials[1].inherited == it.of(1).inherited
    it.sweep.returned(1, attempt=2)
    it.sweep.returned(0)
    it.sweep.send(ev.SweepEnded)
    trial = make_outcome(it.state, sweep_id="s", key="k", uri="u", version="v").trials[1]
    assert (trial.state, trial.score, trial.metrics) == ("completed", 0.5, it.of(0).last)
    assert trial.config == it.of(0).config, "nothing was made with the other"
    assert it.of(1).lineage == ((0, it.of(0).config),)
    assert it.of(1).checkpoint.uri == "mem://0/0"
    assert it.state.best_ended == 0
    told = "trial 1 went on from a checkpoint of trial 0 and reported nothing more"
    assert it.state.notes == (f"{told}: its result, and its config, are those of that checkpoint",)


def test_who_had_nothing_to_do_for_another_config_keeps_what_it_had() -> None:
    it = Scheduled(1)
    it.sweep.report(0, 0.9)
    it.decide(0, (0, Pause()))
    it.sweep.saved(0, 0, report=1)
    it.scheduler.on_idle = [(0, Resume(OTHER))]
    it.sweep.stopped(0)
    it.sweep.began(0, 2)
    assert it.of(0).config == OTHER
    it.sweep.returned(0, attempt=2)
    assert (it.of(0).state, it.of(0).last_score, it.of(0).config) == ("completed", 0.5, {"x": 0.0})


@pytest.mark.parametrize(
    "known", [{"behaviour": 6}, {"score": 0.4}], ids=["an older journal", "the donor made others since"]
)
def test_a_result_that_is_not_known_stays_empty(known: Any) -> None:
    it = finished(**known)
    it.sweep.returned(1, attempt=2)
    assert (it.of(1).state, it.of(1).last, it.of(1).config) == ("completed", {}, OTHER)


def test_what_is_reported_after_an_exploit_counts_and_not_what_was_inherited() -> None:
    it = finished()
    it.sweep.report(1, 0.7, attempt=2)
    it.sweep.returned(1, attempt=2)
    assert (it.of(1).last_score, it.of(1).config, it.state.notes) == (0.7, OTHER, ())
