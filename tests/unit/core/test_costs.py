"""What a search that goes by costs is told of them: by a report, or by how long attempts ran."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.state.compiled_parts import cost_rule
from raysweep.core.state.trial_parts import Attempt
from raysweep.core.views.scores import cost_of
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.schedulers import make_scheduler
from raysweep.search.options import TRIAL_TIME, CostRule
from tests.unit.core.sweep import Commands, Sweep, running
from tests.unit.core.toys import METRIC

ASHA = {"asha": {"max_t": 9}}


def sweep_of(cost_attr: str, **fields: Any) -> Sweep:
    return running(2, 2, search={"gp": {"cost_attr": cost_attr}}, **fields)


def done(sweep: Sweep, trial: int, **metrics: Any) -> Commands:
    fields: dict[str, Any] = {"trial": trial, "attempt": 1, "first": 0}
    keys, row = (METRIC, *metrics), [0.5, *metrics.values()]
    return [*sweep.send(ev.TrialReported, keys=keys, rows=(row,), **fields), *sweep.returned(trial)]


def cost_told(commands: Commands) -> float | None:
    (told,) = [each for each in commands if isinstance(each, cmd.TellSearch)]
    assert told.value == 0.5
    return told.cost


def test_a_reported_value_is_told() -> None:
    sweep = sweep_of("price")
    assert cost_told(done(sweep, 0, price=7)) == 7.0
    assert cost_told(done(sweep, 1)) is None, "one that does not report it has just no cost"


def test_without_a_search_that_asks_nothing_is_told() -> None:
    sweep = running(2, 2)
    assert cost_told(done(sweep, 0, trial_time_s=7)) is None


def test_the_time_that_its_attempts_ran_is_told() -> None:
    sweep = sweep_of(TRIAL_TIME)
    began = sweep.state.trials[0].attempt_started_at
    assert began is not None
    sweep.at = began + 12.5
    assert cost_told(done(sweep, 0)) == 12.5
    assert cost_told(done(sweep, 1, trial_time_s=3.5)) == 3.5, "unless it says itself"


def test_where_trials_may_end_early_it_is_for_each_unit_of_their_time() -> None:
    sweep = sweep_of("price", scheduler=ASHA)
    assert cost_told(done(sweep, 0, price=8.0, training_iteration=4)) == 2.0
    spec = sweep.state.spec
    assert cost_rule(spec, make_scheduler(spec)) == CostRule(name="price", per="training_iteration")
    plain = sweep_of("price").state.spec
    assert cost_rule(plain, make_scheduler(plain)) == CostRule(name="price", per="")


def attempt(started_at: float | None, ended_at: float, end: Any) -> Attempt:
    return Attempt(attempt=1, started_at=started_at, ended_at=ended_at, end=end)


@pytest.mark.parametrize(
    ("attempts", "cost"),
    [
        ([attempt(1.0, 4.0, "retried"), attempt(10.0, 12.0, "returned")], 5.0),
        ([attempt(1.0, 4.0, "paused"), attempt(None, 9.0, "lost"), attempt(10.0, 12.0, "returned")], 5.0),
        ([attempt(1.0, 400.0, "lost"), attempt(410.0, 412.0, "returned")], None),
        ([], 0.0),
    ],
)
def test_an_attempt_that_was_lost_ended_nobody_knows_when(attempts: Any, cost: float | None) -> None:
    assert cost_of({}, attempts, CostRule(name=TRIAL_TIME, per="")) == cost


@pytest.mark.parametrize("time", [None, 0, "x"])
def test_without_a_time_there_is_no_cost_for_each_unit_of_it(time: Any) -> None:
    rule = CostRule(name="price", per="epoch")
    assert cost_of({"price": 4.0, "epoch": time}, [], rule) is None
    assert cost_of({"price": 4.0, "epoch": 2}, [], rule) == 2.0
    assert cost_of({"price": "NaN", "epoch": 2}, [], rule) is None
