"""Laws over scales: what is carried, with which verdict."""

from __future__ import annotations

import copy
import math
from random import Random
from statistics import fmean, median
from typing import Any

import pytest

import raysweep as rs
from raysweep.transfer import fit
from tests.unit.transfer.bowls import SPACE, Bowl, best_of_largest, place

TARGET = {"rows": 300_000}
SEEDS = range(10)


def test_the_optimum_moves_with_the_scale() -> None:
    bowl = Bowl(moves=0.1)
    for seed in range(5):
        carried = rs.transfer.fit(bowl.trials(seed), space=SPACE, mode="min").at(TARGET)
        assert carried.verdict == "carries"
        expected = 0.5 + 0.1 * math.log(300_000 / 40_000)
        assert place(carried.config["lr"]) == pytest.approx(expected, abs=0.09)
        low, high = carried.intervals["lr"]
        assert low < carried.config["lr"] < high
        assert carried.score_low < bowl.score(carried.config, TARGET["rows"]) < carried.score_high


def test_a_law_beats_copying_also_where_the_optimum_does_not_move() -> None:
    for bowl in (Bowl(), Bowl(noise=0.1), Bowl(moves=0.1)):
        worse = []
        for seed in SEEDS:
            trials = bowl.trials(seed)
            carried = fit(trials, space=SPACE, mode="min").at(TARGET)
            copied = bowl.score(best_of_largest(trials), TARGET["rows"])
            worse.append(bowl.score(carried.config, TARGET["rows"]) - copied)
        assert fmean(worse) <= 0.001
        assert median(worse) <= 0.001


def test_scores_that_were_shuffled_inside_their_scales_do_not_carry() -> None:
    verdicts = []
    for seed in range(40):
        trials = Bowl(moves=0.05).trials(seed)
        for rows in (10_000, 20_000, 40_000):
            inside = [trial for trial in trials if trial["scale"]["rows"] == rows]
            scores = [trial["score"] for trial in inside]
            Random(seed).shuffle(scores)
            for trial, score in zip(inside, scores, strict=True):
                trial["score"] = score
        verdicts.append(fit(trials, space=SPACE, mode="min").at(TARGET).verdict)
    assert verdicts.count("carries") <= 2


@pytest.mark.parametrize("optimum", [(1.2, 0.4), (-0.2, 0.4), (0.5, 1.2)])
def test_an_optimum_outside_of_the_space_is_an_edge(optimum: tuple[float, float]) -> None:
    found = [fit(Bowl(optimum).trials(seed), space=SPACE, mode="min").at(TARGET) for seed in SEEDS]
    assert [each.verdict for each in found].count("edge") >= 9
    trials = Bowl(optimum).trials(0)
    assert found[0].config == best_of_largest(trials), "the best of the largest scale"
    assert "bound" in found[0].reasons[0]
    assert found[0].facts[0].about in SPACE


def test_an_optimum_that_leaves_the_space_on_the_way_to_the_target_is_an_edge() -> None:
    carried = fit(Bowl((0.8, 0.4), moves=0.2).trials(3), space=SPACE, mode="min").at(TARGET)
    assert carried.verdict == "edge"
    assert carried.optimum["lr"] > 0.1


def test_few_trials_say_that_they_are_too_few() -> None:
    trials = Bowl().trials(0, count=3, scales=(10_000, 20_000))
    carried = fit(trials, space=SPACE, mode="min").at(TARGET)
    assert carried.verdict == "too few"
    assert carried.config == best_of_largest(trials)
    assert "required" in carried.reasons[0]


def test_a_scale_that_never_varied_says_nothing_of_another_value() -> None:
    trials = [{**trial, "scale": {**trial["scale"], "workers": 2}} for trial in Bowl().trials(0, count=12)]
    law = fit(trials, space=SPACE, mode="min")
    assert law.at({"rows": 300_000, "workers": 2}).verdict == "carries"
    carried = law.at({"rows": 300_000, "workers": 8})
    assert carried.verdict == "too few"
    assert carried.reasons == [
        "workers is 2 in all trials and 8 at the target; run trials at a second workers"
    ]


def test_trials_that_failed_say_nothing_and_those_that_diverged_are_bad() -> None:
    bowl = Bowl(moves=0.05)
    trials = bowl.trials(1, count=16)
    failed = [{**trial, "score": None} for trial in bowl.trials(2, count=2)]
    plain = fit(trials, space=SPACE, mode="min").at(TARGET)
    assert fit([*trials, *failed], space=SPACE, mode="min").at(TARGET) == plain
    for bad in (math.nan, math.inf, -math.inf):
        given = copy.deepcopy(trials)
        for trial in given:
            if place(trial["config"]["lr"]) > 0.8:
                trial["score"] = bad
        carried = fit(given, space=SPACE, mode="min").at(TARGET)
        assert carried.verdict == "carries"
        assert place(carried.config["lr"]) == pytest.approx(0.6, abs=0.08)


