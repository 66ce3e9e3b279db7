"""A training that falls below its prediction ends early and has no model: on a real local Ray."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.errors import TrainingFailedError
from raysweep.step import brief
from tests.engine.recorded_trainings import walk
from tests.engine.trainings import spec_maker

pytest.importorskip("ray")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("ray_cluster"),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
]

STEPS = 30
BELOW: dict[str, Any] = {
    "verdict": "carries",
    "metric": "loss",
    "mode": "min",
    "score": -1.0,
    "score_low": -1.1,
    "score_high": -0.9,
    "steps": STEPS,
    "curve": [[0.05, 0.0], [1.0, 0.0]],
}


def test_a_run_that_fails_and_is_resumed_falls_where_an_undisturbed_one_does(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    config = {"log": str(log), "steps": STEPS, "pause_s": 0.4, "fails": [4]}
    spec = spec_maker(tmp_path)(walk, config=config, carried=BELOW, stop={"below_prediction": {"reports": 5}})
    with pytest.raises(TrainingFailedError, match="step 4 as the test asks"):
        rs.run_training(spec, key="k")
    outcome = rs.run_training(spec, key="k")
    assert (outcome.status, outcome.ended_by, outcome.resumed) == ("completed", "below_prediction", True)
    # Of the second to the sixth report, two were before the failure.
    assert outcome.history[-1].iteration in (6, 7)
    assert outcome.model_uri is None
    assert outcome.checkpoint_uri is not None, "a person may want to look at it"
    assert outcome.predicted is not None
    assert (outcome.predicted.score, outcome.predicted.is_inside) == (-1.0, False)
    assert outcome.predicted.got == outcome.metrics["loss"]
    told = brief(outcome)
    assert (told["why"], told["model_uri"]) == ("below_prediction", None)
    assert told["predicted"]["got"] == outcome.predicted.got
    assert rs.run_training(spec, key="k") == outcome, "another call starts nothing"
    assert [line.split()[-1] for line in log.read_text().splitlines()] == ["0", "3"]


@pytest.mark.slow
def test_a_run_that_ends_below_before_it_can_be_ended_has_no_model_either(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.touch()
    spec = spec_maker(tmp_path)(
        walk,
        config={"log": str(log), "steps": 3},
        carried=BELOW | {"steps": 3},
        stop={"below_prediction": {"reports": 3}},
    )
    outcome = rs.run_training(spec, key="k")
    assert (outcome.status, outcome.ended_by, outcome.model_uri) == ("completed", "below_prediction", None)
    fine = spec.replace(carried=BELOW | {"steps": 3, "score": 0.3, "score_high": 0.4})
    outcome = rs.run_training(fine, key="fine")
    assert (outcome.ended_by, outcome.model_uri is not None) == ("", True)
