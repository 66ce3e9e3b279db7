"""A model is judged by its figures and those of the released one."""

from __future__ import annotations

import random
from typing import Any

import pytest

from raysweep.judge.comparison import compare
from raysweep.judge.figures import read_figures
from raysweep.judge.verdict import decide
from raysweep.outcome.judgement import JudgedModel, Judgement
from raysweep.specs.judge import JudgeSpec

NEW = JudgedModel(uri="/s/train-1/model_000001", run_id="train-1", key="n2")
OLD = JudgedModel(uri="/s/train-0/model_000001", run_id="train-0", key="n1")
FOLDS = [0.70, 0.71, 0.69, 0.72, 0.68]


def judged(new: Any, released: Any, **spec: Any) -> Judgement:
    asked = JudgeSpec(**{"evaluate": "churn.judge:score", "metric": "auc", "mode": "max", **spec})
    old = None if released is None else read_figures(released)
    return decide(asked, read_figures(new), old, NEW, None if old is None else OLD)


def better_by(*gains: float) -> list[float]:
    return [fold + gain for fold, gain in zip(FOLDS, gains, strict=True)]


def test_the_first_night_has_at_least_alone() -> None:
    assert judged(FOLDS, None).verdict == "passed"
    assert judged(FOLDS, None, at_least=0.7).verdict == "passed"
    low = judged(FOLDS, None, at_least=0.75)
    assert (low.verdict, low.reasons) == ("failed", ("first", "at_least"))
    assert low.why == "failed: auc 0.7; no model was released; auc 0.7 is below at_least 0.75"
    assert judged(0.4, None, mode="min", at_least=0.5).is_passed
    assert not judged(0.6, None, mode="min", at_least=0.5).is_passed


def test_a_gain_on_all_folds_passes() -> None:
    found = judged(better_by(0.02, 0.01, 0.03, 0.02, 0.01), FOLDS)
    assert (found.verdict, found.reasons, found.test, found.pairs) == (
        "passed",
        ("better",),
        "permutation",
        5,
    )
    assert found.p_value == pytest.approx(1 / 32)
    assert found.improvement == pytest.approx(0.018)
    assert found.lower_bound is not None
    assert 0 < found.lower_bound < 0.018
    assert found.why == (
        "passed: auc 0.718 is 0.018 better than the released model's 0.7 (night of n1) over 5 pairs,"
        " by chance in 3.125 % of cases"
    )


def test_a_gain_by_chance_on_one_fold_is_undecided() -> None:
    found = judged(better_by(0.09, -0.01, -0.01, 0.0, -0.01), FOLDS)
    assert (found.verdict, found.reasons) == ("undecided", ("not_sure",))
    assert "10 % is the limit" in found.why


@pytest.mark.parametrize(
    ("new", "spec", "reason"),
    [
        (FOLDS, {}, "not_better"),
        (better_by(-0.01, -0.01, -0.01, -0.01, -0.02), {}, "not_better"),
        (better_by(0.01, 0.01, 0.01, 0.01, 0.02), {"min_improvement": 0.05}, "not_better"),
    ],
)
def test_a_model_that_is_not_better_fails(new: list[float], spec: dict[str, Any], reason: str) -> None:
    found = judged(new, FOLDS, **spec)
    assert (found.verdict, found.reasons) == ("failed", (reason,))


def test_less_is_better_with_mode_min() -> None:
    assert judged([0.1, 0.2, 0.1, 0.3], [0.2, 0.3, 0.3, 0.4], mode="min").is_passed
    assert judged([0.2, 0.3, 0.3, 0.4], [0.1, 0.2, 0.1, 0.3], mode="min").verdict == "failed"


def test_one_figure_of_each_is_told_and_few_pairs_do_not_do() -> None:
    alone = judged(0.72, 0.70)
    assert (alone.verdict, alone.test, alone.pairs) == ("passed", "", 1)
    assert "by one figure of each, without a test" in alone.why
    few = judged([0.72, 0.73, 0.74], [0.70, 0.70, 0.70])
    assert (few.verdict, few.reasons) == ("undecided", ("too_few",))


def test_no_slice_may_be_much_worse() -> None:
    old = {"all": FOLDS, "JFK": 0.70, "LGA": 0.69}
    new = {"all": better_by(0.02, 0.02, 0.03, 0.02, 0.01), "JFK": 0.65, "LGA": 0.75}
    found = judged(new, old, worst_slice=0.02)
    assert (found.verdict, found.reasons) == ("failed", ("better", "worst_slice"))
    assert "slice 'JFK' is 0.05 worse, 0.02 is allowed" in found.why
    assert judged(new, old, worst_slice=0.06).is_passed
    assert [each.name for each in judged(new, old).slices] == ["JFK", "LGA"]


def test_figures_that_cannot_be_paired_decide_nothing() -> None:
    longer = judged(FOLDS, [*FOLDS, 0.7])
    assert (longer.verdict, longer.reasons) == ("undecided", ("unlike_figures",))
    assert "5 figures of the new model and 6 of the released one" in longer.why
    other = judged({"JFK": 0.9}, {"LGA": 0.7})
    assert (other.verdict, other.reasons) == ("undecided", ("unlike_figures",))
    missing = judged({"JFK": 0.9}, {"JFK": 0.7}, slices=["JFK", "LGA"])
    assert (missing.verdict, missing.reasons) == ("undecided", ("no_slice", "better"))


def test_equal_figures_give_equal_verdicts() -> None:
    drawn = random.Random(4)
    old = [drawn.gauss(0.0, 1.0) for _ in range(40)]
    new = [each + 0.3 + 0.2 * drawn.gauss(0.0, 1.0) for each in old]
    assert judged(new, old) == judged(new, old)


def test_many_rows_are_tested_as_the_mean_of_normals() -> None:
    drawn = random.Random(5)
    old = [drawn.random() for _ in range(20_000)]
    found = compare([each + 0.01 * drawn.gauss(1.0, 3.0) for each in old], old, 1.0)
    assert (found.test, found.is_sure, len(found.differences)) == ("paired t", True, 200)
    assert not compare([each + 0.01 * drawn.gauss(0.0, 3.0) for each in old], old, 1.0).improvement > 0.001


def test_models_that_are_alike_rarely_pass() -> None:
    drawn = random.Random(6)

    def passes() -> bool:
        old = [drawn.gauss(0.7, 0.02) for _ in range(8)]
        return judged([each + drawn.gauss(0.0, 0.01) for each in old], old).is_passed

    assert sum(passes() for _ in range(60)) <= 12


def test_large_and_small_numbers_are_compared() -> None:
    large = compare([1.7e308, 1.6e308, 1.7e308, 1.7e308], [-1.7e308, -1.7e308, -1.6e308, -1.7e308], 1.0)
    assert large.p_value == pytest.approx(1 / 16)
    assert compare([0.0] * 5, [0.0] * 5, 1.0).improvement == 0.0
