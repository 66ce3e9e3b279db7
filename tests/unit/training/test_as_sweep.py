"""The sweep of one trial that a training is: its spec, and its outcome as a training's."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest

from raysweep.outcome import ErrorInfo, SweepOutcome, TrialOutcome, Usage
from raysweep.outcome.training_metrics import END, USED, WORKERS
from raysweep.search import make_searcher
from raysweep.specs import TrainSpec
from raysweep.training.as_sweep import CHECKPOINTS_KEPT, sweep_of
from raysweep.training.sweep_outcome import (
    MAX_ROW_BYTES,
    MAX_ROWS,
    history_of,
    outcome_of,
)

LOOKS_LIKE_DOMAINS = {"a": {"choice": [1, 2]}, "b": {"uniform": [0, 1]}, "c": {"d": {"grid_search": [1]}}}


@pytest.mark.parametrize("config", [{"lr": 0.1, "layers": [8, {"n": None}]}, LOOKS_LIKE_DOMAINS])
def test_the_trial_has_the_config_of_the_training(config: dict[str, Any]) -> None:
    searcher = make_searcher(sweep_of(TrainSpec(trainable="m:f", config=config), "m:body"), seed=3)
    assert searcher.total == 1
    assert searcher.ask(0) == config


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"config": {"betas": (0.9, 0.99)}},
        {"scaling": {"num_workers": [2, 8], "resources": {"cpu": 0.5, "gpu": 0.25}}},
        {"scaling": {"num_workers": 3, "label_selector": {"zone": "a"}, "pin_cpus": True}},
        {"framework": "torch", "datasets": {"train": "m:data"}, "schedule": [{"from": 0, "config": {}}]},
        {"stop": {"deadline": "06:00 Europe/Berlin", "time_budget_s": 60}},
        {"failure": {"max_failures": 3, "max_worker_deaths": 2, "max_preemptions": 1}},
        {"warm_start_checkpoint": "s3://b/s/checkpoints/00000/1"},
    ],
)
def test_each_training_is_one_trial_that_keeps_two_checkpoints(fields: dict[str, Any]) -> None:
    train = TrainSpec(trainable="m:f", name="full", tags={"team": "a"}, **fields)
    spec = sweep_of(train, "m:body")
    assert make_searcher(spec, seed=0).total == 1
    assert (spec.name, spec.storage_path, spec.tags) == ("full", train.storage_path, {"team": "a"})
    assert spec.checkpoint.keep_last == CHECKPOINTS_KEPT == 2
    assert spec.is_inline
    assert spec.failure.max_failures == 0, "the body retries"
    assert not spec.is_ranked


def report(iteration: int, **metrics: Any) -> dict[str, Any]:
    own = {"trial_id": "00000", "number": 0, "attempt": 1, "at": float(iteration), "overrun": False}
    return {**own, "iteration": iteration, **metrics}


def steps(first: int, last: int) -> Iterator[dict[str, Any]]:
    return (report(step, step=step) for step in range(first, last + 1))


def test_what_an_attempt_repeats_counts_once_and_the_last_row_is_no_report() -> None:
    reports = [*steps(1, 5), report(4, step=40), report(5, step=50), report(6, **{END: {}})]
    found = history_of(reports, workers=2)
    assert [each.metrics["step"] for each in found] == [1, 2, 3, 40, 50]
    assert [(each.iteration, each.at, each.workers) for each in found][-1] == (5, 5.0, 2)


@pytest.mark.parametrize("number", [MAX_ROWS, MAX_ROWS + 1, 5 * MAX_ROWS + 7])
def test_of_many_reports_every_nth_and_the_last_are_kept(number: int) -> None:
    kept = [each.iteration for each in history_of(steps(1, number), workers=1)]
    assert MAX_ROWS / 2 <= len(kept) <= MAX_ROWS + 1
    assert (kept[0], kept[-1]) == (1, number)
    assert len({after - before for before, after in pairwise(kept[:-1])}) == 1


def test_a_report_is_cut_to_what_fits_and_says_how_many_workers_there_were() -> None:
    more = {WORKERS: 3, USED: {"cpu_hours": 1.0}, "metrics/number": 7}
    (found,) = history_of([report(1, text="x" * MAX_ROW_BYTES, auc=1.0, **more)], workers=None)
    assert (found.metrics, found.workers) == ({"auc": 1.0, "number": 7}, 3)


def ended(state: Any, last: dict[str, Any], error: ErrorInfo | None = None) -> SweepOutcome:
    trial = TrialOutcome(
        trial_id="00000",
        number=0,
        state=state,
        metrics=last,
        error=error,
        checkpoint_uri="runs/t/checkpoints/00000/2",
    )
    return SweepOutcome(
        sweep_id="t-1",
        name="t",
        key="k",
        status="completed",
        metric="",
        mode="min",
        trials=(trial,),
        started_at=1.0,
        ended_at=9.0,
        usage=Usage(cpu_hours=7.0, active_s=8.0),
        uri="runs/t-1",
    )


TRAIN = TrainSpec(trainable="m:f", name="t", config={"lr": 0.1})


def test_a_training_that_ended_well() -> None:
    end = {"metrics": {"loss": 0.5, "done": True}, "resumed": True, "ended_by": "deadline", "error": None}
    last = {"loss": 0.5, "training_iteration": 4, USED: {"cpu_hours": 2.0, "gpu_hours": 1.0}, END: end}
    found = outcome_of(TRAIN, ended("completed", last), steps(1, 3), started_at=5.0, model_uri="runs/t-1/m")
    assert (found.run_id, found.key, found.status, found.ended_by, found.resumed) == (
        "t-1", "k", "completed", "deadline", True
    )  # fmt: skip
    assert found.metrics == {"loss": 0.5, "done": True}
    assert (found.model_uri, found.checkpoint_uri) == ("runs/t-1/m", "runs/t/checkpoints/00000/2")
    assert found.usage == Usage(cpu_hours=2.0, gpu_hours=1.0, active_s=8.0)
    assert (found.started_at, found.ended_at, len(found.history)) == (5.0, 9.0, 3)
    assert found.config == {"lr": 0.1}


@pytest.mark.parametrize("has_said", [True, False])
def test_a_failed_training_has_the_error_of_its_workers_or_what_the_sweep_knows(has_said: bool) -> None:
    said = ErrorInfo(kind="worker_died", type="ActorDiedError", message="a worker died: killed")
    known = ErrorInfo(kind="user_error", type="TrainingStoppedError", message="a worker died: killed")
    last = {"loss": 0.5, END: {"error": said.model_dump()}} if has_said else {"loss": 0.5}
    found = outcome_of(TRAIN, ended("failed", last, known), (), started_at=5.0, model_uri="runs/t-1/m")
    assert (found.status, found.error, found.model_uri) == ("failed", said if has_said else known, None)
    assert found.metrics == {"loss": 0.5}
