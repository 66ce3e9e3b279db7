"""Several metrics in a spec: how they are written, and what they do not go with."""

from __future__ import annotations

from typing import Any

import jsonschema
import pytest

from raysweep.errors import SpecError
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes
from raysweep.specs.pipeline import PipelineSpec

PLAIN: dict[str, Any] = {
    "name": "s",
    "trainable": "m:f",
    "param_space": {"x": {"uniform": [0, 1]}},
    "num_samples": 4,
}


def spec_of(metric: Any = ("auc", "latency_ms"), mode: Any = ("max", "min"), **fields: Any) -> SweepSpec:
    return SweepSpec.model_validate({**PLAIN, "metric": metric, "mode": mode, **fields})


def test_the_first_metric_ranks_and_the_others_stand_beside_it() -> None:
    spec = spec_of()
    assert (spec.metric, spec.mode, spec.others) == ("auc", "max", {"latency_ms": "min"})
    assert list(spec.objectives.items()) == [("auc", "max"), ("latency_ms", "min")]


def test_it_is_written_as_it_was_given_and_read_back_the_same() -> None:
    spec = spec_of()
    written = spec.to_dict()
    assert (written["metric"], written["mode"]) == (["auc", "latency_ms"], ["max", "min"])
    assert "others" not in written
    again = SweepSpec.from_any(written)
    assert (again, again.digest()) == (spec, spec.digest())


def test_one_metric_as_a_list_of_one_has_the_same_digest() -> None:
    one = spec_of("auc", "max")
    assert spec_of(["auc"], ["max"]).digest() == one.digest()
    assert spec_of(["auc"], ["max"]).to_dict()["metric"] == "auc"
    assert spec_of().digest() != one.digest() != spec_of(["latency_ms", "auc"], ["min", "max"]).digest()


def test_a_copy_keeps_all_metrics_unless_it_is_given_others() -> None:
    spec = spec_of()
    assert spec.replace(seed=3).others == spec.others
    assert spec.replace(metric="loss", mode="min").others == {}
    assert spec.replace(metric=["a", "b"], mode=["min", "max"]).objectives == {"a": "min", "b": "max"}


def test_a_stored_sweep_does_not_go_on_with_other_metrics() -> None:
    unsafe = changes(spec_of(), spec_of(["auc", "size"], ["max", "min"])).unsafe
    assert unsafe == ('metric: ["auc", "latency_ms"] -> ["auc", "size"]',)
    assert changes(spec_of(), spec_of("auc", "max")).unsafe


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"mode": "max"}, "mode: is 'max' for 2 metrics; give one for each, such as [max, min]"),
        ({"mode": ["max"]}, "mode: has 1 for 2 metrics; give one for each, in their order"),
        ({"metric": "auc"}, "mode: has 2 for one metric; give one: min or max"),
        ({"metric": [], "mode": []}, "metric: lists no metric; name at least one"),
        ({"metric": ["auc", 3]}, "metric[1]: expected a metric's name, got 3; write its name"),
        ({"metric": ["auc", "auc"]}, "metric[1]: 'auc' is there twice; leave one of them out"),
        ({"mode": ["max", "least"]}, "mode[1]: 'least' is not known here"),
        ({"mode": ["max", ["min"]]}, "mode[1]: ['min'] is not known here"),
        ({"search": "gp"}, "search: gp searches by one metric; use one of auto, random, grid, tpe, nsga2,"),
        ({"search": "cma_es"}, "search: cma_es searches by one metric"),
        (
            {"scheduler": {"asha": {"max_t": 9}}},
            "scheduler: with several metrics, asha compares trials by one; name it as scheduler.asha.metric",
        ),
        ({"score": "best"}, "score: with several metrics, a trial has no best report"),
        ({"stop": {"target": 0.9}}, "stop.target: with several metrics, a target is a value of one"),
        ({"stop": {"plateau": {"window": 5}}}, "stop.plateau: with several metrics, the front moves where"),
        ({"stop": {"trial_patience": {"reports": 5}}}, "stop.trial_patience: with several metrics, patience"),
        ({"stop": {"trial_plateau": {"std": 0.1}}}, "set stop.trial_plateau.metric"),
        ({"checkpoint": {"keep_top_k": 3}}, "checkpoint.keep_top_k: with several metrics, it would delete"),
    ],
)
def test_what_does_not_go_with_several_metrics_is_refused_with_the_fix(
    fields: dict[str, Any], said: str
) -> None:
    with pytest.raises(SpecError) as refused:
        spec_of(**fields)
    assert said in str(refused.value)


def test_what_names_its_metric_goes_with_several() -> None:
    spec_of(stop={"trial_plateau": {"metric": "auc"}, "trial": {"latency_ms": {"above": 40}}})
    spec_of(search="tests.policies:Blind", constraints=["latency_ms <= 20"])


def test_the_schema_takes_one_or_several() -> None:
    validate = jsonschema.Draft202012Validator(SweepSpec.json_schema()).is_valid
    assert all(validate(spec.to_dict()) for spec in (spec_of(), spec_of("auc", "max")))
    assert not validate(spec_of().to_dict() | {"mode": ["max", "least"]})


def test_moasha_with_one_metric_is_refused() -> None:
    with pytest.raises(SpecError, match=r"scheduler: moasha requires several metrics .got one.; use asha"):
        spec_of("auc", "max", scheduler="moasha")
    assert spec_of(scheduler={"moasha": {"max_t": 9}}).scheduler.kind == "moasha"


def test_nsga3_with_one_metric_is_refused() -> None:
    with pytest.raises(SpecError, match=r"search: nsga3 requires several metrics .got one.; use nsga2"):
        spec_of("auc", "max", search="nsga3")


def test_a_gate_behind_several_metrics_is_refused_before_anything_runs() -> None:
    with pytest.raises(SpecError, match="gate: compares by one metric, and the sweep has 2"):
        PipelineSpec.from_parts(spec_of(), gate={"seeds": 3})
    assert PipelineSpec.from_parts(spec_of()).gate is None
