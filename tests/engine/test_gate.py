"""The gate on a real Ray, night after night."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.ray.connection import RayConnection
from raysweep.outcome import GateOutcome, PipelineOutcome
from raysweep.pipeline import run_gate, run_pipeline
from raysweep.runs.across_runs.champions import Line, read_champion
from raysweep.runs.across_runs.releases import roll_back
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import INLINE

pytestmark = pytest.mark.ray


def test_the_champion_runs_on_tonights_data_and_is_lost_where_it_does_not_run(
    ray_cluster: RayConnection, make_spec: Callable[..., rs.SweepSpec], lines: Callable[[], list[list[str]]]
) -> None:
    def night(day: int, *values: float, broken: float = -1.0) -> GateOutcome:
        space: dict[str, Any] = {"x": {"grid_search": list(values)}, "day": day, "broken": broken}
        failure = {"max_failures": 0, "max_failed_fraction": 0.2}
        spec = make_spec("dated", space, num_samples=1, failure=failure, **INLINE)
        outcome = rs.run_sweep(spec, key=f"night {day}")
        return run_gate(spec, outcome, GateSpec(confirm_top_k=1, seeds=2))

    assert night(1, 0.2, 0.5).promoted
    worse = night(2, 0.4)
    assert not worse.promoted
    assert [line for line in lines() if line == ["ran", "0.2", "2"]] == [["ran", "0.2", "2"]] * 2
    assert worse.champion is not None
    assert worse.champion.scores == (0.2, 0.2)

    lost = night(3, 0.3, broken=0.2)
    assert lost.promoted
    assert lost.why.startswith("promoted: ")
    assert "does not run any more: 2 of 2 seeds failed (KeyError: 'depth')" in lost.why
    # The night after is one like any other.
    assert "is 0.0500 better than the champion's 0.3000 (night of night 3)" in night(4, 0.25).why
    spec = make_spec("dated")
    line = Line(name=spec.name, metric=spec.metric, mode=spec.mode)
    champion = read_champion(open_store(spec.storage_path), line).champion
    assert champion is not None
    assert champion.config["x"] == 0.25
    assert champion.replaced is not None
    assert champion.replaced.config["x"] == 0.3


def test_a_night_that_is_asked_again_after_its_rollback_is_not_trained(
    ray_cluster: RayConnection, make_spec: Callable[..., rs.SweepSpec]
) -> None:
    def night(day: int, value: float, **train: Any) -> PipelineOutcome:
        space = {"x": {"grid_search": [value]}, "day": day, "broken": -1.0}
        spec = make_spec("dated", space, num_samples=1, **INLINE)
        return run_pipeline({"sweep": spec, "gate": {"confirm_top_k": 1, "seeds": 2}, **train}, key=f"n{day}")

    assert night(1, 0.5).sweep.promoted
    sweep = night(2, 0.4).sweep
    assert sweep.promoted
    storage = sweep.uri.rpartition("/")[0]
    roll_back(open_store(storage), Line(name=sweep.name, metric=sweep.metric, mode=sweep.mode), by="ann")
    again = night(2, 0.4, train={"trainable": "examples.quick:steps", "storage_path": storage})
    assert (again.sweep.sweep_id, again.sweep.promoted, again.train) == (sweep.sweep_id, False, None)
    assert "rolled back by ann" in again.skipped
