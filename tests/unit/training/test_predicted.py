"""The score that a law predicts of the trained config, and what ends a run below it."""

from __future__ import annotations

import logging
import math
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome
from raysweep.pipeline.night import with_best
from raysweep.specs import TrainSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.training.predicted import fall_of, predicted_of
from tests.unit.pages.sweeps import store
from tests.unit.training.drifting import SWEEP, drifting

LAW = {"lr": "law", "rounds": "law"}
CARRIED: dict[str, Any] = {
    "verdict": "carries",
    "metric": "loss",
    "mode": "min",
    "score": 1.0,
    "score_low": 0.9,
    "score_high": 1.2,
    "steps": 4,
    "curve": [[0.5, 0.5], [1.0, 0.0]],
}


def curved(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
    """Ten reports, each nearer to the end."""
    ended = drifting(config, 1)
    assert ended is not None
    return {"loss": ended["loss"] + 1 / iteration - 0.1} if iteration <= 10 else None


@pytest.fixture(scope="module")
def swept(tmp_path_factory: pytest.TempPathFactory) -> SweepOutcome:
    folder, _ = store(tmp_path_factory.mktemp("swept"), curved, **SWEEP)
    outcome = folder.read_outcome()
    assert outcome is not None
    return outcome


def train(**fields: Any) -> TrainSpec:
    given = {"trainable": "m:f", "scale": {"rows": 64000}, "transfer": LAW, "stop": {"below_prediction": 2}}
    return TrainSpec.model_validate(given | fields)


def said(spec: TrainSpec) -> CarriedConfig:
    assert spec.carried is not None
    return spec.carried


def test_the_hand_over_has_the_curves_of_the_proxy_scales(swept: SweepOutcome) -> None:
    made = with_best(train(), swept)
    carried = said(made)
    assert carried.is_predicted
    assert (carried.metric, carried.mode, carried.score_of, carried.steps) == ("loss", "min", "last", 10)
    assert dict(map(tuple, carried.curve))[0.5] == pytest.approx(1 / 5 - 0.1)  # type: ignore[arg-type]
    assert TrainSpec.from_json(made.to_json()) == made
    band = fall_of(made).band
    assert band is not None
    assert carried.score is not None
    assert carried.score_high is not None
    end = carried.score + 2 * (carried.score_high - carried.score)
    assert band.bound_at(10) == pytest.approx(end)
    assert band.bound_at(5) == pytest.approx(end + 0.1)


def test_curves_are_read_for_no_other_training(swept: SweepOutcome) -> None:
    carried = said(with_best(train(stop={}), swept))
    assert (carried.curve, carried.steps) == ([], None)
    assert "below_prediction" not in train(stop={}).to_json()


def test_the_score_is_predicted_of_the_config_that_is_trained(swept: SweepOutcome) -> None:
    best = said(with_best(train(), swept))
    worse = said(with_best(train(config={"lr": 1.0}, transfer={"rounds": "law"}), swept))
    assert best.score is not None
    assert worse.score is not None
    away = math.log(1.0 / best.config["lr"])
    assert worse.score - best.score == pytest.approx(0.1 * away * away, rel=0.3)
    unknown = said(with_best(train(config={"act": "tanh"}), swept))
    assert unknown.score is None


def test_a_spec_without_a_law_is_refused() -> None:
    with pytest.raises(SpecError, match=r"stop.below_prediction: requires a predicted score"):
        train(transfer={"lr": "lr / 2"})
    with pytest.raises(SpecError, match=r"stop.below_prediction: requires a predicted score"):
        train(transfer={})
    with pytest.raises(SpecError, match=r"stop.below_prediction.widths"):
        train(stop={"below_prediction": 0})
    with pytest.raises(SpecError, match=r"stop.below_prediction.reports"):
        train(stop={"below_prediction": {"reports": 0}})


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"verdict": "too few"}, "the law's verdict is too few"),
        ({"verdict": "does not carry"}, "the law's verdict is does not carry"),
        ({"score": None}, "the law's verdict is carries"),
        ({"steps": None}, "different numbers of reports"),
    ],
)
def test_one_line_says_that_nothing_is_stopped(
    changes: dict[str, Any], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    spec = train(transfer={}, carried=CARRIED | changes)
    with caplog.at_level(logging.WARNING, logger="raysweep"):
        assert fall_of(spec).band is None
    (record,) = caplog.records
    assert why in record.getMessage()


def test_own_steps_win() -> None:
    spec = train(transfer={}, carried=CARRIED | {"steps": None}, stop={"below_prediction": {"steps": 7}})
    band = fall_of(spec).band
    assert band is not None
    assert band.steps == 7


@pytest.mark.parametrize(
    ("changes", "reports", "last", "got", "is_inside"),
    [
        ({}, [3.0, 1.1], {"loss": 1.1}, 1.1, True),
        ({}, [1.0], {"loss": 1.3}, 1.3, False),
        ({"score_of": "best"}, [3.0, 1.0, 2.0], {"loss": 2.0}, 1.0, True),
        ({"score_of": "best", "mode": "max"}, [3.0, 1.0], {"loss": 2.0}, 3.0, False),
        ({}, [1.0], {"loss": math.nan}, None, None),
        ({}, [], {}, None, None),
    ],
)
def test_what_came_is_the_score_that_a_trial_would_have(
    changes: dict[str, Any], reports: list[float], last: dict[str, Any], got: Any, is_inside: Any
) -> None:
    carried = CarriedConfig.model_validate(CARRIED | changes)
    found = predicted_of(carried, [{"loss": value} for value in reports], last)
    assert found is not None
    assert (found.score, found.got, found.is_inside) == (1.0, got, is_inside)


def test_nothing_is_predicted_without_a_law() -> None:
    assert predicted_of(None, [], {"loss": 1.0}) is None
    assert predicted_of(CarriedConfig(proxy={"rows": 1}, scale={"rows": 2}), [], {"loss": 1.0}) is None
