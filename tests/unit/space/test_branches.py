"""Branches in a spec: how they are written, refused, and read; what was written before stays as it was."""

from __future__ import annotations

from random import Random
from typing import Any

import jsonschema
import pytest

from raysweep.errors import SpecError
from raysweep.space.branches import Tree, switch_paths
from raysweep.space.grid_points import grid_points
from raysweep.space.parsed import normalise, parse, uses
from raysweep.specs import SweepSpec
from raysweep.specs.changes import changes

SPACE: dict[str, Any] = {
    "model": {
        "choice": {
            "svm": {
                "c": {"uniform": [0, 1]},
                "kernel": {"choice": {"rbf": {"g": {"uniform": [0, 1]}}, "lin": {}}},
            },
            "forest": {"depth": {"randint": [1, 9]}},
        }
    }
}


def make_spec(space: dict[str, Any] = SPACE, **fields: Any) -> SweepSpec:
    plain = {"name": "w", "trainable": "m:f", "param_space": space, "metric": "loss", "mode": "min"}
    return SweepSpec.model_validate(plain | fields)


def test_json_yaml_and_schema_say_the_same() -> None:
    spec = make_spec()
    assert SweepSpec.from_any(spec.to_dict()) == spec
    assert SweepSpec.from_yaml(spec.to_yaml()) == spec
    jsonschema.validate(spec.to_dict(), SweepSpec.json_schema())
    turned = {"model": {"choice": dict(reversed(SPACE["model"]["choice"].items()))}}
    assert make_spec(turned).digest() == spec.digest()
    assert make_spec(turned).space.sample(Random(1)) == spec.space.sample(Random(1))


def test_branches_of_ray_tunes_domains_are_read() -> None:
    tune = pytest.importorskip("ray.tune")
    given = {
        "model": {
            "choice": {
                "svm": {
                    "c": tune.uniform(0, 1),
                    "kernel": {"choice": {"rbf": {"g": tune.uniform(0, 1)}, "lin": {}}},
                },
                "forest": {"depth": tune.randint(1, 9)},
            }
        }
    }
    assert normalise(given) == SPACE


@pytest.mark.parametrize(
    ("node", "said"),
    [
        ({"choice": {}}, "param_space.m.choice: has no branches"),
        (
            {"choice": {"uniform": [0, 1]}},
            "param_space.m.choice: 'uniform' is a domain's name and cannot be a",
        ),
        ({"choice": {3: 1}}, "param_space.m.choice: the key 3 is a int"),
        (
            {"choice": {"a": {"b": {"choice": {"c": {"uniform": [1, 0]}}}}}},
            "param_space.m.choice.a.b.choice.c.uniform: lower bound 1 is above",
        ),
        ({"choice": {"a": {"x": {"unifrom": [0, 1]}}}}, "param_space.m.choice.a.x: unknown domain 'unifrom'"),
        (
            {"choice": {"a": {"b": {"grid_search": [1, 2]}}}},
            "param_space.m.choice.a: a grid_search would be there only where this branch is drawn",
        ),
        (
            {"grid_search": {"a": {"choice": {"b": {"grid_search": {"c": 1}}}}}},
            "param_space.m.grid_search.a.choice.b: a grid_search would be there only",
        ),
        ({"choice": [{"a": {"uniform": [0, 1]}}]}, "param_space.m.choice[0]: a value holds a search domain"),
        ({"choice": {"a": len}}, "param_space.m.choice.a: <built-in function len> is a function"),
    ],
)
def test_what_is_wrong_in_a_branch_is_named_by_its_path(node: dict[str, Any], said: str) -> None:
    with pytest.raises(SpecError) as caught:
        make_spec({"m": node})
    assert str(caught.value).startswith(said)


def test_a_schema_refuses_what_the_model_refuses() -> None:
    for node in ({"choice": {}}, {"choice": {"uniform": [0, 1]}}):
        with pytest.raises(jsonschema.ValidationError):
            jsonschema.validate(make_spec().to_dict() | {"param_space": {"m": node}}, SweepSpec.json_schema())


def test_a_changed_branch_is_one_difference() -> None:
    other = {"model": {"choice": {**SPACE["model"]["choice"], "forest": {"depth": {"randint": [1, 5]}}}}}
    (line,) = changes(make_spec(), make_spec(other)).unsafe
    assert line.startswith("param_space.model: ")


def test_words_and_grids_are_found_in_branches_and_not_in_constants() -> None:
    space = normalise(
        {
            "g": {"grid_search": {"a": {"x": {"grid_search": [1, 2, 3]}}, "b": 1, "c": {"uniform": [0, 1]}}},
            "k": {"const": {"choice": {"a": {"randn": [0, 1]}}}},
            "h": {"grid_search": [1, 2]},
        }
    )
    assert uses(space, "uniform")
    assert not uses(space, "randn")
    assert grid_points(space) == (3 + 1 + 1) * 2
    assert switch_paths(space) == {("g",)}
    assert parse(space).switches == {("g",)}


def test_the_leaves_of_a_tree_know_their_branch() -> None:
    space = make_spec().space
    assert [".".join(path) for path, _ in space.leaves] == [
        "model", "model.forest.depth", "model.svm.c", "model.svm.kernel",
        "model.svm.kernel.lin", "model.svm.kernel.rbf.g",
    ]  # fmt: skip
    assert space.parents["model", "svm", "kernel", "rbf", "g"] == (("model", "svm", "kernel"), "rbf")
    assert "model" not in {path[-1] for path in space.parents}
    config = {"model": {"svm": {"c": 0.5, "kernel": {"lin": {}}}}}
    values = space.read(config)
    assert values == {("model",): "svm", ("model", "svm", "c"): 0.5, ("model", "svm", "kernel"): "lin"}
    assert space.build(values) == config
    everything = values | {("model", "forest", "depth"): 3, ("model", "svm", "kernel", "rbf", "g"): 0.1}
    assert space.reached(everything) == values
    for wrong in (
        {"model": {"svm": {"c": 0.5}}},
        {"model": {}},
        {"model": 3},
        {},
        {"model": {"svm": {}, "f": 1}},
    ):
        with pytest.raises((KeyError, ValueError, TypeError)):
            space.read(wrong)


def test_a_tree_counts_each_combination_once() -> None:
    parents = {
        ("a", "x", "n"): (("a",), "x"),
        ("a", "y", "b"): (("a",), "y"),
        ("a", "y", "b", "u"): (("a", "y", "b"), "u"),
    }
    sizes = {("k",): 2, ("a",): 2, ("a", "x", "n"): 3, ("a", "y", "b"): 2, ("a", "y", "b", "u"): 4}
    tree = Tree(sizes, parents, {("a",): ("x", "y"), ("a", "y", "b"): ("u", "v")})
    found = [tuple(tree.at(rank).items()) for rank in range(tree.size or 0)]
    assert tree.size == len(set(found)) == 2 * (3 + 4 + 1)
    assert found[1] == ((("k",), 1), (("a",), 0), (("a", "x", "n"), 0)), "the first leaf varies fastest"
    assert (
        Tree(
            {**sizes, ("a", "x", "n"): None}, parents, {("a",): ("x", "y"), ("a", "y", "b"): ("u", "v")}
        ).size
        is None
    )
