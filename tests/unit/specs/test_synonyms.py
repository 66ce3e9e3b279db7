"""Words of Ray Tune and Ray Train that a spec accepts: each beside the spec's own, and not with it."""

from __future__ import annotations

from typing import Any

import pytest

import raysweep as rs
from raysweep.documents.synonyms import SYNONYMS
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.policies import BestCheckpoints

CPU2, GANG = {"cpu": 2}, {"num_workers": 2}
CASES: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("SweepFields", {"resources_per_trial": {"cpu": 2}}, {"resources": CPU2}),
    ("SweepFields", {"scaling_config": GANG}, {"scaling": GANG}),
    ("SweepFields", {"num_workers": 2}, {"scaling": GANG}),
    ("SweepFields", {"search_alg": "tpe"}, {"search": "tpe"}),
    ("SweepFields", {"searcher": {"tpe": {}}}, {"search": "tpe"}),
    ("SweepFields", {"points_to_evaluate": [{"x": 0.5}]}, {"points": [{"x": 0.5}]}),
    ("SweepFields", {"max_concurrent": 3}, {"max_concurrent_trials": 3}),
    ("SweepFields", {"time_budget_s": 60}, {"stop": {"time_budget_s": 60}}),
    ("SweepFields", {"failure_config": {"max_failures": 2}}, {"failure": {"max_failures": 2}}),
    ("SweepFields", {"max_failures": 2}, {"failure": {"max_failures": 2}}),
    ("SweepFields", {"checkpoint_config": {"num_to_keep": 2}}, {"checkpoint": {"keep_last": 2}}),
    ("SweepFields", {"num_to_keep": 2}, {"checkpoint": {"keep_last": 2}}),
    ("SweepFields", {"keep_checkpoints_num": 2}, {"checkpoint": {"keep_last": 2}}),
    ("SweepFields", {"checkpoint_frequency": 5}, {"tune": {"checkpoint_frequency": 5}}),
    ("SweepFields", {"checkpoint_freq": 5}, {"tune": {"checkpoint_frequency": 5}}),
    ("SweepFields", {"checkpoint_at_end": True}, {"tune": {"checkpoint_at_end": True}}),
    ("SweepFields", {"reuse_actors": True}, {"tune": {"reuse_actors": True}}),
    ("TrainFields", {"train_loop_config": {"x": 1}}, {"config": {"x": 1}}),
    ("TrainFields", {"scaling_config": GANG}, {"scaling": GANG}),
    ("TrainFields", {"num_workers": 2}, {"scaling": GANG}),
    ("TrainFields", {"use_gpu": True}, {"scaling": {"resources": {"gpu": 1}}}),
    ("TrainFields", {"resources_per_worker": {"CPU": 2}}, {"scaling": {"resources": CPU2}}),
    ("TrainFields", {"placement_strategy": "SPREAD"}, {"scaling": {"placement_strategy": "SPREAD"}}),
    ("TrainFields", {"resume_from_checkpoint": "s3://b/c"}, {"warm_start_checkpoint": "s3://b/c"}),
    ("TrainFields", {"failure_config": {"max_failures": 2}}, {"failure": {"max_failures": 2}}),
    ("TrainFields", {"max_failures": 2}, {"failure": {"max_failures": 2}}),
    ("TrainFields", {"time_budget_s": 60}, {"stop": {"time_budget_s": 60}}),
    ("ProcessResources", {"resources": {"CPU": 2}}, {"resources": CPU2}),
    ("ProcessResources", {"resources": {"GPU": 2}}, {"resources": {"gpu": 2}}),
    ("ProcessResources", {"resources": {"cpus": 2}}, {"resources": CPU2}),
    ("ProcessResources", {"resources": {"gpus": 2}}, {"resources": {"gpu": 2}}),
    ("ProcessResources", {"resources": {"num_cpus": 2}}, {"resources": CPU2}),
    ("ProcessResources", {"resources": {"num_gpus": 2}}, {"resources": {"gpu": 2}}),
    ("ProcessResources", {"resources": {"custom_resources": {"a": 1}}}, {"resources": {"custom": {"a": 1}}}),
    ("Resources", {"resources": {"placement_strategy": "SPREAD"}}, {"resources": {"strategy": "SPREAD"}}),
    ("Scaling", {"scaling": {"resources_per_worker": {"CPU": 2}}}, {"scaling": {"resources": CPU2}}),
    ("Scaling", {"scaling": {"use_gpu": True}}, {"scaling": {"resources": {"gpu": 1}}}),
    ("StopPolicy", {"stop": {"training_iteration": 9}}, {"stop": {"trial": {"training_iteration": 9}}}),
    ("CheckpointPolicy", {"checkpoint": {"num_to_keep": 2}}, {"checkpoint": {"keep_last": 2}}),
    ("SchedulerSpec", {"scheduler": "async_hyperband"}, {"scheduler": "asha"}),
    ("SchedulerSpec", {"scheduler": {"asynchyperband": {"max_t": 9}}}, {"scheduler": {"asha": {"max_t": 9}}}),
    ("SchedulerSpec", {"scheduler": "median_stopping_rule"}, {"scheduler": "median_stopping"}),
    ("SchedulerSpec", {"scheduler": "medianstopping"}, {"scheduler": "median_stopping"}),
    ("TrainFailure", {"failure": {"max_preemption_failures": 2}}, {"failure": {"max_preemptions": 2}}),
]  # fmt: skip
APART = {"train_loop_per_worker", "checkpoint_score_attribute", "checkpoint_score_order"}
"""Words with a test of their own."""


