"""A law does not depend on units, names, directions and the order of trials."""

from __future__ import annotations

from random import Random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.transfer import fit
from tests.unit.transfer.bowls import SPACE, Bowl

TARGET = {"rows": 300_000.0}
EXAMPLES = settings(max_examples=6, deadline=None)
SEEDS = st.integers(0, 10_000)


def carried(trials: list[dict[str, Any]], space: Any = SPACE, mode: Any = "min", target: Any = None) -> Any:
    return fit(trials, space=space, mode=mode).at(target or TARGET)


def same(first: Any, second: Any) -> None:
    assert first.verdict == second.verdict
    assert first.config == pytest.approx(second.config, rel=1e-4)
    for name, ends in first.intervals.items():
        assert ends == pytest.approx(second.intervals[name], rel=1e-3)


@EXAMPLES
@given(SEEDS, st.floats(0.01, 100), st.floats(-50, 50))
def test_scores_in_another_unit(seed: int, factor: float, offset: float) -> None:
    trials = Bowl(moves=0.05).trials(seed)
    moved = [{**trial, "score": trial["score"] * factor + offset} for trial in trials]
    first, second = carried(trials), carried(moved)
    same(first, second)
    for name in ("score", "score_low", "score_high"):
        expected = getattr(first, name) * factor + offset
        assert getattr(second, name) == pytest.approx(expected, rel=1e-3, abs=1e-3 * factor)


@EXAMPLES
@given(SEEDS)
def test_more_is_better_of_the_negative(seed: int) -> None:
    trials = Bowl(moves=0.05).trials(seed)
    first = carried(trials)
    second = carried([{**trial, "score": -trial["score"]} for trial in trials], mode="max")
    same(first, second)
    assert (second.score, second.score_low) == pytest.approx((-first.score, -first.score_high))


@EXAMPLES
@given(SEEDS)
def test_trials_in_another_order(seed: int) -> None:
    trials = Bowl(moves=0.05).trials(seed)
    mixed = list(trials)
    Random(seed).shuffle(mixed)
    same(carried(trials), carried(mixed))


@EXAMPLES
@given(SEEDS, st.sampled_from([1e-9, 1e-3, 7.0, 1e6]))
def test_scales_in_another_unit(seed: int, factor: float) -> None:
    trials = Bowl(moves=0.05).trials(seed)
    scaled = [{**trial, "scale": {"rows": trial["scale"]["rows"] * factor}} for trial in trials]
    same(carried(trials), carried(scaled, target={"rows": TARGET["rows"] * factor}))


@EXAMPLES
@given(SEEDS)
def test_parameters_of_other_names(seed: int) -> None:
    trials = Bowl(moves=0.05).trials(seed)
    renamed = [
        {**trial, "config": {"z": trial["config"]["lr"], "a": trial["config"]["width"]}} for trial in trials
    ]
    first = carried(trials)
    second = carried(renamed, space={"z": SPACE["lr"], "a": SPACE["width"]})
    assert second.verdict == first.verdict
    expected = {"z": first.config["lr"], "a": first.config["width"]}
    assert second.config == pytest.approx(expected, rel=0.03)


def test_numbers_of_numpy_as_a_data_frame_has_them() -> None:
    trials = Bowl(moves=0.05).trials(1)
    numpy = [
        {
            "scale": {name: np.int64(size) for name, size in trial["scale"].items()},
            "config": {
                name: np.int64(value) if isinstance(value, int) else np.float64(value)
                for name, value in trial["config"].items()
            },
            "score": np.float64(trial["score"]),
        }
        for trial in trials
    ]
    same(carried(trials), carried(numpy, target={"rows": np.int64(300_000)}))
