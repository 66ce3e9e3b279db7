"""`scaling.driver`: what a trial takes that starts a Ray Train run."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.space.amounts import Needs
from raysweep.specs import Resources, Scaling, SweepSpec, TrainSpec

FOUR: dict[str, Any] = {"num_workers": 4, "resources": {"cpu": 2}}
TWO_GPUS: dict[str, Any] = {"num_workers": 2, "resources": {"cpu": 0, "gpu": 1}}


def spec(**fields: Any) -> SweepSpec:
    fields = {"metric": "loss", "mode": "min", "param_space": {"x": 1}, **fields}
    return SweepSpec(name="t", trainable="m:f", **fields)


@pytest.mark.parametrize(
    ("scaling", "driver", "bundles", "is_head_empty"),
    [
        (FOUR, {}, [{"CPU": 2.0}] * 4, True),
        (FOUR, {"cpu": 1}, [{"CPU": 1.0}, *[{"CPU": 2.0}] * 4], False),
        (FOUR, {"memory": 5e8}, [{"memory": 5e8}, *[{"CPU": 2.0}] * 4], False),
        (FOUR, {"custom": {"safe": 0.01}}, [{"safe": 0.01}, *[{"CPU": 2.0}] * 4], False),
        (TWO_GPUS, {}, [{"GPU": 1.0}] * 2, True),
        ({}, {}, [{"CPU": 1.0}], True),
        (FOUR, {"data_cpus": 3}, [*[{"CPU": 2.0}] * 4, {"CPU": 3.0}], True),
        (TWO_GPUS, {"cpu": 1, "data_cpus": 1}, [{"CPU": 1.0}, *[{"GPU": 1.0}] * 2, {"CPU": 1.0}], False),
    ],
)
def test_a_trial_takes_what_its_workers_take_and_the_driver_what_is_given_for_it(
    scaling: dict[str, Any], driver: dict[str, Any], bundles: list[dict[str, float]], is_head_empty: bool
) -> None:
    asked = spec(scaling={**scaling, "driver": driver})
    assert [*asked.trial_resources.shape().bundles] == bundles
    assert asked.trial_resources.shape().is_head_empty == is_head_empty
    assert SweepSpec.from_json(asked.to_json()) == asked
    assert asked.gang is None


def test_the_workers_say_how_all_are_placed() -> None:
    asked = spec(scaling={**FOUR, "placement_strategy": "STRICT_SPREAD", "driver": {}})
    assert asked.trial_resources.strategy == "STRICT_SPREAD"


def test_a_scaling_config_of_ray_is_taken() -> None:
    from ray.train import ScalingConfig

    asked = ScalingConfig(num_workers=3, use_gpu=True, placement_strategy="SPREAD")
    resources = spec(scaling=Scaling.model_validate(asked).replace(driver={})).trial_resources
    assert [*resources.shape().bundles] == [{"GPU": 1.0}] * 3
    assert resources.strategy == "SPREAD"


def test_more_memory_for_a_retry_is_the_drivers() -> None:
    resources = spec(scaling={**FOUR, "driver": {"memory": 5}}).trial_resources
    assert [*resources.shape(Needs(memory_bytes=7)).bundles] == [{"memory": 7.0}, *[{"CPU": 2.0}] * 4]


def test_labels_of_the_driver_stand_in_place_of_those_of_all() -> None:
    driver = {"cpu": 1, "label_selector": {"kind": "on-demand"}}
    asked = spec(scaling={**FOUR, "label_selector": {"kind": "spot"}, "driver": driver})
    selectors = [{"kind": "on-demand"}, *[{"kind": "spot"}] * 4]
    assert [*asked.trial_resources.shape().label_selectors] == selectors
    assert [*Resources(cpu=1, label_selector={"a": "b"}).shape().label_selectors] == [{"a": "b"}]


@pytest.mark.parametrize(
    ("scaling", "field", "fix"),
    [
        ({"driver": {}, "backend": "torch"}, "scaling.backend", "leave it out"),
        ({"driver": {"label_selector": {"a": "b"}}}, "scaling.driver.label_selector", "memory"),
        ({"driver": {}, "workers": 2}, "scaling.workers", "num_workers"),
        ({"driver": {"dataset_cpus": 2}}, "scaling.driver.dataset_cpus", "did you mean 'data_cpus'?"),
        ({"driver": {"data_cpus": -1}}, "scaling.driver.data_cpus", ">= 0"),
        ({"driver": {}, "num_workers": [1, 4]}, "scaling.num_workers", "ScalingConfig may have a range"),
        ({"data_cpus": 2}, "scaling.data_cpus", "did you mean 'scaling.driver.data_cpus'?"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_write(scaling: dict[str, Any], field: str, fix: str) -> None:
    with pytest.raises(SpecError) as refused:
        spec(scaling=scaling)
    assert field in str(refused.value)
    assert fix in str(refused.value)


def test_names_of_earlier_versions_are_refused_with_the_present_ones() -> None:
    with pytest.raises(SpecError, match=r"^resources\.train: .* 'scaling, with driver: {}'"):
        spec(resources={"train": FOUR})
    with pytest.raises(
        SpecError, match=r"^resources\.driver_label_selector: .* 'scaling\.driver\.label_selector'"
    ):
        spec(resources={"driver_label_selector": {"a": "b"}})


def test_a_training_has_no_driver_of_its_own() -> None:
    with pytest.raises(SpecError, match=r"^scaling\.driver: applies only to trials of a sweep"):
        TrainSpec(trainable="m:f", scaling={"driver": {}})


def test_a_trial_knows_which_of_its_bundles_are_its_workers_and_which_its_datas() -> None:
    pytest.importorskip("ray")
    from raysweep.cluster.preparation import inner_room

    room = inner_room(spec(scaling={**FOUR, "driver": {"cpu": 1, "data_cpus": 3}}))
    assert (room.first, len(room.bundles), room.data_cpus, room.data_bundle) == (1, 4, 3, 5)
    room = inner_room(spec(scaling={**FOUR, "driver": {}}))
    assert (room.first, len(room.bundles), room.data_cpus) == (0, 4, 0)


def test_the_driver_runs_where_there_is_a_ray() -> None:
    assert spec(scaling={**TWO_GPUS, "driver": {}}).effective_isolation == "worker"
    assert spec(resources={"gpu": 1}).effective_isolation == "process"
    assert spec(scaling={**FOUR, "driver": {}}, isolation="actor").effective_isolation == "actor"
    with pytest.raises(SpecError, match="isolation: a forked process has no Ray"):
        spec(scaling={**FOUR, "driver": {}}, isolation="process")
    with pytest.raises(SpecError, match="isolation: inline trials hold no resources"):
        spec(scaling={**FOUR, "driver": {}}, isolation="inline", max_concurrent_trials=1)