def spec(model: str, fields: dict[str, Any]) -> SweepSpec | TrainSpec:
    if model.startswith("Train"):
        return TrainSpec.from_any({"trainable": "m:f"} | fields)
    plain = {"name": "n", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}}
    return SweepSpec.from_any(plain | {"metric": "loss", "mode": "min"} | fields)


@pytest.mark.parametrize(("model", "theirs", "own"), CASES, ids=lambda each: str(each)[:60])
def test_a_word_of_rays_means_the_field(model: str, theirs: dict[str, Any], own: dict[str, Any]) -> None:
    found = spec(model, theirs)
    assert found == spec(model, own)
    assert found.digest() == spec(model, own).digest()
    assert SweepSpec.from_any(found.to_dict()) == found if isinstance(found, SweepSpec) else True


@pytest.mark.parametrize(("model", "theirs", "own"), CASES, ids=lambda each: str(each)[:60])
def test_both_at_once_are_refused(model: str, theirs: dict[str, Any], own: dict[str, Any]) -> None:
    if model == "SchedulerSpec" or "use_gpu" in str(theirs):
        return  # one kind alone is said; and Ray has both
    with pytest.raises(SpecError, match=r"another name of \S+, which is given too; keep one of the two"):
        spec(model, merged(theirs, own))


def merged(one: dict[str, Any], other: dict[str, Any]) -> dict[str, Any]:
    both = {
        name: merged(one[name], other[name]) for name in one if name in other and one[name] != other[name]
    }
    return one | other | both


def test_each_word_has_a_case() -> None:
    words = {word for model in SYNONYMS.values() for word in model}
    assert {word for word in words - APART if f"'{word}'" not in str(CASES)} == set()


def test_two_words_for_one_field_are_refused() -> None:
    with pytest.raises(SpecError, match=r"and num_to_keep are two names of checkpoint\.keep_last; keep one"):
        spec("SweepFields", {"num_to_keep": 2, "keep_checkpoints_num": 2})
    with pytest.raises(SpecError, match=r"^resources\.num_cpus: and CPU are two names of cpu"):
        spec("Resources", {"resources": {"CPU": 1, "num_cpus": 1}})


def test_use_gpu_says_that_there_is_one_as_in_ray() -> None:
    given = {"use_gpu": True, "resources_per_worker": {"CPU": 3, "GPU": 2}, "num_workers": 2}
    assert rs.Scaling.model_validate(given) == rs.Scaling(num_workers=2, resources={"cpu": 3, "gpu": 2})
    for wrong, says in (
        ({"use_gpu": False, "resources": {"gpu": 1}}, r"use_gpu: is false, and resources\.gpu is 1"),
        ({"use_gpu": True, "resources": {"gpu": 0}}, r"use_gpu: is true, and resources\.gpu is 0"),
        ({"use_gpu": "yes"}, r"use_gpu: expected true or false, got 'yes'"),
    ):
        with pytest.raises(SpecError, match=says):
            rs.Scaling.model_validate(wrong)


def test_parts_that_are_models_already_take_a_word_beside_them() -> None:
    stop = SweepSpec.from_any({**spec("SweepFields", {}).to_dict(), "stop": {"target": 1.0}}).stop
    given = spec("SweepFields", {"stop": stop.model_copy(), "resources_per_trial": rs.Resources(cpu=2)})
    assert isinstance(given, SweepSpec)
    assert (given.stop.target, given.resources.cpu) == (1.0, 2.0)
    with pytest.raises(SpecError, match=r"time_budget_s: is another name of stop\.time_budget_s"):
        spec("SweepFields", {"stop": {"time_budget_s": 3}, "time_budget_s": 3})


def test_the_best_checkpoints_and_the_loop_have_rays_words_too() -> None:
    own = BestCheckpoints(metric="auc", mode="max", num=2)
    theirs = {"checkpoint_score_attribute": "auc", "checkpoint_score_order": "max", "num_to_keep": 2}
    assert BestCheckpoints.model_validate(theirs) == own
    assert TrainSpec.from_any({"train_loop_per_worker": "m:f"}).trainable == "m:f"


def test_a_preemption_without_a_limit_is_minus_one_in_ray() -> None:
    found = spec("TrainFailure", {"failure": {"max_preemption_failures": -1}})
    assert isinstance(found, TrainSpec)
    assert found.failure.max_preemptions is None
