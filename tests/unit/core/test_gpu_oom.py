"""`step` where a trial runs out of a GPU's memory: once more with a whole GPU where it had a part of one."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.state.invariants import check
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from raysweep.space.amounts import Needs
from raysweep.specs import Resources
from tests.unit.core.faults import NO_WAIT, kinds
from tests.unit.core.sized import open_all, run_sized
from tests.unit.core.sweep import Sweep, running

GPU_OOM = Failure(origin="gpu_memory", type="OutOfMemoryError", message="CUDA out of memory")


def sharing(trials: int = 3, **fields: Any) -> Sweep:
    """Two slots, on one GPU."""
    if "scaling" not in fields:
        fields.setdefault("resources", {"cpu": 1, "gpu": 0.5})
    fields.setdefault("failure", NO_WAIT)
    sweep = running(2, trials=trials, **fields)
    sweep.send(ev.CapacityChanged, slots=2)
    return sweep


def test_a_trial_that_shared_its_gpu_gets_a_whole_one() -> None:
    sweep = sharing()
    sweep.failed(0, GPU_OOM)
    assert sweep.state.trials[0].needs.size == "gpu=1"
    assert sweep.state.line.hungry_for_memory == 1
    assert any("retried with a whole one" in note for note in sweep.state.notes)
    sweep.send(ev.TimerFired)
    assert (0, "gpu=1") in run_sized(sweep)
    assert sweep.state.line.counts["completed"] == 3
    assert kinds(sweep, 0) == [("retried", "gpu_oom"), ("returned", None)]
    assert sweep.state.line.hungry_for_memory == 0


def test_with_a_whole_gpu_the_config_is_too_large() -> None:
    sweep = sharing(trials=1)
    sweep.failed(0, GPU_OOM)
    sweep.send(ev.TimerFired)
    open_all(sweep)
    sweep.began(0, 2)
    sweep.failed(0, GPU_OOM, attempt=2)
    assert sweep.trial_state(0) == "failed"
    assert kinds(sweep, 0) == [("retried", "gpu_oom"), ("gave_up", "gpu_oom")]
    check(sweep.state)


@pytest.mark.parametrize(
    "fields",
    [
        {"resources": {"gpu": 1}},
        {"resources": {"gpu": 2}},
        {"resources": {"bundles": [{"CPU": 1, "GPU": 0.5}, {"CPU": 1}]}},
        {"scaling": {"num_workers": 2, "resources": {"gpu": 0.5}}},
    ],
    ids=["one", "two", "bundles", "gang"],
)
def test_elsewhere_it_is_not_retried(fields: dict[str, Any]) -> None:
    sweep = sharing(trials=1, **fields)
    sweep.failed(0, GPU_OOM)
    assert sweep.trial_state(0) == "failed"


def test_another_config_does_not_bring_the_part_back() -> None:
    by_config = {"cpu": 1, "gpu": 0.25, "by_config": {"cpu": "x", "gpu": "x / 8"}}
    sweep = Sweep(num_samples=1, resources=by_config, failure=NO_WAIT)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=2)
    sweep.send(ev.ConfigsSuggested, first=0, configs=({"x": 4.0},), is_exhausted=True)
    assert sweep.state.trials[0].needs.size == "cpu=4 gpu=0.5"
    open_all(sweep)
    sweep.began(0)
    sweep.failed(0, GPU_OOM)
    assert sweep.state.trials[0].needs.size == "cpu=4 gpu=1"
    sweep.send(ev.TimerFired)
    assert run_sized(sweep) == [(0, "cpu=4 gpu=1")]


def test_a_whole_gpu_takes_the_place_of_gpu_memory() -> None:
    shared = Resources(gpu_memory=10 * 2**30).with_gpu_part(0.125)
    assert [*shared.shape().bundles] == [{"CPU": 1.0, "GPU": 0.125}]
    assert [*shared.shape(Needs(size="gpu=1")).bundles] == [{"CPU": 1.0, "GPU": 1.0}]
