"""One trial at a time, killed around any write: configs, states, metrics, best and status stay the same.

Here for some searches and schedulers, each with three ways to fail (`test_pairs.py` has all of them):
whatever fails, backs off, continues from a checkpoint or cannot even be drawn; and also where a limit has
ended the sweep and it is reopened.
"""

from __future__ import annotations

from functools import cache
from random import Random
from typing import Any

import pytest

from raysweep.simulate import Kill, Simulated
from tests.sampling import sampled
from tests.unit.simulate.exactness import ENDS, EXACT, Exact, draw_exact, kills_of
from tests.unit.simulate.sweeps import shown

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
# Of each sweep; `make faults` tries all kills.
SAMPLED = 1
# What fits a model for each ask, and so takes its time.
DEAR = ("gp", "costs", "auto", "open")
DRAWN = 12
MANY_DRAWN = 150
LIMITS: dict[str, dict[str, Any]] = {
    "time": {"time_budget_s": 40},
    "deadline": {"deadline": "1970-01-01T00:00:35Z"},
    "hours": {"budget": {"cpu_hours": 0.012}},
}
REOPENED = ["random-asha-flaky", "grid-fifo-deterministic", "tpe-fifo-flaky", "tpe-asha-deterministic"]


@cache
def undisturbed(name: str) -> Simulated:
    return EXACT[name].run()


def check(exact: Exact, expected: Simulated, kills: list[Kill]) -> None:
    for kill in kills:
        simulated = exact.run(kill)
        assert simulated.fired == (kill,)
        assert shown(simulated) == shown(expected), f"{exact.name}: {kill}"


def is_kept(name: str) -> bool:
    """Whether it runs by day: of each search with a scheduler one way to fail, of what is dear fewer."""
    if name.startswith(DEAR):
        return name.endswith(("fifo-flaky", "asha-none"))
    both = name.rpartition("-")[0]
    ways = [each for each in EXACT if each.rpartition("-")[0] == both]
    return name == ways[[*dict.fromkeys(each.rpartition("-")[0] for each in EXACT)].index(both) % len(ways)]


def sample(name: str, kills: list[Kill]) -> list[Kill]:
    return Random(name).sample(kills, min(len(kills), SAMPLED))


@pytest.mark.slow
def test_the_sweeps_have_in_them_what_they_are_for() -> None:
    resumed: set[int | None] = set()
    for name in EXACT:
        simulated = undisturbed(name)
        ends = {attempt.end for trial in simulated.outcome.trials for attempt in trial.attempts}
        assert ("failed" in ends) == (not name.endswith("none")), name
        must, may = ENDS[name.split("-")[1]]
        assert must <= ends & {"stopped", "paused", "exploited"} <= must | may, name
        donors = [attempt.donor for trial in simulated.outcome.trials for attempt in trial.attempts]
        assert any(donor is not None for donor in donors) == name.split("-")[1].startswith(("copycat", "pb"))
        assert any(moment.what == "saved" for moment in simulated.timeline)
        resumed |= {moment.iteration for moment in simulated.timeline if moment.what == "began"}
    assert resumed >= {0, 2}


@pytest.mark.parametrize("name", sampled(EXACT, is_kept))
def test_a_sample_of_kills(name: str) -> None:
    check(EXACT[name], undisturbed(name), sample(name, kills_of(undisturbed(name))))


@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", REOPENED)
def test_a_limit_that_is_lifted_changes_nothing(name: str, limit: str) -> None:
    """Ended by it and reopened, the sweep ends as one that never had it; killed in either part, too."""
    exact, expected = EXACT[name].limited(**LIMITS[limit]), undisturbed(name)
    once = exact.run()
    assert once.outcome.generation == 2
    assert shown(once) == shown(expected)
    check(exact, expected, sample(name + limit, kills_of(once)))


@pytest.mark.parametrize("seed", range(DRAWN))
def test_a_sample_of_drawn_sweeps(seed: int) -> None:
    exact = draw_exact(seed)
    expected = exact.run()
    check(exact, expected, sample(exact.name, kills_of(expected)))


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_every_kill(name: str) -> None:
    kills = kills_of(undisturbed(name))
    check(EXACT[name], undisturbed(name), kills)
    print(f"{name}: {len(kills)} kills, one at a time")


@pytest.mark.slow
@pytest.mark.parametrize("limit", LIMITS)
@pytest.mark.parametrize("name", REOPENED)
def test_every_kill_of_a_reopened_sweep(name: str, limit: str) -> None:
    exact = EXACT[name].limited(**LIMITS[limit])
    kills = kills_of(exact.run())
    check(exact, undisturbed(name), kills)
    print(f"{name}, {limit}: {len(kills)} kills, one at a time")


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(DRAWN, MANY_DRAWN))
def test_drawn_sweeps(seed: int) -> None:
    exact = draw_exact(seed)
    expected = exact.run()
    check(exact, expected, kills_of(expected)[:: 1 + seed % 3])
