"""The places of evaluations: a note says that there is no room only when they are awaited for long."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from raysweep.cluster import evaluators
from raysweep.cluster.cluster_watch import ClusterWatch
from raysweep.cluster.controller import Controller
from raysweep.cluster.evaluators import LATE_S, Evaluators
from raysweep.cluster.placement import Room
from raysweep.cluster.ray import evaluators as on_ray
from raysweep.cluster.ray.evaluators import RayEvaluators
from raysweep.core import SweepState, step
from raysweep.core.vocabulary import events as ev
from tests.unit.core.toys import make_spec

EVALUATE = {"trainable": "toys.module:judge", "resources": {"cpu": 1}}


class Places:
    """Stands for Ray: placement groups that have a place from a moment on."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now, self.placed_at = 100.0, float("inf")
        monkeypatch.setattr(on_ray, "placement_group", lambda bundles: self)
        monkeypatch.setattr(on_ray, "make_evaluation_setup", lambda *each: None)
        stand_in = SimpleNamespace(put=lambda each: each, remote=lambda each: each)
        monkeypatch.setattr(on_ray, "ray", stand_in)
        monkeypatch.setattr(evaluators, "time", SimpleNamespace(monotonic=lambda: self.now))

    def wait(self, timeout_s: float) -> bool:
        return self.now >= self.placed_at


def make(**failure: Any) -> tuple[Evaluators, SweepState]:
    spec = make_spec(evaluate=EVALUATE, failure=failure)
    assert spec.evaluate is not None
    return RayEvaluators(spec, spec.evaluate, None, lambda *each: None), SweepState.create(spec, 1)  # type: ignore[arg-type]


def notes_of(found: Evaluators, state: SweepState) -> list[str]:
    """The sweep's notes after one look at the room, as the controller looks."""
    told: list[ev.Event] = []
    watch = ClusterWatch(
        state,
        None,  # type: ignore[arg-type]
        dict,  # type: ignore[arg-type]
        lambda nodes: None,
        lambda: None,
        told.append,
        None,  # type: ignore[arg-type]
        SimpleNamespace(now=lambda: 1.0),  # type: ignore[arg-type]
        find_room=lambda *asked: None,
        note="for the user",
    )
    room = Controller._find_room(SimpleNamespace(_evaluators=found), state.spec, ())  # type: ignore[arg-type]
    watch.see_room(room)
    for event in told:
        step(state, event)
    return list(state.notes)


def test_places_that_come_after_some_seconds_leave_no_note(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch)
    found, state = make()
    asyncio.run(found.open(0.01))
    places.now += LATE_S - 1
    assert not found.is_placed
    assert notes_of(found, state) == []
    places.placed_at = places.now
    asyncio.run(found.open())
    assert found.is_placed
    assert not found.is_late
    places.now += LATE_S
    assert not found.is_late


def test_places_that_stay_away_are_in_a_note(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch)
    found, state = make()
    asyncio.run(found.open(0.01))
    places.now += LATE_S
    assert notes_of(found, state) == [
        "for the user",
        "no room at present: 1 x {CPU: 1} for evaluations have no place yet",
    ]


def test_a_shorter_limit_for_places_is_not_overrun(monkeypatch: pytest.MonkeyPatch) -> None:
    places = Places(monkeypatch)
    found, state = make(placement_timeout_s=3)
    asyncio.run(found.open(0.01))
    places.now += 3
    assert len(notes_of(found, state)) == 2


def test_the_note_for_the_user_comes_with_the_first_room() -> None:
    told: list[Any] = []
    watch = ClusterWatch(
        SweepState.create(make_spec(), 1),
        None,  # type: ignore[arg-type]
        dict,  # type: ignore[arg-type]
        lambda nodes: None,
        lambda: None,
        told.append,
        None,  # type: ignore[arg-type]
        SimpleNamespace(now=lambda: 1.0),  # type: ignore[arg-type]
        find_room=lambda *asked: None,
        note="for the user",
    )
    watch.see_room(None)
    assert told == []
    watch.see_room(Room(slots=2, nodes=1, memory_bytes=0, problem=""))
    watch.see_room(Room(slots=3, nodes=1, memory_bytes=0, problem=""))
    assert [(each.slots, each.note) for each in told] == [(2, "for the user"), (3, "")]