def test_categories_are_carried_by_their_best_level_over_all_scales() -> None:
    space = {**SPACE, "act": {"choice": ["relu", "gelu", "silu"]}, "depth": {"const": 3}}
    for seed in range(5):
        rng, trials = Random(seed), Bowl(moves=0.05).trials(seed, count=15)
        for trial in trials:
            act = rng.choice(["relu", "gelu", "silu"])
            trial["config"] |= {"act": act, "depth": 3}
            trial["score"] += {"relu": 0.3, "gelu": 0.0, "silu": 0.2}[act]
        carried = fit(trials, space=space, mode="min").at(TARGET)
        assert carried.verdict == "carries"
        assert carried.config["act"] == "gelu"
        assert carried.config["depth"] == 3
        assert set(carried.intervals) == {"lr", "width"}


def test_parameters_in_branches_are_carried_with_their_branch() -> None:
    space = {
        "model": {
            "choice": {"net": {"lr": {"loguniform": [1e-4, 1e-1]}}, "tree": {"depth": {"randint": [1, 12]}}}
        }
    }
    rng, trials = Random(0), []
    for rows in (10_000, 20_000, 40_000):
        for _ in range(24):
            if rng.random() < 0.6:
                lr = 10 ** (-4 + 3 * rng.random())
                config: dict[str, Any] = {"model": {"net": {"lr": lr}}}
                score = 1 + 5 * (place(lr) - 0.4) ** 2
            else:
                depth = rng.randint(1, 11)
                config, score = {"model": {"tree": {"depth": depth}}}, 1.5 + 0.02 * (depth - 6) ** 2
            trials.append({"scale": {"rows": rows}, "config": config, "score": score + rng.gauss(0, 0.01)})
    carried = fit(trials, space=space, mode="min").at(TARGET)
    assert carried.verdict == "carries"
    assert place(carried.config["model"]["net"]["lr"]) == pytest.approx(0.4, abs=0.05)
    assert set(carried.intervals) == {"model.net.lr"}


def test_whole_numbers_and_choices_between_numbers_stay_in_their_domains() -> None:
    space = {"rounds": {"lograndint": [10, 1000]}, "batch": {"choice": [16, 32, 64, 128, 256]}}
    rng, trials = Random(1), []
    for rows in (10_000, 20_000, 40_000):
        for _ in range(16):
            rounds, batch = int(10 ** (1 + 2 * rng.random())), rng.choice([16, 32, 64, 128, 256])
            best = math.log(100) + 0.5 * math.log(rows / 40_000)
            score = (math.log(rounds) - best) ** 2 + math.log2(batch / 64) ** 2 + rng.gauss(0, 0.05)
            trials.append(
                {"scale": {"rows": rows}, "config": {"rounds": rounds, "batch": batch}, "score": -score}
            )
    carried = fit(trials, space=space, mode="max").at(TARGET)
    assert carried.verdict == "carries"
    assert carried.config["batch"] == 64
    assert isinstance(carried.config["rounds"], int)
    assert carried.config["rounds"] == pytest.approx(100 * (300 / 40) ** 0.5, rel=0.3)


def test_trials_that_were_stopped_early_are_compared_at_equal_steps() -> None:
    bowl = Bowl(moves=0.08, noise=0.02)
    trials = []
    for rows in (10_000, 20_000, 40_000):
        rung = sorted(bowl.trials(int(rows), count=18, scales=[rows]), key=lambda trial: trial["score"])
        for place_, trial in enumerate(rung):
            step, status = (27, "completed") if place_ < 6 else (9, "stopped")
            # A trial that was stopped early is far behind: taken for ended, it would be a bad config.
            score = trial["score"] + (1.0 if status == "stopped" else 0.0)
            trials.append({**trial, "score": score, "step": step, "status": status})
    carried = fit(trials, space=SPACE, mode="min").at(TARGET)
    assert carried.verdict == "carries"
    assert place(carried.config["lr"]) == pytest.approx(0.5 + 0.08 * math.log(300 / 40), abs=0.1)
    unknown = [{key: value for key, value in trial.items() if key != "step"} for trial in trials]
    ended = [trial for trial in trials if trial["status"] == "completed"]
    assert fit(unknown, space=SPACE, mode="min").at(TARGET) == fit(ended, space=SPACE, mode="min").at(TARGET)


def test_a_law_says_the_optimum_at_each_proxy_scale() -> None:
    law = fit(Bowl(moves=0.1).trials(0), space=SPACE, mode="min")
    assert law.scales == [{"rows": 10_000}, {"rows": 20_000}, {"rows": 40_000}]
    found = [place(law.optimum_at(scale)["lr"]) for scale in law.scales]
    assert found == sorted(found)
    assert found[-1] == pytest.approx(0.5, abs=0.05)


def test_a_fit_costs_as_much_as_there_are_trials() -> None:
    """By the steps and arrays of the fit, not by a clock: their size is trials times coefficients."""
    law = fit(Bowl().trials(0, count=400), space=SPACE, mode="min")
    small = fit(Bowl().trials(0, count=12), space=SPACE, mode="min")
    assert law._surface.coefficients.shape == small._surface.coefficients.shape
    assert law.at(TARGET).verdict == "carries"
