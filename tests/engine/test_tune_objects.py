# ruff: noqa: E501  (one case a line)
"""Objects of Ray Tune and Ray Train in a spec say the same as plain JSON. Imports ray; starts no cluster."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any

import pytest
from ray import train, tune
from ray.tune.search.sample import Categorical, Domain

from raysweep.errors import SpecError
from raysweep.specs import Float, Integer, Normal, Resources, Scaling, SweepSpec


def sweep(**fields: Any) -> SweepSpec:
    given = {"name": "n", "trainable": "m:f", "param_space": {"a": 1}, "metric": "x", "mode": "max", **fields}
    return SweepSpec(**given)


PAIRS: list[tuple[Any, dict[str, Any]]] = [
    (tune.uniform(0, 1), {"uniform": [0, 1]}),
    (tune.quniform(0.5, 2, 0.5), {"quniform": [0.5, 2, 0.5]}),
    (tune.loguniform(1e-4, 1e-1), {"loguniform": [1e-4, 1e-1]}),
    (tune.qloguniform(0.5, 2, 0.5), {"qloguniform": [0.5, 2, 0.5]}),
    (tune.randn(1, 2), {"randn": [1, 2]}),
    (tune.qrandn(1, 2, 0.5), {"qrandn": [1, 2, 0.5]}),
    (tune.randint(0, 10), {"randint": [0, 10]}),
    (tune.qrandint(0, 10, 5), {"qrandint": [0, 10, 5]}),
    (tune.qrandint(0, 10), {"qrandint": [0, 10, 1]}),
    (tune.lograndint(1, 100), {"lograndint": [1, 100]}),
    (tune.qlograndint(2, 100, 2), {"qlograndint": [2, 100, 2]}),
    (tune.choice([1, "a", [2]]), {"choice": [1, "a", [2]]}),
    (tune.grid_search([1, 2]), {"grid_search": [1, 2]}),
    (Categorical([1, 2]).grid(), {"grid_search": [1, 2]}),
]


def name_of(value: Any) -> str:
    """A name for a case that is the same in every process: Tune's domains show their address."""
    return type(value).__name__ if " object at " in str(value) else str(value)


@pytest.mark.parametrize(("domain", "written"), PAIRS, ids=lambda value: str(value)[:40])
def test_domains(domain: Any, written: dict[str, Any]) -> None:
    by_object = sweep(param_space={"x": domain, "deep": {"list": [1, {"y": domain}]}})
    by_json = sweep(param_space={"x": written, "deep": {"list": [1, {"y": written}]}})
    assert by_object == by_json
    assert by_object.digest() == by_json.digest()
    assert SweepSpec.from_json(by_object.to_json()) == by_object


def test_sample_from() -> None:
    spec = sweep(param_space={"a": tune.choice([3]), "b": tune.sample_from(lambda config: config["a"] + 1)})
    assert spec.space.sample(random.Random(0)) == {"a": 3, "b": 4}


@pytest.mark.parametrize(
    ("space", "said"),
    [
        ({"a": tune.choice([tune.uniform(0, 1)])}, r"param_space\.a\.choice\[0\]: a value holds a search domain"),
        ({"a": tune.choice([{"b": tune.uniform(0, 1)}])}, r"param_space\.a\.choice\[0\]: a value holds a search domain"),
        ({"a": tune.choice([])}, r"param_space\.a\.choice: has no values"),
        ({"a": tune.uniform(1, 0)}, r"param_space\.a\.uniform: lower bound 1 is above upper bound 0"),
        ({"a": tune.randint(0, 2.5)}, r"param_space\.a\.randint: upper must be a whole number"),
        ({"a": Domain()}, r"param_space\.a: .* is a ray\.tune domain of a kind not known here"),
    ],
)  # fmt: skip
def test_domains_that_cannot_be(space: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        sweep(param_space=space)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (tune.quniform(0, 1, 0.25), Float(lower=0, upper=1, q=0.25)),
        (tune.qloguniform(0.5, 4, 0.5), Float(lower=0.5, upper=4, log=True, q=0.5)),
        (tune.randint(-2, 3), Integer(lower=-2, upper=3)),
        (tune.qrandint(1, 11, 5), Integer(lower=1, upper=11, q=5)),
        (tune.qrandint(2, 6, 1), Integer(lower=2, upper=6, q=1)),
        (tune.qrandint(-7, -1, 3), Integer(lower=-7, upper=-1, q=3)),
        (tune.lograndint(1, 6), Integer(lower=1, upper=6, log=True)),
        (tune.qlograndint(1, 12, 4), Integer(lower=1, upper=12, log=True, q=4)),
    ],
    ids=name_of,
)
def test_draws_are_distributed_as_tunes_are(theirs: Any, ours: Float | Integer) -> None:
    count = 12_000
    rng = random.Random(5)
    mine = [ours.sample(rng) for _ in range(count)]
    tunes = list(theirs.sample(size=count, random_state=5))
    assert set(mine) == set(tunes)
    for value in set(tunes):
        assert mine.count(value) / count == pytest.approx(tunes.count(value) / count, abs=0.025)


