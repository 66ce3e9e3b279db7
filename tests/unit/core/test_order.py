"""A trial that backs off keeps its place: who is asked, and who begins, while it waits."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.sweep import Sweep

TPE = {"search": {"tpe": {}}}


def begun(slots: int, trials: int, **fields: Any) -> Sweep:
    sweep = Sweep(num_samples=9, **fields)
    sweep.send(ev.ControllerStarted, generation=1)
    sweep.send(ev.CapacityChanged, slots=slots)
    sweep.suggest(trials, is_exhausted="search" not in fields)
    for slot in range(slots):
        sweep.send(ev.SlotOpened, slot=slot, node=f"node{slot}")
    return sweep


def asked(commands: list[cmd.Command]) -> list[int]:
    return [command.count for command in commands if isinstance(command, cmd.SuggestConfigs)]


def started(commands: list[cmd.Command]) -> list[int]:
    return [command.trial for command in commands if isinstance(command, cmd.StartTrial)]


def due(sweep: Sweep) -> float:
    (at,) = sweep.state.line.waiting.values()
    return at


def test_an_adaptive_searcher_is_not_asked_while_a_trial_backs_off() -> None:
    sweep = begun(1, 1, max_concurrent_trials=1, **TPE)
    sweep.began(0)
    assert asked(sweep.failed(0)) == []
    assert started(sweep.timer(due(sweep))) == [0]
    sweep.began(0, attempt=2)
    sweep.report(0, 0.5, attempt=2)
    assert asked(sweep.returned(0, attempt=2)) == [1]


def test_nor_after_a_restart() -> None:
    sweep = begun(1, 1, max_concurrent_trials=1, **TPE)
    sweep.began(0)
    sweep.failed(0)
    commands = sweep.send(ev.ControllerStarted, generation=2)
    commands += sweep.send(ev.CapacityChanged, slots=1)
    (opened,) = (command.slot for command in commands if isinstance(command, cmd.OpenSlot))
    commands += sweep.send(ev.SlotOpened, slot=opened, node="node1")
    assert asked(commands) == []
    assert started(sweep.timer(due(sweep))) == [0]


def test_each_trial_that_backs_off_keeps_one_place_of_several() -> None:
    sweep = begun(3, 3, **TPE)
    for trial in range(3):
        sweep.began(trial)
        sweep.report(trial, 0.5)
    assert asked(sweep.failed(0)) == []
    assert asked(sweep.returned(1)) == [1]
    assert started(sweep.suggest(1, is_exhausted=False)) == [3]


@pytest.mark.parametrize(
    "fields",
    [
        {"scheduler": {"asha": {"max_t": 9}}},
        {"stop": {"target": 0.1}},
        {"stop": {"plateau": {"window": 3}}},
        {"failure": {"max_failed_fraction": 0.5}},
    ],
)
def test_none_begins_before_it_where_the_order_matters(fields: dict[str, Any]) -> None:
    sweep = begun(1, 4, max_concurrent_trials=1, **fields)
    sweep.began(0)
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.began(1)
    assert started(sweep.failed(1)) == []
    assert started(sweep.timer(due(sweep))) == [1]


def test_a_blind_search_goes_on_once_a_trial_has_succeeded() -> None:
    """Until then the breaker looks at the order."""
    sweep = begun(1, 4, max_concurrent_trials=1)
    sweep.began(0)
    assert started(sweep.failed(0)) == []
    assert started(sweep.timer(due(sweep))) == [0]
    sweep.began(0, attempt=2)
    sweep.at += 5.0
    sweep.report(0, 0.5, attempt=2)
    sweep.returned(0, attempt=2)
    sweep.began(1)
    assert started(sweep.failed(1)) == [2]


def test_several_at_once_do_not_wait_for_it() -> None:
    sweep = begun(2, 9)
    sweep.began(0)
    assert started(sweep.failed(0)) == [2]


def test_short_trials_are_not_queued_where_the_order_matters() -> None:
    sweep = begun(1, 9, max_concurrent_trials=1, scheduler={"asha": {"max_t": 9}})
    sweep.began(0)
    sweep.report(0, 0.5)
    assert started(sweep.returned(0)) == [1]
    assert sweep.state.meter.mean_duration_s == 0.0


def test_the_breaker_does_not_look_at_where_a_restart_has_put_the_worker() -> None:
    """Three configs that cannot be made, behind a failure on the first node: counted, on whatever node."""
    misdrawn = Failure(origin="exception", type="ZeroDivisionError")
    for is_restarted in (False, True):
        sweep = begun(1, 1, max_concurrent_trials=1, failure={"max_failures": 0}, **TPE)
        sweep.began(0)
        sweep.failed(0)
        if is_restarted:
            sweep.send(ev.ControllerStarted, generation=2)
            sweep.send(ev.CapacityChanged, slots=1, nodes=2)
        for number in (1, 2):
            assert sweep.state.end.status is None
            failed = (ev.FailedConfig(number=number, failure=misdrawn),)
            sweep.send(ev.ConfigsSuggested, first=number, configs=({"x": 0.5},), failed=failed)
        assert sweep.state.end.status == "failed", f"restarted: {is_restarted}"
