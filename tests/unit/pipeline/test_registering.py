"""Which model a night registers."""

from __future__ import annotations

import pytest

from raysweep.outcome import GateOutcome, TrainOutcome
from raysweep.pipeline.registering import model_source


@pytest.mark.parametrize(("ended_by", "source"), [("", "/c"), ("deadline", "/c"), ("below_prediction", "")])
def test_a_training_that_fell_below_its_prediction_is_not_registered(ended_by: str, source: str) -> None:
    trained = TrainOutcome.model_validate(
        {
            "run_id": "t",
            "name": "t",
            "status": "completed",
            "ended_by": ended_by,
            "checkpoint_uri": "/c",
            "started_at": 0.0,
            "ended_at": 1.0,
        }
    )
    verdict = GateOutcome.model_construct(promoted=True)
    assert model_source(verdict, trained, is_trained=True) == source
