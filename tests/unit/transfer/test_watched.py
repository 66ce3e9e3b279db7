"""A run beside its predicted score: when it has fallen below, whatever noise, repeats and kills there are."""

from __future__ import annotations

import math
from typing import Any

import pytest

from raysweep.transfer.watched import Band, Fall, curve_of, steps_of

CURVE = [(0.25, 0.4), (0.5, 0.2), (1.0, 0.0)]


def band(**fields: Any) -> Band:
    given = {"metric": "loss", "mode": "min", "score": 1.0, "width": 0.1, "widths": 2.0}
    return Band(**given | {"curve": CURVE, "steps": 8, "reports": 3} | fields)


def fallen(band: Band, values: list[float], start: int = 1) -> bool:
    fall = Fall(band)
    for iteration, value in enumerate(values, start):
        fall.take(iteration, {band.metric: value, "other": 0})
    return fall.has_fallen


def test_the_bound_is_that_of_the_curve_moved_to_the_prediction() -> None:
    bounds = [band().bound_at(iteration) for iteration in range(1, 10)]
    assert bounds[0] is None, "no trial had a report so early"
    assert bounds[1:] == pytest.approx([1.6, 1.6, 1.4, 1.4, 1.4, 1.4, 1.2, 1.2])


@pytest.mark.parametrize("mode", ["min", "max"])
def test_so_many_reports_in_a_row_end_a_run(mode: str) -> None:
    sign = 1 if mode == "min" else -1
    there = band(mode=mode, score=sign * 1.0)
    good, bad = sign * 1.3, sign * 1.7
    assert not fallen(there, [bad, bad, bad]), "the first is not judged"
    assert fallen(there, [bad, bad, bad, bad])
    assert not fallen(there, [bad, bad, bad, good])
    assert not fallen(there, [bad, bad, good, bad, bad]), "one good report begins the count anew"
    assert fallen(there, [good, good, good, bad, bad, bad])
    assert not fallen(there, [sign * -5.0] * 8), "better than predicted is no fall"


def test_a_run_that_diverges_has_fallen() -> None:
    assert fallen(band(), [1.2, 1.2, math.nan, math.nan, math.inf])
    assert fallen(band(mode="max", score=-1.0), [-1.2, -1.2, math.nan, math.nan, -math.inf])


def test_reports_without_the_metric_say_nothing() -> None:
    fall = Fall(band())
    for iteration in range(3, 9):
        fall.take(iteration, {"loss": 9.0} if iteration % 2 else {"step": iteration})
    assert fall.has_fallen


def test_reports_that_are_repeated_count_once() -> None:
    fall = Fall(band())
    for iteration in (3, 4, 3, 4, 3, 4):
        fall.take(iteration, {"loss": 9.0})
    assert not fall.has_fallen
    fall.take(5, {"loss": 9.0})
    assert fall.has_fallen
    fall.take(4, {"loss": 1.0})
    assert not fall.has_fallen, "the workers continue from the third"


def test_nothing_is_judged_without_steps_or_a_band() -> None:
    assert not fallen(band(steps=None), [9.0] * 20)
    fall = Fall(None)
    fall.take(1, {"loss": math.nan})
    assert not fall.has_fallen


def test_without_curves_the_end_alone_is_judged() -> None:
    there = band(curve=[], reports=1)
    assert not fallen(there, [9.0] * 7)
    assert fallen(there, [9.0] * 8)


@pytest.mark.parametrize("mode", ["min", "max"])
def test_a_curve_has_the_distances_from_the_trials_own_ends(mode: str) -> None:
    sign = 1 if mode == "min" else -1
    trials = [
        (sign * level, [(step, sign * (level + 1 / step - 1 / 10)) for step in range(1, 11)])
        for level in (1.0, 5.0)
    ]
    found = dict(curve_of(trials, mode))  # type: ignore[arg-type]
    assert min(found) == pytest.approx(0.1), "of the parts before, no report is known"
    assert found[0.1] == found[0.15] == pytest.approx(0.9)
    assert found[0.5] == pytest.approx(0.1)
    assert found[1.0] == pytest.approx(0.0)
    assert steps_of(series for _, series in trials) == 10
    assert steps_of([*(series for _, series in trials), [(1, 0.0)]]) is None
    assert curve_of([], mode) == []  # type: ignore[arg-type]
