"""The small JSON of an outcome: always within its limit, and it says what was left out."""

from __future__ import annotations

import json
from typing import Any

import pytest

from raysweep.outcome import SweepOutcome, TrainOutcome
from raysweep.step.brief import brief, size_bytes
from tests.unit.step.outcomes import sweep, trial


@pytest.mark.parametrize(
    ("outcome", "cut", "places"),
    [
        (sweep(), [], 5),
        (sweep(trials=2), [], 2),
        (sweep(trials=0), [], 0),
        (sweep(metrics=200), ["top_k.metrics"], 5),
        (sweep(metrics=1000), ["top_k.metrics", "best.metrics"], 5),
        (sweep(config=40), ["top_k.metrics", "best.metrics", "top_k: 1 of 5"], 1),
        (sweep(config=70), ["top_k.metrics", "best.metrics", "top_k: 0 of 5"], 0),
        (sweep(config=500), ["top_k.metrics", "best.metrics", "top_k: 0 of 5", "best.config"], 0),
    ],
)
def test_a_sweep_fits_into_16_kib(outcome: SweepOutcome, cut: list[str], places: int) -> None:
    small = brief(outcome)
    assert size_bytes(small) <= 16_384
    assert json.loads(json.dumps(small, allow_nan=False)) == small
    assert small["cut"] == cut
    assert len(small["top_k"]) == places
    assert small["outcome_uri"] == "s3://bucket/sweeps/s-1/outcome.json"
    assert small["promoted"] is True
    assert small["gate"]["improvement"] == "Infinity"
    if outcome.best is not None:
        assert small["best"]["score"] == 0.1 * (len(outcome.trials) - 1)
        assert small["best"]["metrics"]["auc"] == small["best"]["score"]


def test_the_best_is_first_and_in_the_form_of_all() -> None:
    small = brief(sweep(), top_k=3)
    assert [each["trial_id"] for each in small["top_k"]] == ["00008", "00007", "00006"]
    assert small["top_k"][0] == small["best"]
    assert set(small["best"]) == {"trial_id", "config", "metrics", "score", "checkpoint_uri"}


def test_a_trial_ranked_by_its_best_report_shows_that_one() -> None:
    best = trial(3).model_copy(update={"best_metrics": {"auc": 0.9}, "score": 0.9})
    outcome = sweep().model_copy(update={"best": best})
    assert brief(outcome)["best"]["metrics"] == {"auc": 0.9}


def test_what_breaks_a_constraint_says_so_and_comes_last() -> None:
    plain = sweep(trials=3)
    bound = "latency_ms <= 20"
    trials = tuple(
        trial.model_copy(update={"violations": {bound: 1.0 if trial.number == 2 else -1.0}})
        for trial in plain.trials
    )
    judged = plain.model_copy(update={"trials": trials, "best": trials[1], "constraints": (bound,)})
    found = brief(judged)["top_k"]
    assert [(each["trial_id"], each.get("violated")) for each in found] == [
        ("00001", None),
        ("00000", None),
        ("00002", [bound]),
    ]
    assert not any("violated" in each for each in brief(plain)["top_k"])


@pytest.mark.parametrize("limit", [1500, 4000, 16_384])
def test_any_limit_holds(limit: int) -> None:
    outcome = sweep(trials=40, metrics=30, config=30, why="w" * 5000)
    assert size_bytes(brief(outcome, top_k=40, max_bytes=limit)) <= limit


def test_a_training_run_fits_too() -> None:
    fields: dict[str, Any] = {
        "run_id": "r-1",
        "name": "r",
        "started_at": 0,
        "ended_at": 1,
        "uri": "/runs/r-1",
    }
    outcome = TrainOutcome(
        **fields,
        status="completed",
        metrics={f"metric_{at}": 0.123456789 for at in range(2000)},
        config={"lr": 0.1},
        model_uri="/runs/r-1/checkpoint_3",
    )
    small = brief(outcome)
    assert size_bytes(small) <= 16_384
    assert (small["cut"], small["config"], small["model_uri"]) == (
        ["metrics"],
        {"lr": 0.1},
        "/runs/r-1/checkpoint_3",
    )
    assert small["outcome_uri"] == "/runs/r-1/train_outcome.json"


@pytest.mark.parametrize("limit", [1500, 16_384])
def test_of_several_metrics_the_front_is_named_within_any_limit(limit: int) -> None:
    trials = tuple(
        each.model_copy(update={"metrics": {"auc": each.score, "size": each.number}})
        for each in sweep(trials=40).trials
    )
    changed = {"trials": trials, "best": trials[-1], "others": {"size": "min"}}
    outcome = sweep(trials=40, why="w" * 5000).model_copy(update=changed)
    assert len(outcome.pareto) == 40
    small = brief(outcome, top_k=40, max_bytes=limit)
    assert size_bytes(small) <= limit
    assert small["others"] == {"size": "min"}
    assert small["pareto"][:2] == ["00039", "00038"]
    assert {"auc", "size"} <= set(small["best"]["metrics"]), "what a person chooses by"
    assert not {"others", "pareto"} & set(brief(sweep()))
