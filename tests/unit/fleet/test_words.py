"""What workers say becomes events of the core, and commands become words, field by field."""

from __future__ import annotations

import dataclasses
from typing import get_args

import pytest
from msgspec import structs

from raysweep import fleet as fl
from raysweep import messages as msg
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.toys import make_spec
from tests.unit.fleet.fleet import RAISED, Driven, began, failed, returned

GIB = 2**30
OTHERWISE = {
    "TrialFailed": {"is_echo"},
    "TrialsRecalled": {"slot"},
}
"""By message: the fields that only it or only its event has."""


@pytest.mark.parametrize(
    ("message", "event"),
    [
        (began(3, 2), ev.TrialStarted(at=100.0, trial=3, attempt=2)),
        (returned(3, 2), ev.TrialReturned(at=100.0, trial=3, attempt=2)),
        (
            msg.TrialReported(
                trial=3, attempt=2, first=7, keys=("loss",), rows=[[0.5], [0.25]], is_waiting=True
            ),
            ev.TrialReported(
                at=100.0, trial=3, attempt=2, first=7, keys=("loss",), rows=([0.5], [0.25]), is_waiting=True
            ),
        ),
        (
            msg.TrialStopped(trial=3, attempt=2, was_killed=True, where="line 7"),
            ev.TrialStopped(at=100.0, trial=3, attempt=2, was_killed=True, where="line 7"),
        ),
        (
            failed(3, 2, RAISED),
            ev.TrialFailed(
                at=100.0,
                trial=3,
                attempt=2,
                failure=Failure(origin="exception", type="ValueError", message="boom", bases=("ValueError",)),
            ),
        ),
        (
            msg.CheckpointCommitted(trial=3, attempt=2, number=5, report=9, uri="mem://c", size_bytes=11),
            ev.CheckpointCommitted(
                at=100.0, trial=3, attempt=2, number=5, report=9, uri="mem://c", size_bytes=11
            ),
        ),
        (
            msg.CheckpointFailed(trial=3, attempt=2, number=5, problem="disk full"),
            ev.CheckpointFailed(at=100.0, trial=3, attempt=2, number=5, problem="disk full"),
        ),
        (
            msg.CheckpointDamaged(trial=3, attempt=2, uri="mem://c", problem="its hash is wrong"),
            ev.CheckpointDamaged(at=100.0, trial=3, attempt=2, uri="mem://c", problem="its hash is wrong"),
        ),
        (
            msg.TrialNoted(trial=3, attempt=2, text="no place", count=4),
            ev.TrialNoted(at=100.0, trial=3, attempt=2, text="no place", count=4),
        ),
        (
            msg.TrialBusy(trial=3, attempt=2, is_over=True),
            ev.TrialBusy(at=100.0, trial=3, attempt=2, is_over=True),
        ),
    ],
)
def test_a_workers_word_is_an_event(message: msg.FromWorker, event: ev.Event) -> None:
    driven = Driven().open(0).up(0).hand(0, 3, 2)
    assert driven.say(0, message).events == [event]


def test_what_a_worker_says_that_is_gone_is_for_nobody_here() -> None:
    assert Driven().running(3).say(9, returned(3, 1)).events == []


def test_a_failure_says_what_the_trial_held() -> None:
    """The worker's own word comes first; what an ended trial held is not the next one's."""
    driven = Driven().running(3, 4)
    driven.say(0, msg.Memory(held_bytes=500))
    (event,) = driven.say(0, failed(3, 1, RAISED)).events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.memory_bytes == 500
    driven.say(0, began(4, 1))
    (event,) = driven.say(0, failed(4, 1, RAISED)).events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.memory_bytes is None
    driven = Driven().running(5)
    driven.say(0, msg.Memory(held_bytes=500))
    (event,) = driven.say(0, failed(5, 1, structs.replace(RAISED, memory_bytes=700))).events
    assert isinstance(event, ev.TrialFailed)
    assert event.failure.memory_bytes == 700


