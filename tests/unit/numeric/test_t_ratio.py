"""The likelihood ratio of Student's t against SciPy's densities, and as an e-value."""

from __future__ import annotations

from statistics import fmean

import numpy as np
import pytest
from scipy import stats

from raysweep.numeric.t_ratio import log_evidence, log_t_ratio


@pytest.mark.parametrize(
    ("t", "freedom", "shift"),
    [(0, 5, 2.0), (2, 5, 1.96), (-3, 11, 2.7), (8, 2, 1.0), (3, 60, 5.0), (1, 1, 1.0)],
)
def test_it_is_the_ratio_of_the_densities(t: float, freedom: int, shift: float) -> None:
    expected = stats.nct.logpdf(t, freedom, shift) - stats.t.logpdf(t, freedom)
    assert log_t_ratio(t, 1.0, freedom, shift) == pytest.approx(expected, abs=2e-4)


def test_it_is_one_on_average_without_a_gain_wherever_one_stops() -> None:
    """Ends at the first evidence of 3, or after four gates of six seeds."""
    draw, found = np.random.default_rng(1), []
    for _ in range(4000):
        values: tuple[float, ...] = ()
        for _ in range(4):
            values = (*values, *draw.standard_normal(6).tolist())
            if log_evidence(values) > np.log(3):
                break
        found.append(float(np.exp(log_evidence(values))))
    assert fmean(found) == pytest.approx(1.0, abs=0.12)


@pytest.mark.parametrize("unit", [1e-200, 1.0, 1e200])
def test_the_unit_of_the_scores_does_not_matter(unit: float) -> None:
    plain = log_evidence((0.5, 0.25, 1.0, -0.125))
    assert log_evidence(tuple(unit * each for each in (0.5, 0.25, 1.0, -0.125))) == pytest.approx(plain)


def test_equal_differences_have_finite_evidence_and_one_has_none() -> None:
    assert 0 < log_evidence((0.1, 0.1, 0.1)) < 10
    assert log_evidence((0.0, 0.0, 0.0)) < 0
    assert log_evidence((5.0,)) == log_evidence(()) == 0.0
