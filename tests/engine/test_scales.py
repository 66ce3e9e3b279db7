"""A sweep of three scales on a real Ray: the trainable finds its scale, and a kill changes nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from typing import Any

import pytest

import raysweep as rs
from raysweep.runs.across_runs.champions import read_records
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import INLINE, Driver, wait_for
from tests.engine.results import shown
from tests.sampling import first_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(600)]
Lines = Callable[[], list[list[str]]]
MakeSpec = Callable[..., rs.SweepSpec]
SCALES = [{"size": 2}, {"size": 4}, {"size": 8}]


def scaled(make_spec: MakeSpec) -> rs.SweepSpec:
    return make_spec(
        "steps_at_scale",
        {"pause": 0.02, "y": {"loguniform": [1e-3, 1]}},
        num_samples=21,
        scales=SCALES,
        search={"tpe": {"n_startup_trials": 3}},
        scheduler={"asha": {"max_t": 4, "grace_period": 1, "reduction_factor": 2}},
        max_concurrent_trials=1,
    )


@pytest.mark.parametrize("killed_at", first_of([9, 3, 18]))
def test_a_sweep_killed_in_any_scale_ends_as_an_undisturbed_one(
    killed_at: int,
    make_spec: MakeSpec,
    drive: Callable[..., Driver],
    address: str,
    lines: Lines,
    storage: Any,
) -> None:
    spec = scaled(make_spec)
    driver = drive(spec, address=address)
    wait_for(
        lambda: sum(line[0] == "start" for line in lines()) > killed_at or driver.process.poll() is not None
    )
    os.kill(driver.pid, signal.SIGKILL)
    driver.process.wait()

    outcome = rs.run_sweep(spec, key="k")

    assert outcome.generation == 2
    assert [trial.scale["size"] for trial in outcome.trials] == [2] * 7 + [4] * 7 + [8] * 7
    assert outcome.best is not None
    assert outcome.best.scale == {"size": 8}
    assert all(trial.metrics["size"] == trial.scale["size"] for trial in outcome.trials)
    undisturbed = rs.run_sweep(spec.replace(storage_path=f"{storage}-2"), key="k")
    assert shown(outcome) == shown(undisturbed)


@pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*")
def test_a_pipeline_carries_the_best_of_its_gate(make_spec: MakeSpec, storage: Any) -> None:
    from raysweep.pipeline import run_pipeline

    sweep = make_spec(
        "steps_at_scale",
        {"pause": 0, "y": {"loguniform": [1e-3, 1]}},
        num_samples=30,
        scales=SCALES,
        **INLINE,
    )
    train = {
        "trainable": "examples.quick:steps",
        "config": {"steps": 2},
        "scale": {"size": 16},
        "transfer": {"x": "law", "y": "y * scale.size / proxy.size / 2"},
        "storage_path": str(storage),
    }
    gate = {"confirm_top_k": 2, "seeds": 2, "test": "mean"}
    night = run_pipeline({"sweep": sweep, "gate": gate, "train": train}, key="k")
    assert night.gate is not None
    assert night.gate.best is not None
    assert {each.config["size"] for each in night.gate.candidates} == {8}
    assert night.train is not None
    carried = night.train.carried
    assert carried is not None
    assert carried.best == night.gate.best.config
    assert carried.verdict
    assert night.train.config["size"] == 16
    assert night.train.config["y"] == pytest.approx(carried.best["y"])
    again = run_pipeline({"sweep": sweep, "gate": gate, "train": train}, key="k")
    assert again.train == night.train
    [record], _ = read_records(open_store(storage))
    [judged] = record.history
    assert (judged.trained, judged.predicted) == (night.train.run_id, night.train.predicted)
    assert judged.predicted is not None
