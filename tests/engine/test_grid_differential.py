"""Our variants come in the order of Ray Tune's BasicVariantGenerator. Starts no cluster."""

from __future__ import annotations

import copy
import random
from pathlib import Path
from typing import Any

import pytest

from raysweep.search.variants import VariantSearcher
from raysweep.space.parsed import normalise, parse
from raysweep.specs import Choice, Space

pytest.importorskip("ray.tune")
import ray
from ray import tune
from ray.tune.experiment import Experiment
from ray.tune.search.basic_variant import BasicVariantGenerator


def trainable(config: dict[str, Any]) -> None:
    """Never runs."""


def ours(space: dict[str, Any], num_samples: int) -> list[dict[str, Any]]:
    searcher = VariantSearcher(parse(normalise(copy.deepcopy(space))), num_samples, seed=0)
    assert searcher.total is not None
    configs = [searcher.ask(number) for number in range(searcher.total)]
    assert searcher.ask(searcher.total) is None
    return [config for config in configs if config is not None]


def rays(space: dict[str, Any], num_samples: int, folder: Path) -> list[dict[str, Any]]:
    was_initialized = ray.is_initialized()
    generator: Any = BasicVariantGenerator()
    experiment = Experiment(
        "variants", trainable, config=space, num_samples=num_samples, storage_path=str(folder)
    )
    generator.add_configurations([experiment])
    configs = []
    while (trial := generator.next_trial()) is not None:
        configs.append(trial.config)
    assert ray.is_initialized() == was_initialized, "listing variants starts no Ray"
    return configs


def random_grid(rng: random.Random, depth: int = 0) -> Any:
    """A nest of dicts and lists with grids and constants at its leaves, keys in random order."""
    draw = rng.random()
    if depth < 3 and draw < (0.5 if depth else 1):
        keys = rng.sample(["a", "b", "c", "B", "z1", "z10", "z2"], rng.randrange(1, 4))
        return {key: random_grid(rng, depth + 1) for key in keys}
    if depth < 3 and draw < 0.6:
        return [random_grid(rng, depth + 1) for _ in range(rng.choice([1, 2, 12]))]
    if draw < 0.8:
        values = [1, "two", None, 0.5, [1, 2], {"n": 1}]
        return {"grid_search": rng.sample(values, rng.randrange(1, 4))}
    return rng.choice([3, "c", None, [1, 2], {"k": 1}])


def points(space: Any) -> int:
    if isinstance(space, dict) and "grid_search" in space:
        return len(space["grid_search"])
    product = 1
    for item in space.values() if isinstance(space, dict) else space if isinstance(space, list) else []:
        product *= points(item)
    return product


@pytest.mark.parametrize(
    "seed", [pytest.param(seed, marks=[pytest.mark.slow] if seed % 3 else []) for seed in range(120)]
)
def test_grids_come_in_rays_order(seed: int, tmp_path: Path) -> None:
    """Every variant of random nested grids, in order, for several samples."""
    rng = random.Random(seed)
    space = random_grid(rng)
    while not 2 <= points(space) <= 300:
        space = random_grid(rng)
    num_samples = rng.choice([1, 2, 3])
    expected = rays(copy.deepcopy(space), num_samples, tmp_path)
    assert ours(space, num_samples) == expected
    assert len(expected) == points(space) * num_samples


def test_random_leaves_are_drawn_anew_for_each_point(tmp_path: Path) -> None:
    """Grid values repeat in Ray's pattern while random leaves differ in every trial."""
    space = {"x": tune.uniform(0, 1), "g": tune.grid_search([1, 2, 3]), "a": tune.grid_search(["p", "q"])}
    mine, theirs = ours(space, 4), rays(space, 4, tmp_path)
    assert [(c["g"], c["a"]) for c in mine] == [(c["g"], c["a"]) for c in theirs]
    for configs in (mine, theirs):
        assert len({c["x"] for c in configs}) == 24


@pytest.mark.parametrize(
    ("space", "num_samples"),
    [
        ({"x": tune.choice([1, 2, 3])}, 10),
        ({"x": tune.choice([1])}, 4),
        ({"x": tune.randint(0, 2), "y": tune.choice(["a", "b"])}, 20),
        ({"g": tune.grid_search([1, 2]), "x": tune.choice(["only"])}, 5),
        ({"g": tune.grid_search([1, 2]), "h": tune.grid_search([3, 4, 5]), "x": tune.choice([1, 2])}, 7),
    ],
)
def test_samples_are_drawn_with_replacement_as_by_ray(
    space: dict[str, Any], num_samples: int, tmp_path: Path
) -> None:
    """As many trials, and each point of the grid as often and in the same order, in spaces of few configs."""
    mine, theirs = ours(space, num_samples), rays(space, num_samples, tmp_path)
    at = [[(config.get("g"), config.get("h")) for config in configs] for configs in (mine, theirs)]
    assert at[0] == at[1]
    values = [{str(config) for config in configs} for configs in (mine, theirs)]
    assert len(values[0]) < len(mine), "some come twice"


def test_sample_from_sees_what_rays_sees(tmp_path: Path) -> None:
    """Functions read resolved values by attribute and by key, nested and in lists, or take nothing."""
    sample_from: Any = tune.sample_from
    space = {
        "n": {"a": tune.grid_search([1, 2])},
        "l": [tune.grid_search([3, 4]), 1],
        "by_attribute": sample_from(lambda spec: spec.config.n.a * 2),
        "by_key": sample_from(lambda spec: spec["config"]["n"]["a"] * 3),
        "in_list": sample_from(lambda spec: spec.config.l[0]),
        "nothing": sample_from(lambda: 7),
    }
    assert ours(space, 1) == rays(space, 1, tmp_path)


def test_choice_and_grid_differ_as_in_ray(tmp_path: Path) -> None:
    """A constant space repeats num_samples times; a grid inside of it multiplies."""
    assert ours({"x": 1}, 3) == rays({"x": 1}, 3, tmp_path) == [{"x": 1}] * 3


def test_the_first_path_varies_fastest_whatever_the_order_written() -> None:
    """Ray sorts by path, not by the order of the keys."""
    space: Space = parse(normalise({"b": {"grid_search": [1, 2]}, "a": {"grid_search": [3, 4]}}))
    assert all(isinstance(domain, Choice) for _, domain in space.leaves)
    searcher = VariantSearcher(space, 1, seed=0)
    assert [searcher.ask(n) for n in range(4)] == [
        {"b": 1, "a": 3},
        {"b": 1, "a": 4},
        {"b": 2, "a": 3},
        {"b": 2, "a": 4},
    ]
