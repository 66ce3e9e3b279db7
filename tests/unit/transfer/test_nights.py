"""Nights that share a law: more trials of one bowl, and data that drift between them."""

from __future__ import annotations

import math
from statistics import fmean
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.transfer import fit
from tests.unit.transfer.bowls import SPACE, Bowl, place

TARGET = {"rows": 300_000}
SEEDS = range(20)
TONIGHT = Bowl(moves=0.05, noise=0.05)
FEW = 4
"""Trials at each scale, of each night."""


def night(ago: int, seed: int, bowl: Bowl = TONIGHT, shift: float = 0.0) -> list[dict[str, Any]]:
    trials = bowl.trials(100 * seed + ago, count=FEW)
    return [{**trial, "score": trial["score"] + shift, "night": ago} for trial in trials]


def regret(trials: list[dict[str, Any]]) -> float:
    """The loss of the law's optimum above that of the best config at the target."""
    found = fit(trials, space=SPACE, mode="min").optimum_at(TARGET)
    best = TONIGHT.optimum[0] + TONIGHT.moves * math.log(TARGET["rows"] / 40_000)
    lowest = {"lr": 10 ** (3 * best - 4), "width": 10 * TONIGHT.optimum[1]}
    return TONIGHT.score(found, TARGET["rows"]) - TONIGHT.score(lowest, TARGET["rows"])


def test_three_nights_of_few_trials_give_a_better_law_than_one() -> None:
    alone, shared, carried = [], [], []
    for seed in SEEDS:
        nights = [night(ago, seed, shift=3.0 * ago) for ago in range(3)]
        alone.append(regret(nights[0]))
        shared.append(regret([trial for each in nights for trial in each]))
        law = fit([trial for each in nights for trial in each], space=SPACE, mode="min")
        carried.append(law.at(TARGET).verdict == "carries")
    assert fmean(shared) < 0.6 * fmean(alone)
    assert sum(carried) >= 0.7 * len(SEEDS)


@pytest.mark.parametrize("drift", [(0.0, 0.0), (0.15, 0.1), (0.3, -0.2)])
def test_data_that_drifted_do_no_harm(drift: tuple[float, float]) -> None:
    before = Bowl((0.5 + drift[0], 0.4 + drift[1]), moves=0.05, noise=0.05)
    harm = []
    for seed in SEEDS:
        tonight = night(0, seed)
        earlier = [trial for ago in (1, 2) for trial in night(ago, seed, before, shift=5.0 * ago)]
        harm.append(regret([*tonight, *earlier]) - regret(tonight))
    assert fmean(harm) <= 0.001


def test_the_score_is_predicted_at_the_level_of_tonight() -> None:
    held = []
    for seed in SEEDS:
        trials = [trial for ago in range(3) for trial in night(ago, seed, shift=50.0 * ago)]
        carried = fit(trials, space=SPACE, mode="min").at(TARGET)
        held.append(carried.score_low <= TONIGHT.score(carried.config, TARGET["rows"]) <= carried.score_high)
    assert fmean(held) >= 0.7


def test_what_is_not_carried_and_the_scales_are_of_tonight() -> None:
    tonight = night(0, 1)
    better = [{**trial, "scale": {"rows": 80_000}} for trial in night(1, 1, shift=-9.0)]
    law = fit([*tonight, *better], space=SPACE, mode="min")
    assert law.scales == [{"rows": 10_000}, {"rows": 20_000}, {"rows": 40_000}]
    assert law.nights == 1
    worst = [{**trial, "score": 1.0} for trial in tonight]
    said = fit([*worst, *better], space=SPACE, mode="min").at(TARGET)
    assert said.verdict != "carries"
    assert said.config in [trial["config"] for trial in tonight]


@pytest.mark.parametrize("given", [-1, 1.5, True, "yesterday"])
def test_a_night_is_a_whole_number(given: Any) -> None:
    trials = [*night(0, 1), {**night(1, 1)[0], "night": given}]
    with pytest.raises(SpecError, match=r"trials\[12\]\.night: expected a whole number >= 0") as refused:
        fit(trials, space=SPACE, mode="min")
    assert "\n" not in str(refused.value)


def test_a_law_requires_two_scales_of_tonight() -> None:
    with pytest.raises(SpecError, match="a law needs two scales or more"):
        fit([*night(0, 1)[:FEW], *night(1, 1)], space=SPACE, mode="min")


def test_steps_of_a_trial_that_diverged_are_no_whole_run() -> None:
    trials = [{**trial, "step": 9, "status": "stopped"} for trial in night(0, 1)]
    trials[0] |= {"step": 27, "score": math.nan}
    said = fit(trials, space=SPACE, mode="min").at(TARGET)
    assert math.isfinite(said.score)
    assert place(said.config["lr"]) <= 1
