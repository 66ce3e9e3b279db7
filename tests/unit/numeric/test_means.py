"""What is reported may be too large to be squared: nothing that decides about trials fails by it."""

from __future__ import annotations

from math import inf, isfinite, isnan

import pytest

from raysweep.core.handlers.repeats import Group
from raysweep.numeric.means import mean_of, spread_of, sum_of_squares
from raysweep.schedulers.machinery.bandit import standardised
from raysweep.search.machinery.agreement import agreement_of

HUGE = (1e200, -1e200, 1.7e308)


def test_the_sum_is_that_of_the_squares_as_far_as_a_float_goes() -> None:
    assert sum_of_squares([3.0, -4.0]) == 25.0
    assert sum_of_squares([]) == 0.0
    assert sum_of_squares([1e153, 2.0]) == 1e306
    assert sum_of_squares([1e200, 1.0]) == inf
    assert sum_of_squares([-inf]) == inf


def test_the_mean_and_the_spread_of_numbers_whose_sum_no_float_holds() -> None:
    assert mean_of([1.7e308, 1.7e308]) == 1.7e308
    assert mean_of([1.0, 2.0, 6.0]) == 3.0
    assert spread_of([1.0, 3.0]) == 2.0**0.5
    assert spread_of([1.7e308, -1.7e308]) == inf


def test_repeats_with_a_score_that_large_have_a_spread_without_end() -> None:
    group = Group(number=0, state="completed", scores={0: 0.5, 1: 1e200, 2: 0.6}, trials=())
    assert group.std == inf
    assert Group(number=0, state="completed", scores={0: 1.0, 1: 3.0}, trials=()).std == 2.0**0.5


@pytest.mark.parametrize("huge", HUGE)
def test_anchors_that_have_exploded_agree_with_nothing(huge: float) -> None:
    pairs = [(0.1, 0.1), (0.2, 0.2), (0.3, 0.3), (0.4, huge)]
    assert agreement_of(pairs[:3], is_max=False) == 1.0
    assert agreement_of(pairs, is_max=False) <= 0.0


@pytest.mark.parametrize("huge", HUGE)
def test_of_results_that_large_the_bandit_learns_nothing(huge: float) -> None:
    assert all(isfinite(each) and abs(each) <= 2.0 for each in standardised([0.1, huge, 0.2]))


def test_sums_are_rounded_once_on_every_version_of_python() -> None:
    """`sum` gives 0.9999999999999999 here up to Python 3.11: a resume on 3.12 would decide otherwise."""
    assert mean_of([0.1] * 10) == 0.1
    assert sum_of_squares([0.1**0.5] * 10) == 1.0


def test_the_mean_of_both_infinities_is_no_number() -> None:
    assert isnan(mean_of([inf, -inf]))