@pytest.mark.parametrize(
    ("theirs", "ours"),
    [
        (tune.uniform(2, 3), Float(lower=2, upper=3)),
        (tune.loguniform(1e-4, 1), Float(lower=1e-4, upper=1, log=True)),
        (tune.randn(1, 2), Normal(mean=1, sd=2)),
    ],
    ids=name_of,
)
def test_continuous_draws_have_tunes_quantiles(theirs: Any, ours: Float | Normal) -> None:
    count = 12_000
    rng = random.Random(5)
    mine = sorted(ours.sample(rng) for _ in range(count))
    tunes = sorted(theirs.sample(size=count, random_state=5))
    width = tunes[int(0.99 * count)] - tunes[int(0.01 * count)]
    for part in (0.1, 0.25, 0.5, 0.75, 0.9):
        at = int(part * count)
        assert mine[at] == pytest.approx(tunes[at], abs=0.03 * width, rel=0.15)


def test_placement_group_factories() -> None:
    several = Resources.model_validate(
        tune.PlacementGroupFactory([{"CPU": 1, "GPU": 0.5, "x": 2}, {"CPU": 2}], strategy="SPREAD")
    )
    assert [*several.shape().bundles] == [{"CPU": 1.0, "GPU": 0.5, "x": 2.0}, {"CPU": 2.0}]
    assert (several.strategy, several.cpu, several.gpu, several.custom) == ("SPREAD", 1, 0.5, {"x": 2})
    empty = Resources.model_validate(tune.PlacementGroupFactory([{}, {"CPU": 2}]))
    assert empty.shape().is_head_empty
    assert [*empty.shape().bundles] == [{"CPU": 2.0}]
    spec = sweep(resources=tune.PlacementGroupFactory([{"CPU": 1}]))
    assert SweepSpec.from_json(spec.to_json()) == spec


def test_label_selectors_of_a_placement_group_factory() -> None:
    def factory(*selectors: dict[str, str]) -> tune.PlacementGroupFactory:
        bundles = [{"CPU": 1}] * len(selectors)
        return tune.PlacementGroupFactory(bundles, bundle_label_selector=list(selectors))

    assert Resources.model_validate(factory({"zone": "a"}, {"zone": "a"})).label_selector == {"zone": "a"}
    with pytest.raises(SpecError, match="different label selectors"):
        sweep(resources=factory({"zone": "a"}, {"zone": "b"}))


@pytest.mark.parametrize(
    ("config", "scaling"),
    [
        (lambda: train.ScalingConfig(num_workers=3), {"num_workers": 3}),
        (
            lambda: train.ScalingConfig(num_workers=2, use_gpu=True),
            {"num_workers": 2, "resources": {"cpu": 0, "gpu": 1}},
        ),
        (
            lambda: train.ScalingConfig(
                num_workers=2,
                use_gpu=True,
                resources_per_worker={"CPU": 4, "GPU": 2},
                placement_strategy="SPREAD",
            ),
            {
                "num_workers": 2,
                "resources": {"cpu": 4, "gpu": 2},
                "placement_strategy": "SPREAD",
            },
        ),
        (
            lambda: train.ScalingConfig(num_workers=2, label_selector=[{"kind": "big"}] * 2),
            {"num_workers": 2, "label_selector": {"kind": "big"}},
        ),
    ],
)
def test_scaling_configs(config: Callable[[], Any], scaling: dict[str, Any]) -> None:
    assert Scaling.model_validate(config()) == Scaling.model_validate(scaling)


def test_rays_own_objects_make_gangs() -> None:
    config = train.ScalingConfig(num_workers=2, resources_per_worker={"CPU": 2}, placement_strategy="SPREAD")
    scaling = sweep(scaling=config).scaling
    assert scaling == Scaling(num_workers=2, resources={"cpu": 2}, placement_strategy="SPREAD")
    torch = pytest.importorskip("ray.train.torch")
    for backend, expected in ((None, "torch"), ("gloo", "gloo")):
        fields = {"num_workers": 2, "backend": torch.TorchConfig(backend=backend)}
        assert sweep(scaling=fields).to_dict()["scaling"]["backend"] == expected
    with pytest.raises(SpecError, match=r"^scaling\.backend: TorchConfig\.timeout_s is not taken over"):
        sweep(scaling={"backend": torch.TorchConfig(timeout_s=5)})


def test_accelerator_types_become_their_resource() -> None:
    scaling = Scaling.model_validate(
        train.ScalingConfig(num_workers=1, use_gpu=True, accelerator_type="A100")
    )
    assert scaling.worker_bundle() == {"GPU": 1.0, "accelerator_type:A100": 0.001}


def test_a_scaling_config_as_the_resources_of_a_trial() -> None:
    """The trial drives; the bundles are for its workers, the first with the trainer's own CPU."""
    resources = sweep(resources=train.ScalingConfig(num_workers=3, resources_per_worker={"CPU": 2})).resources
    expected = train.ScalingConfig(
        num_workers=3, resources_per_worker={"CPU": 2}
    ).as_placement_group_factory()
    assert [*resources.shape().bundles] == expected.bundles
    assert len(resources.shape().bundles) == 3
    assert resources.shape().is_head_empty


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (lambda: train.ScalingConfig(num_workers=0), "."),
        (
            lambda: train.ScalingConfig(num_workers=2, label_selector=[{"kind": "big"}, {}]),
            "different label selectors",
        ),
    ],
)
def test_scaling_configs_that_cannot_be(config: Callable[[], Any], said: str) -> None:
    with pytest.raises(SpecError, match=said) as caught:
        Scaling.model_validate(config())
    assert "\n" not in str(caught.value)
