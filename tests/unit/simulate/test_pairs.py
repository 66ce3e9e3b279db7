"""Every search with every scheduler: a sweep that is killed and resumed decides as if it had not been."""

from __future__ import annotations

from random import Random

import pytest

from raysweep.errors import SpecError
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.search.spec import SearchSpec
from raysweep.simulate import Simulated
from tests.sampling import examples, sampled
from tests.unit.simulate.exactness import ENDS, FAULTS, kills_of
from tests.unit.simulate.pairs import (
    ALL,
    PAIRS,
    REFUSED,
    SCHEDULED,
    SEARCHED,
    covering,
    faults_of,
    is_dear,
    pair,
)
from tests.unit.simulate.sweeps import shown

pytestmark = [pytest.mark.faults, pytest.mark.timeout(600)]
MOST_KILLS = 4
MOVES = {"stopped", "paused", "exploited"}


def ends_of(simulated: Simulated) -> set[str | None]:
    return {attempt.end for trial in simulated.outcome.trials for attempt in trial.attempts}


def test_each_search_and_each_scheduler_that_a_spec_may_name_is_there() -> None:
    """A new one goes into `SEARCHED` or `SCHEDULED`, and what it cannot be combined with into `REFUSED`."""
    searches = [SearchSpec.model_validate(fields["search"]) for fields in SEARCHED.values()]
    assert {each.kind for each in searches if not each.is_plugin} == set(SearchSpec.kinds)
    assert any(each.is_open for each in searches)
    assert any(each.is_plugin for each in searches)
    schedulers = [
        SchedulerSpec.model_validate(fields.get("scheduler", "fifo")) for fields in SCHEDULED.values()
    ]
    assert {each.kind for each in schedulers if not each.is_plugin} == set(SchedulerSpec.kinds)
    assert any(each.is_plugin for each in schedulers)


def test_the_pairs_are_all_that_a_spec_accepts() -> None:
    refused = set()
    for names in ALL:
        try:
            pair(*names, "none")
        except SpecError:
            refused.add(names)
    assert refused == REFUSED
    assert set(ALL) >= REFUSED


def test_by_day_each_search_and_each_scheduler_is_killed() -> None:
    kept = [PAIRS[name] for name in covering()]
    for place in (0, 1):
        assert {(each[place], each[2]) for each in kept} == {
            (each[place], each[2]) for each in PAIRS.values()
        }
    assert len(kept) < len(PAIRS) / 6


@pytest.mark.parametrize("name", sampled(PAIRS, covering().__contains__))
def test_kills_change_nothing(name: str) -> None:
    exact = pair(*PAIRS[name], faults_of(name))
    expected = exact.run()
    must, may = ENDS[PAIRS[name][1]]
    assert ends_of(expected) & MOVES <= must | may
    kills = kills_of(expected)
    for kill in Random(name).sample(kills, 1 if is_dear(name) else min(examples(1), MOST_KILLS)):
        simulated = exact.run(kill)
        assert simulated.fired == (kill,)
        assert shown(simulated) == shown(expected), kill


@pytest.mark.slow
@pytest.mark.parametrize("name", [name for name in PAIRS if PAIRS[name][0] in ("random", "bohb")])
def test_the_scheduler_has_something_to_decide(name: str) -> None:
    must, _ = ENDS[PAIRS[name][1]]
    assert must <= set.union(*(ends_of(pair(*PAIRS[name], faults).run()) for faults in FAULTS))


@pytest.mark.slow
def test_a_population_goes_on_from_the_same_donors_wherever_it_is_killed() -> None:
    """Also between a report and its checkpoint: the member makes that step again."""
    exact = pair("random", "pbt", "one", "deterministic")
    expected = exact.run()
    donors = [attempt.donor for trial in expected.outcome.trials for attempt in trial.attempts]
    assert len(donors) - donors.count(None) > 3
    kills = [kill for kill in kills_of(expected) if not kill.tears]
    for kill in kills if examples(1) > 1 else kills[::3]:
        assert shown(exact.run(kill)) == shown(expected), kill
