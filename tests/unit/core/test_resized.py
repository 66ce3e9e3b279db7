"""`step` where a scheduler gives a trial another share of the cluster than any node has."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from raysweep.core.handlers import continuations, sizes, transitions
from raysweep.core.state.trial_parts import Turn
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.schedulers import Resize
from tests.unit.core.faults import GIB, NO_WAIT
from tests.unit.core.sized import BY_N, BY_X, open_all, run_all, sweep_of
from tests.unit.core.sweep import Sweep

RESIZED = Turn(reason="exploit", config={"x": 3.0}, keeps_results=True)


def resized(turn: Turn = RESIZED, **fields: Any) -> Sweep:
    """Trial 0 has reported with x=2, and was then given another config, for which no node has room."""
    sweep = sweep_of(2.0, 1.0, **fields)
    open_all(sweep)
    sweep.began(0)
    sweep.report(0, 0.5)
    trial = sweep.state.trials[0]
    continuations.give(sweep.state, trial, turn, [])
    transitions.ask_to_end(sweep.state, trial, turn.reason, [])
    sweep.stopped(0)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=2 * GIB, beyond=("cpu=3",))
    return sweep


@pytest.mark.parametrize("resources", [BY_N, BY_X], ids=["cpus", "memory"])
def test_who_is_resized_beyond_what_a_node_has_goes_on_as_it_was(resources: dict[str, Any]) -> None:
    sweep = resized(resources=resources)
    trial = sweep.state.trials[0]
    assert (trial.config, trial.results.last_score, trial.ancestry.suggested, trial.ancestry.lineage) == (
        {"x": 2.0},
        0.5,
        None,
        (),
    )
    assert [(attempt.end, attempt.config) for attempt in trial.attempts] == [("exploited", None)]
    assert sweep.state.line.hungry_for_memory == 1
    assert trial.is_large
    run_all(sweep)
    assert sweep.state.end.status == "completed"


def test_what_a_trial_ran_out_of_memory_with_is_not_forgotten_for_that() -> None:
    sweep = resized(resources=BY_N)
    trial = sweep.state.trials[0]
    trial.attempts = (replace(trial.attempts[0], kind="oom"),)
    trial.needs = replace(trial.needs, memory_bytes=2 * GIB)
    sizes.note(sweep.state, trial, is_given_up=True)
    assert trial.needs.memory_bytes == 2 * GIB


def test_another_config_stays() -> None:
    turn = replace(RESIZED, keeps_results=False)
    sweep = resized(turn, resources=BY_N, failure=NO_WAIT | {"placement_timeout_s": 5.0})
    assert sweep.state.trials[0].config == {"x": 3.0}
    run_all(sweep)
    sweep.timer(sweep.at + 5.0)
    attempt = sweep.state.trials[0].attempts[-1]
    assert attempt.failure is not None
    assert (attempt.kind, attempt.failure.type) == ("no_room", "NoRoomError")
    assert "(resources.by_config): it needs cpu=3, for which no node has room" in attempt.failure.message


def test_who_is_made_smaller_keeps_the_smaller_share() -> None:
    """Its node dies, and for a while no other has room even for that."""
    sweep = sweep_of(3.0, 1.0, resources=BY_N, failure=NO_WAIT | {"placement_timeout_s": 5.0})
    open_all(sweep)
    sweep.began(0)
    sweep.report(0, 0.5)
    trial = sweep.state.trials[0]
    slot = trial.slot
    assert slot is not None
    turn = replace(RESIZED, config={"x": 2.0})
    continuations.give(sweep.state, trial, turn, [])
    transitions.ask_to_end(sweep.state, trial, turn.reason, [])
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=2 * GIB, beyond=("cpu=2", "cpu=3"))
    sweep.send(ev.SlotLost, slot=slot, failure=Failure(origin="node", node_state="dead"))
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=2 * GIB, beyond=("cpu=3",))
    run_all(sweep)
    assert (sweep.state.trials[0].state, sweep.state.trials[0].config) == ("completed", {"x": 2.0})
    assert sweep.state.notes == ()


def test_who_is_resized_twice_before_it_runs_goes_on_as_it_ran() -> None:
    sweep = sweep_of(1.0, 1.0, resources=BY_N, failure=NO_WAIT)
    open_all(sweep)
    sweep.began(0)
    sweep.report(0, 0.5)
    trial = sweep.state.trials[0]
    continuations.give(sweep.state, trial, replace(RESIZED, config={"x": 2.0}), [])
    transitions.ask_to_end(sweep.state, trial, "exploit", [])
    sweep.state.room.beyond = ("cpu=2",)
    sweep.state.work.undecided.append((0, Resize({"x": 3.0})))
    sweep.stopped(0)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=2 * GIB, beyond=("cpu=2", "cpu=3"))
    assert (trial.config, trial.ancestry.suggested, trial.ancestry.lineage) == ({"x": 1.0}, None, ())
    assert trial.attempts[-1].config is None