def test_a_trial_is_handed_over_whole() -> None:
    driven = Driven(memory_limit_factor=1.5, memory_bytes=2.0 * GIB).open(0).up(0)
    driven.fleet.start_trial(
        cmd.StartTrial(
            slot=0,
            trial=3,
            attempt=2,
            config={"x": 1},
            seed=9,
            checkpoint="mem://c",
            iteration=4,
            next_checkpoint=6,
        )
    )
    (send,) = driven.done().did(fl.Send)
    assert send.worker == 0
    assert send.messages == [
        msg.Job(
            trial=3,
            attempt=2,
            config={"x": 1},
            seed=9,
            checkpoint="mem://c",
            iteration=4,
            next_checkpoint=6,
            memory_limit_bytes=3 * GIB,
        )
    ]


def test_words_to_a_trial() -> None:
    driven = Driven().running(3)
    stop = cmd.StopTrial(slot=0, trial=3, attempt=1, reason="preempt", grace_s=5.0, wants_checkpoint=True)
    driven.fleet.stop_trial(stop, driven.at)
    (send,) = driven.done().did(fl.Send)
    assert send.messages == [
        msg.Stop(trial=3, attempt=1, reason="preempt", wants_checkpoint=True, allows="checkpoint")
    ]
    driven.fleet.answer(cmd.AnswerReport(slot=0, trial=3, attempt=1, report=8))
    (send,) = driven.done().did(fl.Send)
    assert send.messages == [msg.Answer(trial=3, attempt=1, report=8)]
    driven.fleet.answer(cmd.AnswerReport(slot=7, trial=3, attempt=1, report=8))
    driven.fleet.start_trial(cmd.StartTrial(slot=7, trial=4, attempt=1, config={}, seed=1))
    assert driven.done().actions == []


@pytest.mark.parametrize(
    ("factor", "asked", "slot", "limit"),
    [
        (None, 2.0 * GIB, None, None),
        (1.5, 0.0, None, None),
        (1.5, 2.0 * GIB, None, 3 * GIB),
        (1.5, 2.0 * GIB, 4 * GIB, 6 * GIB),
        (1.5, 0.0, 4 * GIB, 6 * GIB),
    ],
)
def test_how_much_a_trial_may_hold(
    factor: float | None, asked: float, slot: int | None, limit: int | None
) -> None:
    policy = fl.FleetPolicy(
        isolation="worker",
        can_spare=True,
        start_timeout_s=None,
        placement_timeout_s=1.0,
        memory_limit_factor=factor,
        memory_bytes=asked,
    )
    assert policy.memory_limit(slot) == limit


def test_the_policy_of_a_spec() -> None:
    policy = fl.FleetPolicy.of(
        make_spec(
            isolation="actor",
            resources={"cpu": 1, "memory": 2 * GIB},
            failure={"start_timeout_s": 7.0, "placement_timeout_s": 8.0, "memory_limit_factor": 1.25},
        )
    )
    assert policy == fl.FleetPolicy(
        isolation="actor",
        can_spare=True,
        start_timeout_s=7.0,
        placement_timeout_s=8.0,
        memory_limit_factor=1.25,
        memory_bytes=2.0 * GIB,
    )
    assert not fl.FleetPolicy.of(make_spec(isolation="process")).can_spare
    with_gpu = fl.FleetPolicy.of(make_spec(isolation="worker", resources={"cpu": 1, "gpu": 1}))
    assert (with_gpu.can_spare, with_gpu.memory_bytes) == (False, 0.0)


def test_a_message_that_says_the_same_as_an_event_has_its_name_and_its_fields() -> None:
    events = {kind.__name__: kind for kind in get_args(ev.Event)}
    shared = [kind for kind in get_args(msg.FromWorker) if kind.__name__ in events]
    assert len(shared) == 11
    for kind in shared:
        fields = {field.name for field in structs.fields(kind)} | {"at"}
        theirs = {field.name for field in dataclasses.fields(events[kind.__name__])}
        assert fields ^ theirs == OTHERWISE.get(kind.__name__, set()), kind.__name__
