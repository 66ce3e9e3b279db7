"""`num_samples: null`: as many configs as there is time for, whatever the search, until a limit."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest

from raysweep.errors import SpecError, SweepFailedError
from raysweep.outcome import Holder, SweepOutcome
from raysweep.outcome.showing.formatting import show_conclusion
from raysweep.runs.ownership.reopening import reopens
from raysweep.runs.reading.progress import make_progress
from raysweep.runs.reading.state_status import status_of_state
from raysweep.search import make_searcher
from raysweep.search.auto import AutoOptions
from raysweep.search.models.auto import AutoModel
from raysweep.search.models.cma import CmaModel
from raysweep.search.spec import SearchSpec
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes
from raysweep.specs.continuing import Continue
from raysweep.step.verdict import verdict_of
from tests.unit.core.sweep import Sweep
from tests.unit.simulate.exactness import NAMED, SCHEDULERS, Exact, kills_of
from tests.unit.simulate.sweeps import shown

NUMBERS = {"x": {"uniform": [0, 1]}, "n": {"randint": [0, 10**6]}}
SEARCHES: dict[str, Any] = {
    "random": "random",
    "tpe": {"tpe": {"n_startup_trials": 3}},
    "gp": {"gp": {"n_startup_trials": 30}},  # its model is looked at elsewhere, and costly
    "cma_es": {"cma_es": {"population_size": 4}},
    "nsga2": {"nsga2": {"population_size": 4}},
    "auto": {"auto": {"switch_after": 10}},
}
BUDGET = {"time_budget_s": 40}


def make_spec(**fields: Any) -> SweepSpec:
    plain = {"name": "w", "trainable": "m:f", "param_space": NUMBERS, "metric": "loss", "mode": "min"}
    return SweepSpec.model_validate(
        {**plain, "seed": 1, "num_samples": None, "stop": {"target": 0.0}, **fields}
    )


def ask(spec: SweepSpec, count: int) -> list[dict[str, Any]]:
    searcher = make_searcher(spec, spec.seed or 0)
    found: list[dict[str, Any]] = []
    while len(found) < count and (config := searcher.ask(len(found))) is not None:
        searcher.tell(len(found), config.get("x", 0.5), "completed")
        found.append(config)
    return found


def curve(config: Mapping[str, Any], iteration: int) -> Mapping[str, Any] | None:
    return {"loss": (config["x"] - 0.3) ** 2 + 0.001} if iteration <= 3 else None


# -- the spec ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("stop", "said"),
    [
        ({}, "null requires a limit in stop"),
        ({"trial_time_s": 9, "trial": {"epoch": 3}}, "null requires a limit in stop"),
        ({"budget": {"gpu_hours": 2}}, "stop.budget.gpu_hours: no trial uses any"),
        ({"budget": {"cost": 2}, "cost_per_hour": {"gpu": 1}}, "stop.budget.cost: no trial uses any"),
    ],
)
def test_without_a_limit_it_is_refused_with_the_field_and_the_fix(stop: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=f"^num_samples: .*{said}.?; set stop.deadline, stop.time"):
        make_spec(stop=stop)


@pytest.mark.parametrize(
    "stop",
    [
        {"deadline": "06:00 Europe/Berlin"},
        {"time_budget_s": 60},
        {"budget": {"cpu_hours": 1}},
        {"budget": {"cost": 2}, "cost_per_hour": {"cpu": 1}},
        {"target": 0.0},
        {"plateau": {"window": 5}},
    ],
)
def test_any_limit_of_the_sweep_allows_it(stop: dict[str, Any]) -> None:
    spec = make_spec(stop=stop)
    assert spec.num_samples is None
    assert SweepSpec.from_any(spec.to_dict()) == spec
    assert spec.digest() not in (spec.replace(num_samples=1).digest(), spec.replace(num_samples=9).digest())


def test_a_list_of_configs_ends_by_itself() -> None:
    spec = make_spec(stop={}, search={"configs": {"configs": [{"x": 1}, {"x": 2}]}})
    assert not spec.is_open_ended
    assert ask(spec, 9) == [{"x": 1}, {"x": 2}]
    outcome = simulate(spec, curve).outcome
    assert (outcome.num_trials, outcome.is_open_ended, outcome.status) == (2, False, "completed")


def test_a_population_has_a_size() -> None:
    with pytest.raises(SpecError, match=r"^num_samples: null cannot be combined with scheduler: pb"):
        make_spec(scheduler="pbt")


# -- each search ---------------------------------------------------------------------------------------------


def test_each_search_is_here_or_has_a_test_of_its_own() -> None:
    assert {*SEARCHES, "grid", "configs", "nsga3", "bohb"} == set(SearchSpec.kinds)


@pytest.mark.parametrize("search", SEARCHES)
def test_each_search_goes_on_as_one_of_many_samples_does(search: str) -> None:
    spec = make_spec(search=SEARCHES[search])
    assert make_searcher(spec, 1).total is None
    assert ask(spec, 25) == ask(spec.replace(num_samples=2000), 25)


@pytest.mark.parametrize("search", SEARCHES)
def test_a_discrete_space_ends_with_its_last_config(search: str) -> None:
    asked = {"random": {"distinct": True}} if search == "random" else SEARCHES[search]
    spec = make_spec(search=asked, param_space={"a": {"randint": [0, 4]}, "b": {"choice": [1, 2, 3]}})
    searcher = make_searcher(spec, 1)
    assert searcher.total == 12
    assert len({tuple(config.items()) for config in ask(spec, 99)}) == 12
    assert searcher.note == "the space has only 12 different configs: each is tried once"


def test_samples_with_replacement_have_no_end() -> None:
    spec = make_spec(search="random", param_space={"b": {"choice": [1, 2, 3]}})
    assert make_searcher(spec, 1).total is None
    assert len(ask(spec, 99)) == 99


def test_what_satisfies_where_is_tried_once_and_counted() -> None:
    spec = make_spec(param_space={"a": {"randint": [0, 4]}, "b": {"randint": [0, 4]}}, where="a < b")
    searcher, number = make_searcher(spec, 1), 0
    while searcher.ask(number) is not None:
        number += 1
    assert (number, searcher.note) == (6, "no more than 6 configs satisfy where: each is tried once")


def test_a_grid_begins_anew_when_it_is_done() -> None:
    spec = make_spec(search="grid", param_space={"g": {"grid_search": [1, 2, 3]}})
    values = [config["g"] for config in ask(spec, 300)]
    rounds = [values[at : at + 3] for at in range(0, 300, 3)]
    assert all(sorted(each) == [1, 2, 3] for each in rounds)


def test_points_come_first_however_many() -> None:
    spec = make_spec(points=[{"x": number / 10} for number in range(9)])
    assert [config["x"] for config in ask(spec, 10)][:9] == [number / 10 for number in range(9)]


def test_auto_expects_many() -> None:
    model = AutoModel(make_spec().space, None, 1, "min", AutoOptions())
    assert isinstance(model._later, CmaModel)


# -- the sweep -----------------------------------------------------------------------------------------------


def test_a_limit_is_its_proper_end() -> None:
    outcome = simulate(make_spec(stop=BUDGET), curve).outcome
    done = outcome.counts.get("completed", 0)
    assert (outcome.status, outcome.num_trials, outcome.is_open_ended) == ("budget", None, True)
    assert outcome.why.startswith(f"{done} trials, ended by ")
    assert done > 5
    assert not outcome.is_partial
    assert outcome.raise_for_status(accept_partial=False) is outcome
    verdict = verdict_of(outcome, accept_partial=False)
    assert (verdict.result, verdict.is_partial) == ("success", False)
    assert f": {done} completed" in show_conclusion(outcome)[0]
    assert SweepOutcome.from_json(outcome.to_json()) == outcome


def test_too_few_trials_are_a_failure_as_ever() -> None:
    outcome = simulate(make_spec(stop=BUDGET | {"min_trials": 500}), curve).outcome
    with pytest.raises(SweepFailedError):
        outcome.raise_for_status()
    assert verdict_of(outcome).result == "failure"


def test_with_a_number_of_samples_a_limit_cuts_it_short_as_ever() -> None:
    outcome = simulate(make_spec(stop=BUDGET, num_samples=500), curve).outcome
    assert (outcome.status, outcome.num_trials, outcome.is_partial) == ("budget", 500, True)
    with pytest.raises(SweepFailedError):
        outcome.raise_for_status(accept_partial=False)


def test_a_space_that_is_exhausted_says_how_many_there_were() -> None:
    space = {"x": {"choice": [0.1, 0.2, 0.4]}}
    outcome = simulate(make_spec(stop={"time_budget_s": 10_000}, param_space=space), curve).outcome
    assert (outcome.status, outcome.num_trials) == ("completed", 3)
    assert [note for note in outcome.notes if "only 3 different configs" in note]


def test_while_it_runs_its_share_is_that_of_its_time() -> None:
    sweep = Sweep(num_samples=None, stop={"time_budget_s": 100})
    sweep.start()
    holder = Holder(host="h", pid=1, started_at=0.0)
    shown = make_progress(sweep.state, sweep_id="s", holder=holder, at=sweep.at + 25, total=None)
    assert (shown.num_trials, shown.expected_end_at, shown.share) == (None, sweep.at + 100, 0.25)
    status = status_of_state(sweep.state, shown, uri="memory://x/s", now=sweep.at + 25, held="alive")
    assert (status.num_trials, status.expected_end_at) == (None, sweep.at + 100)
    without = make_progress(sweep.state, sweep_id="s", holder=holder, at=sweep.at + 25, total=9)
    assert without.expected_end_at is None


# -- more of it, and again -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("was", "now", "is_safe"),
    [
        ({"stop": BUDGET}, {"stop": {"time_budget_s": 60}}, True),
        ({"stop": BUDGET}, {"stop": {"time_budget_s": 30}}, False),
        ({"stop": BUDGET}, {"stop": BUDGET, "num_samples": 900}, False),
        ({"stop": BUDGET, "num_samples": 9}, {"stop": BUDGET}, True),
        ({"stop": {}, "num_samples": 9}, {"stop": BUDGET}, True),
        ({"stop": {}, "num_samples": 9}, {"stop": {"deadline": "2030-01-01T00:00:00Z"}}, True),
        ({"stop": {}, "num_samples": 9}, {"stop": {"target": 0.1}}, False),
        ({"stop": {}, "num_samples": 9}, {"stop": BUDGET, "num_samples": 20}, False),
        ({"stop": BUDGET, "num_samples": 9}, {"stop": {"time_budget_s": 30}}, False),
    ],
)
def test_null_is_more_than_any_number_and_may_bring_the_limit_that_it_needs(
    was: dict[str, Any], now: dict[str, Any], is_safe: bool
) -> None:
    diff = changes(make_spec(**was), make_spec(**now))
    assert diff
    assert bool(diff.unsafe) != is_safe


def test_a_sweep_that_completed_goes_on_for_as_long_as_there_is_time() -> None:
    few = make_spec(num_samples=4, stop={}, max_concurrent_trials=1)
    more = few.replace(num_samples=None, stop={"time_budget_s": 80})
    simulated = simulate(few, curve, reopened=[more])
    outcome = simulated.outcome
    assert (outcome.generation, outcome.status, outcome.num_trials) == (2, "budget", None)
    assert len([trial for trial in outcome.trials if trial.state == "completed"]) > 6
    at_once = simulate(more, curve).outcome
    assert [t.config for t in outcome.trials[:6]] == [t.config for t in at_once.trials[:6]]


def test_ended_by_its_limit_it_goes_on_with_a_later_one() -> None:
    short = make_spec(stop=BUDGET, max_concurrent_trials=1)
    longer = short.replace(stop={"time_budget_s": 80})
    outcome = simulate(short, curve, reopened=[longer]).outcome
    once = simulate(short, curve).outcome
    assert reopens(once, changes(short, longer), Continue())
    assert outcome.generation == 2
    assert outcome.counts.get("completed", 0) > once.counts.get("completed", 0)


KILLED = [
    ("random", "fifo", {"plateau": {"window": 6}}),
    ("tpe", "fifo", {"plateau": {"window": 4}}),
    ("cma_es", "asha", {"target": 0.06}),
    ("random", "hyperband", {"target": 0.04}),
    ("random", "promotion", {"target": 0.04}),
    ("tpe", "pasha", {"target": 0.06}),
]


@pytest.mark.faults
@pytest.mark.parametrize(("search", "scheduler", "stop"), KILLED)
def test_killed_it_ends_as_one_that_never_was(search: str, scheduler: str, stop: dict[str, Any]) -> None:
    fields = (SCHEDULERS | NAMED)[scheduler]
    space = {"x": {"uniform": [0, 1]}}
    spec = make_spec(
        search=SEARCHES[search], stop=stop, max_concurrent_trials=1, param_space=space, name="toy", **fields
    )
    exact = Exact("open", "none", spec, save_every=2)
    expected = exact.run()
    assert expected.outcome.status == next(iter(stop))
    kills = kills_of(expected)
    for kill in kills[:: max(1, len(kills) // 6)]:
        assert shown(exact.run(kill)) == shown(expected), kill
