"""`resources.train`: what a trial takes that starts a Ray Train run."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.specs import Resources, Scaling, SweepSpec

FOUR: dict[str, Any] = {"num_workers": 4, "resources": {"cpu": 2}}
TWO_GPUS: dict[str, Any] = {"num_workers": 2, "resources": {"cpu": 0, "gpu": 1}}


def spec(**fields: Any) -> SweepSpec:
    fields = {"metric": "loss", "mode": "min", "param_space": {"x": 1}, **fields}
    return SweepSpec(name="t", trainable="m:f", **fields)


@pytest.mark.parametrize(
    ("given", "bundles", "is_head_empty"),
    [
        ({"train": FOUR}, [{"CPU": 2.0}] * 4, True),
        ({"train": FOUR, "cpu": 1}, [{"CPU": 1.0}, *[{"CPU": 2.0}] * 4], False),
        ({"train": FOUR, "cpu": 0, "memory": 5e8}, [{"memory": 5e8}, *[{"CPU": 2.0}] * 4], False),
        ({"train": FOUR, "custom": {"safe": 0.01}}, [{"safe": 0.01}, *[{"CPU": 2.0}] * 4], False),
        ({"train": TWO_GPUS}, [{"GPU": 1.0}] * 2, True),
        ({"train": {}}, [{"CPU": 1.0}], True),
        ({"train": {**FOUR, "data_cpus": 3}}, [*[{"CPU": 2.0}] * 4, {"CPU": 3.0}], True),
        (
            {"train": {**TWO_GPUS, "data_cpus": 1}, "cpu": 1},
            [{"CPU": 1.0}, *[{"GPU": 1.0}] * 2, {"CPU": 1.0}],
            False,
        ),
    ],
)
def test_a_trial_takes_what_its_workers_take_and_the_driver_what_is_given_for_it(
    given: dict[str, Any], bundles: list[dict[str, float]], is_head_empty: bool
) -> None:
    resources = Resources.model_validate(given)
    assert resources.to_bundles() == bundles
    assert resources.is_head_empty == is_head_empty
    assert Resources.model_validate(resources.model_dump(mode="json")) == resources
    assert resources.replace(label_selector={}) == resources


def test_the_workers_say_how_all_are_placed() -> None:
    resources = Resources.model_validate({"train": {**FOUR, "placement_strategy": "STRICT_SPREAD"}})
    assert resources.strategy == "STRICT_SPREAD"


def test_a_scaling_config_of_ray_is_taken() -> None:
    from ray.train import ScalingConfig

    resources = Resources.model_validate(
        {"train": ScalingConfig(num_workers=3, use_gpu=True, placement_strategy="SPREAD")}
    )
    assert resources.to_bundles() == [{"GPU": 1.0}] * 3
    assert resources.strategy == "SPREAD"


def test_labels_of_the_driver_stand_in_place_of_those_of_all() -> None:
    labels = {"label_selector": {"kind": "spot"}, "driver_label_selector": {"kind": "on-demand"}}
    resources = Resources.model_validate({"train": FOUR, "cpu": 1, **labels})
    assert resources.to_label_selectors() == [{"kind": "on-demand"}, *[{"kind": "spot"}] * 4]
    assert Resources(cpu=1, label_selector={"a": "b"}).to_label_selectors() == [{"a": "b"}]


@pytest.mark.parametrize(
    ("given", "field", "fix"),
    [
        ({"train": FOUR, "bundles": [{"CPU": 1}]}, "resources.bundles", "remove bundles"),
        ({"train": FOUR, "strategy": "SPREAD"}, "resources.strategy", "remove strategy"),
        ({"train": {**FOUR, "backend": "torch"}}, "resources.train.backend", "leave it out"),
        ({"driver_label_selector": {"a": "b"}}, "resources.driver_label_selector", "give train"),
        ({"train": FOUR, "driver_label_selector": {"a": "b"}}, "resources.driver_label_selector", "memory"),
        ({"train": {"workers": 2}}, "resources.train.workers", "num_workers"),
        ({"train": {"dataset_cpus": 2}}, "resources.train.dataset_cpus", "did you mean 'data_cpus'?"),
        ({"train": {"data_cpus": -1}}, "resources.train.data_cpus", ">= 0"),
        ({"train": {"num_workers": [1, 4]}}, "resources.train.num_workers", "ScalingConfig may have a range"),
    ],
)
def test_what_says_two_things_is_refused_with_what_to_write(
    given: dict[str, Any], field: str, fix: str
) -> None:
    with pytest.raises(SpecError) as refused:
        spec(resources=given)
    assert field in str(refused.value)
    assert fix in str(refused.value)


def test_only_a_run_has_cpus_for_data() -> None:
    with pytest.raises(SpecError, match="unknown field 'data_cpus'"):
        spec(scaling={"num_workers": 2, "data_cpus": 2})


def test_a_scaling_is_taken_as_it_is() -> None:
    assert Resources(train=Scaling(num_workers=2)).to_bundles() == [{"CPU": 1.0}] * 2  # type: ignore[arg-type]


def test_a_trial_knows_which_of_its_bundles_are_its_workers_and_which_its_datas() -> None:
    pytest.importorskip("ray")
    from raysweep.cluster.preparation import inner_room

    room = inner_room(spec(resources={"train": {**FOUR, "data_cpus": 3}, "cpu": 1}))
    assert (room.first, len(room.bundles), room.data_cpus, room.data_bundle) == (1, 4, 3, 5)
    room = inner_room(spec(resources={"train": FOUR}))
    assert (room.first, len(room.bundles), room.data_cpus) == (0, 4, 0)


def test_the_driver_runs_where_there_is_a_ray() -> None:
    assert spec(resources={"train": TWO_GPUS}).effective_isolation == "worker"
    assert spec(resources={"gpu": 1}).effective_isolation == "process"
    assert spec(resources={"train": FOUR}, isolation="actor").effective_isolation == "actor"
    with pytest.raises(SpecError, match="isolation: a forked process has no Ray"):
        spec(resources={"train": FOUR}, isolation="process")
    with pytest.raises(SpecError, match="isolation: inline trials hold no resources"):
        spec(resources={"train": FOUR}, isolation="inline", max_concurrent_trials=1)


def test_a_gang_and_a_run_exclude_each_other() -> None:
    with pytest.raises(SpecError, match="remove resources"):
        spec(resources={"train": FOUR}, scaling={"num_workers": 2})
