"""Metrics that the engine keeps in a training's reports."""

from __future__ import annotations

import pytest

from raysweep.errors import RaysweepError
from raysweep.outcome.training_metrics import END, USED, WORKERS
from raysweep.training.worker_session import returned_metrics


@pytest.mark.parametrize("name", [END, USED, WORKERS, "raysweep/mine"])
def test_a_reserved_metric_is_refused_in_one_line(name: str) -> None:
    with pytest.raises(RaysweepError, match=f"must not begin with raysweep/: '{name}'") as refused:
        returned_metrics({"loss": 1.0, name: 2})
    assert "\n" not in str(refused.value)
