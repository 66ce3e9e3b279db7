"""A sweep without a metric: what it has, what it refuses, and what comes back."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import RaysweepError, SpecError
from raysweep.outcome.showing.formatting import show_conclusion
from raysweep.simulate import simulate
from raysweep.specs import SweepSpec
from raysweep.specs.continuing import Continue
from raysweep.specs.pipeline import PipelineSpec

FIELDS: dict[str, Any] = {
    "name": "models",
    "trainable": "m:f",
    "param_space": {"x": {"choice": [1, 2, 3]}},
    "num_samples": 20,
}


def spec_of(**fields: Any) -> SweepSpec:
    return SweepSpec.model_validate(FIELDS | fields)


def test_its_spec_says_null_and_reads_what_it_says() -> None:
    spec = spec_of()
    written = spec.to_dict()
    assert (written["metric"], written["mode"], spec.search.kind) == (None, None, "random")
    assert SweepSpec.from_any(written) == spec
    assert SweepSpec.from_any(written).digest() == spec.digest()
    assert not spec.replace(num_samples=3).is_ranked
    assert spec.replace(metric="loss", mode="min").is_ranked
    assert spec_of(metric=None, mode=None) == spec


@pytest.mark.parametrize(
    ("fields", "refusal"),
    [
        ({"mode": "max"}, "metric: is required with mode: 'max'; add it"),
        ({"metric": ""}, "metric: is empty"),
        ({"metric": "loss"}, "mode: is required with a metric"),
        ({"search": "tpe"}, "search: without a metric, tpe has nothing to learn from"),
        ({"scheduler": "asha"}, "scheduler: without a metric, asha has nothing to compare"),
        ({"stop": {"target": 1}}, "stop.target: without a metric"),
        ({"stop": {"plateau": {"window": 4}}}, "stop.plateau: without a metric"),
        ({"stop": {"trial_plateau": {}}}, "stop.trial_plateau: without a metric, it requires its own metric"),
        ({"constraints": ["a < 1"]}, "constraints: without a metric"),
        ({"score": "best"}, "score: without a metric"),
        ({"warm_start": "last"}, "warm_start: without a metric"),
        ({"checkpoint": {"keep_top_k": 2}}, "checkpoint.keep_top_k: without a metric"),
        ({"repeat": {"times": 6, "race": "wilcoxon"}}, "repeat.race: without a metric"),
        ({"others": {"a": "min"}}, "others: without a metric"),
    ],
)
def test_what_ranks_trials_is_refused_before_anything_starts(fields: dict[str, Any], refusal: str) -> None:
    with pytest.raises(SpecError, match=f"^{refusal}"):
        spec_of(**fields)


def test_nothing_is_handed_on_from_it() -> None:
    training = {"name": "t", "trainable": "m:f", "config": {}}
    with pytest.raises(SpecError, match="metric: is required: gate and training take the best trial"):
        PipelineSpec.from_parts(FIELDS, training)
    assert PipelineSpec.from_parts(FIELDS).train is None
    with pytest.raises(SpecError, match="without a metric, no trials are the best ones"):
        Continue.model_validate({"extend": {"max_t": 9, "top": 2}}).check_for(spec_of())
    Continue.model_validate({"extend": {"max_t": 9, "trials": [0]}}).check_for(spec_of())


@pytest.mark.parametrize("reports", [{"loss": 1.0}, {"name": "text", "": 3}, {}])
def test_every_config_runs_and_completes_whatever_it_reports(reports: dict[str, Any]) -> None:
    outcome = simulate(spec_of(), lambda config, step: reports or None if step == 1 else None).outcome
    assert (outcome.status, len(outcome), outcome.counts["completed"]) == ("completed", 20, 20)
    assert outcome.found_best is None
    assert all(trial.score is None for trial in outcome.trials)
    assert {name: outcome[0].metrics.get(name) for name in reports} == reports
    assert outcome.top(3) == ()
    assert "best" not in " ".join(show_conclusion(outcome))
    with pytest.raises(RaysweepError, match="has no metric, so no trial is the best"):
        _ = outcome.best


def test_a_misspelt_metric_is_named() -> None:
    with pytest.raises(SpecError, match=r"^metrics: unknown field 'metrics'; did you mean 'metric'\?"):
        SweepSpec(
            name="a", trainable="a:b", param_space={"x": {"uniform": [0, 1]}}, metrics="loss", mode="min"
        )
