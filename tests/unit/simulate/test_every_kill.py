"""The controller is killed around every write of a whole sweep; its successor ends it as if nothing had been.

Sequential sweeps end exactly as the undisturbed one; with several slots the promises hold.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from random import Random

import pytest

from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.simulate import Kill, Simulated
from raysweep.simulate.kills import appended
from tests.unit.simulate.sweeps import COMPACTED, SCENARIOS, Scenario, check_promises, shown

pytestmark = [pytest.mark.faults, pytest.mark.timeout(1800)]
# Which kills `make test` tries; `make faults` tries all.
SAMPLED = 5


@cache
def undisturbed(name: str) -> Simulated:
    return (COMPACTED if name == "compacted" else SCENARIOS[name]).run()


def kills_around(simulated: Simulated, first: int = 1) -> list[Kill]:
    """Before and after every append of a sweep, from segment `first` on."""
    numbers = range(first, simulated.appends + 1)
    return [Kill(append=number, when=when) for number in numbers for when in ("before", "after")]


def check(scenario: Scenario, expected: Simulated, *kills: Kill) -> Simulated:
    simulated = scenario.run(*kills)
    check_promises(scenario, simulated, expected, kills)
    if scenario.is_exact:
        assert shown(simulated) == shown(expected), kills
    return simulated


def check_pair(name: str, first: Kill, random: Random) -> None:
    """A kill, and then one of its successor (or of a later one), somewhere behind."""
    scenario, expected = SCENARIOS[name], undisturbed(name)
    once = check(scenario, expected, first)
    assert first.append is not None
    # What follows an append "after" which the controller died begins with the next one's claim.
    behind = kills_around(once, first.append + (first.when == "after"))
    check(scenario, expected, first, random.choice([kill for kill in behind if kill != first]))


@pytest.mark.parametrize("name", SCENARIOS)
def test_undisturbed_sweeps_have_failures_and_checkpoints_in_them(name: str) -> None:
    simulated = undisturbed(name)
    check_promises(SCENARIOS[name], simulated, simulated, ())
    assert simulated.outcome.generation == 1
    seen = {moment.what for moment in simulated.timeline}
    assert seen & {"failed", "died"}
    if name != "short-trials-ahead":
        assert "saved" in seen
    if "asha" in name:
        assert "stopped" in simulated.outcome.counts
    ends = {attempt.end for trial in simulated.outcome.trials for attempt in trial.attempts}
    assert ("paused" in ends) == ("halving" in name)
    assert ("exploited" in ends) == ("copycat" in name)


def test_the_checks_would_see_a_broken_promise() -> None:
    name = "random-fifo"
    kill = Kill(append=60, when="after")
    simulated = SCENARIOS[name].run(kill)
    timeline = simulated.timeline
    ended = next(moment for moment in timeline if moment.what == "returned")
    again = replace(ended, what="began", generation=2)
    answered = next(moment for moment in timeline if moment.what == "answered")
    unstored = replace(answered, iteration=1000)
    for forged in (again, unstored):
        broken = replace(simulated, timeline=(*timeline, forged))
        with pytest.raises(AssertionError, match=f"what='{forged.what}'"):
            check_promises(SCENARIOS[name], broken, undisturbed(name), [kill])
    with pytest.raises(AssertionError, match="not every kill"):
        check_promises(SCENARIOS[name], simulated, undisturbed(name), [kill, Kill(append=61, when="after")])


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_sample_of_kills(name: str) -> None:
    for kill in Random(name).sample(kills_around(undisturbed(name)), SAMPLED):
        simulated = check(SCENARIOS[name], undisturbed(name), kill)
        assert any(moment.what == "killed" for moment in simulated.timeline)


@pytest.mark.parametrize("name", ["random-fifo", "random-asha-at-once"])
def test_a_sample_of_double_kills(name: str) -> None:
    random = Random(name)
    for first in random.sample(kills_around(undisturbed(name)), 3):
        check_pair(name, first, random)


def test_a_sample_of_kills_around_any_write() -> None:
    """Also around merged segments, deletions, snapshots, `sweep.json` and `outcome.json`."""
    expected = undisturbed("compacted")
    merged = [n for n, write in enumerate(expected.writes, 1) if "-" in write.partition("journal/")[2]]
    deleted = [n for n, write in enumerate(expected.writes, 1) if write.startswith("delete")]
    assert merged
    assert deleted
    last = len(expected.writes)
    for number in {1, 2, 3, merged[0], *deleted[:2], merged[-1], last}:
        for when in ("before", "after"):
            check(COMPACTED, expected, Kill(write=number, when=when))


def torn(name: str) -> list[Kill]:
    """After each append, and after each checkpoint that is deleted, the newest segment is torn."""
    writes = enumerate(undisturbed(name).writes, 1)
    numbers = [n for n, write in writes if appended(write) or write.startswith("delete")]
    return [Kill(write=number, when="after", tears=True) for number in numbers]


def check_torn(name: str, kill: Kill) -> None:
    """What a torn segment held is lost; every trial can continue from what is left."""
    scenario, expected = SCENARIOS[name], undisturbed(name)
    simulated = scenario.run(kill)
    assert simulated.fired == (kill,)
    assert all(trial.state in FINAL for trial in simulated.outcome.trials)
    if scenario.is_exact:
        assert shown(simulated) == shown(expected), kill


@pytest.mark.parametrize("name", SCENARIOS)
def test_a_torn_segment_makes_no_trial_fail(name: str) -> None:
    kills = torn(name)
    for kill in Random(name).sample(kills, min(len(kills), SAMPLED)):
        check_torn(name, kill)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_torn_segment(name: str) -> None:
    for kill in torn(name):
        check_torn(name, kill)


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_every_kill(name: str) -> None:
    kills = kills_around(undisturbed(name))
    for kill in kills:
        check(SCENARIOS[name], undisturbed(name), kill)
    print(f"{name}: {len(kills)} kills around {undisturbed(name).appends} appends")


@pytest.mark.slow
@pytest.mark.parametrize("name", SCENARIOS)
def test_double_kills(name: str) -> None:
    """Each kill, with two of those that may follow it."""
    random, firsts = Random(name), kills_around(undisturbed(name))
    for first in firsts:
        for _ in range(2):
            check_pair(name, first, random)
    print(f"{name}: {2 * len(firsts)} double kills")


@pytest.mark.slow
def test_every_kill_around_any_write() -> None:
    expected = undisturbed("compacted")
    snapshots = 0
    for number in range(1, len(expected.writes) + 1):
        for when in ("before", "after"):
            kills = [Kill(write=number, when=when)]
            if number % 4 == 0 and number + 40 <= len(expected.writes):
                kills.append(Kill(write=number + 40, when=when))
            simulated = check(COMPACTED, expected, *kills)
            snapshots += any("/snapshots/" in write for write in simulated.writes)
    assert snapshots
    print(f"compacted: kills around each of {len(expected.writes)} writes")
