"""Trainings on TensorFlow itself: `make test-tensorflow` runs this; elsewhere it says why it is skipped."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import raysweep as rs
from raysweep.threads import start_thread
from tests.engine.conftest import wait_for
from tests.engine.optional import skipped_without
from tests.engine.trainings import taken

ray = pytest.importorskip("ray")

pytestmark = [
    pytest.mark.ray,
    pytest.mark.timeout(600),
    pytest.mark.usefixtures("ray_cluster"),
    # Ray Train, which here runs in this process, uses pydantic's older names.
    pytest.mark.filterwarnings(r"ignore::DeprecationWarning:ray\..*"),
    skipped_without("tensorflow"),
]
STEPS = 40


@pytest.fixture
def make_spec(tmp_path: Path) -> Callable[..., rs.TrainSpec]:
    def make(name: str, scaling: dict[str, Any], **config: Any) -> rs.TrainSpec:
        log = tmp_path / f"{name}.log"
        log.touch()
        return rs.TrainSpec(
            name=name,
            trainable="tests.engine.training_tensorflow:digits",
            framework="tensorflow",
            config={"log": str(log), "lr": 0.1, "steps": STEPS, **config},
            scaling=scaling,
            failure={"max_failures": 1},
            storage_path=str(tmp_path / "runs"),
        )

    return make


def said(spec: rs.TrainSpec, word: str) -> list[list[str]]:
    """What follows this word in the lines that the workers noted."""
    lines = [line.split() for line in Path(spec.config["log"]).read_text().splitlines()]
    return [words[1:] for words in lines if words[0] == word]


def begun(spec: rs.TrainSpec) -> list[tuple[int, ...]]:
    """Rank, number of workers and first step of each worker that was started."""
    return sorted(tuple(map(int, words)) for words in said(spec, "begin"))


def weights_of(outcome: rs.TrainOutcome) -> list[Any]:
    with np.load(Path(outcome.model_uri or "") / "weights.npz") as found:
        return [found[name] for name in found.files]


def check_is_one_model(spec: rs.TrainSpec) -> None:
    """In each step two workers had gradients of their own, and then the same sum and the same weights."""
    by_step = defaultdict(dict)
    for step, rank, own, of_all, weights in said(spec, "step"):
        by_step[int(step)][rank] = (own, of_all, weights)
    shared = [ranks for ranks in by_step.values() if len(ranks) == 2]
    assert len(shared) >= STEPS // 2
    for ranks in shared:
        first, second = ranks["0"], ranks["1"]
        assert first[0] != second[0]
        assert first[1:] == second[1:]


def test_a_worker_that_is_killed_changes_nothing_in_the_weights(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    two = {"num_workers": 2}
    calm = make_spec("calm", two)
    hurt = make_spec("hurt", two, dies_at=13, died=str(tmp_path / "died"))
    expected, outcome = (rs.run_training(spec, key="k") for spec in (calm, hurt))
    assert begun(calm) == [(0, 2, 0), (1, 2, 0)]
    assert begun(hurt) == [(0, 2, 0), (0, 2, 10), (1, 2, 0), (1, 2, 10)]
    check_is_one_model(calm)
    check_is_one_model(hurt)
    for mine, other in zip(weights_of(outcome), weights_of(expected), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-5)
    assert outcome.metrics["accuracy"] == expected.metrics["accuracy"] > 0.8


def test_one_worker_and_then_two_train_the_same_model(
    make_spec: Callable[..., rs.TrainSpec], tmp_path: Path
) -> None:
    """With room for two the run grows at a checkpoint; TF_CONFIG then names both."""
    calm = make_spec("calm", {"num_workers": 1})
    elastic = {"num_workers": [1, 2], "resize_interval_s": 0}
    grown = make_spec("grown", elastic, waits_at=7, go=str(tmp_path / "go"))
    expected = rs.run_training(calm, key="k")
    with taken(1) as give_back:
        running = start_thread(lambda: rs.run_training(grown, key="k"), "training")
        wait_for(lambda: said(grown, "stored") or running.done(), timeout_s=120)
        give_back()
        (tmp_path / "go").touch()
        outcome = running.result(300)
    alone, *both = begun(grown)
    step = both[0][2]  # the first checkpoint may have been thought over before there was room
    assert step in (5, 10)
    assert (alone, both) == ((0, 1, 0), [(0, 2, step), (1, 2, step)])
    check_is_one_model(grown)
    for mine, other in zip(weights_of(outcome), weights_of(expected), strict=True):
        np.testing.assert_allclose(mine, other, atol=1e-3)
