"""Bad input to a law: one line with the field, the value and the fix."""

from __future__ import annotations

import math
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.transfer import fit
from tests.unit.transfer.bowls import SPACE, Bowl

TRIALS = Bowl().trials(0)


def changed(number: int, **fields: Any) -> list[dict[str, Any]]:
    trials = [dict(trial) for trial in TRIALS]
    trials[number] |= fields
    return trials


@pytest.mark.parametrize(
    ("trials", "field", "said"),
    [
        ([], "trials", "is empty"),
        ({"scale": {}}, "trials", "expected a list"),
        ([7], "trials[0]", "expected a mapping, got 7"),
        ([{"scale": {"rows": 1}, "config": {"lr": 1}}], "trials[0].score", "is required"),
        (changed(3, scale={}), "trials[3].scale", "expected names and values"),
        (changed(3, scale={"row": 5}), "trials[3].scale", "has no 'rows'"),
        (changed(3, scale={"rows": 5, "tokens": 1}), "trials[3].scale", "'tokens' is not a scale"),
        (changed(3, scale={"rows": 0}), "trials[3].scale.rows", "must be a number > 0, got 0"),
        (changed(3, scale={"rows": "many"}), "trials[3].scale.rows", "got 'many'"),
        (changed(3, scale={"rows": 10**400}), "trials[3].scale.rows", "must be a number > 0"),
        (changed(3, scale={"rows": 5, 7: 1}), "trials[3].scale", "the name of a scale is a text, got 7"),
        (changed(0, scale={"rows": 5, None: 1}), "trials[0].scale", "is a text, got None"),
        (changed(3, status="stopped", step=10**400), "trials[3].step", "must be a number > 0"),
        (changed(3, config={"lr": 10**400, "width": 1.0}), "trials[3].config.lr", "is not in its domain"),
        (changed(3, score="good"), "trials[3].score", "expected a number or null, got 'good'"),
        (changed(3, config={"lr": 0.01}), "trials[3].config", "has no 'width'"),
        (changed(3, config={"lr": "x", "width": 1.0}), "trials[3].config.lr", "'x' is not in its domain"),
        (changed(3, scor=1), "trials[3]", "unknown field 'scor'"),
        ([trial | {"score": math.nan} for trial in TRIALS], "trials", "none of the 36 trials has a finite"),
        ([trial | {"score": None} for trial in TRIALS], "trials", "none of the 36 trials has a finite"),
        (TRIALS[:12], "trials", "one scale (rows=10000); a law needs two scales or more"),
    ],
)
def test_trials_that_no_law_can_be_made_of(trials: Any, field: str, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        fit(trials, space=SPACE, mode="min")
    assert refused.value.field == field
    assert said in refused.value.problem
    assert refused.value.fix
    assert "\n" not in str(refused.value)


def test_a_space_or_a_mode_that_is_none() -> None:
    with pytest.raises(SpecError, match=r"space\.lr.*lower bound") as refused:
        fit(TRIALS, space={"lr": {"loguniform": [1, 0.1]}}, mode="min")
    assert refused.value.field.startswith("space")
    with pytest.raises(SpecError, match="mode: 'most' is not known here"):
        fit(TRIALS, space=SPACE, mode="most")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("target", "said"),
    [
        ({}, "has no 'rows'"),
        ({"row": 5}, "has no 'rows'"),
        ({"rows": 5, "tokens": 7}, "'tokens' is not a scale of the trials"),
        ({"rows": 10**400}, "must be a number > 0"),
        ({"rows": -5}, "must be a number > 0, got -5"),
        (7, "expected a mapping, got 7"),
    ],
)
def test_a_target_of_other_scales(target: Any, said: str) -> None:
    with pytest.raises(SpecError) as refused:
        fit(TRIALS, space=SPACE, mode="min").at(target)
    assert said in refused.value.problem
    assert refused.value.field.startswith("target")


def test_all_scores_alike_are_refused_by_the_verdict() -> None:
    carried = fit([trial | {"score": 0.5} for trial in TRIALS], space=SPACE, mode="min").at({"rows": 1e6})
    assert carried.verdict == "does not carry"
    assert carried.score == pytest.approx(0.5, abs=1.0)


def test_a_score_too_large_for_a_float_is_one_that_diverged() -> None:
    given = changed(3, score=10**400)
    assert fit(given, space=SPACE, mode="min").at({"rows": 1e6}) == fit(
        changed(3, score=math.inf), space=SPACE, mode="min"
    ).at({"rows": 1e6})
