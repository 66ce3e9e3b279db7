# ruff: noqa: E501  (one case a line)
"""A simplex: points that sum to one, and the coordinates by which searches see them."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable
from random import Random
from typing import Any

import jsonschema
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep import from_tuner
from raysweep.space.grid_points import grid_points, without_steps
from raysweep.space.parsed import has_domain, normalise, parse, uses
from raysweep.space.perturbation import explore, mutable_leaves
from raysweep.space.simplex import Simplex
from raysweep.space.unfolding import Unfolding
from raysweep.specs import SweepSpec

ABC = {"simplex": ["a", "b", "c"]}


@st.composite
def simplexes(draw: st.DrawFn) -> Simplex:
    """Any simplex that has more than one point."""
    parts = tuple(f"p{at}" for at in range(draw(st.integers(2, 12))))
    step = draw(st.none() | st.integers(2, 60).map(lambda count: 1 / count))
    least = draw(st.floats(0, 1 / len(parts), exclude_max=True))
    simplex = Simplex(parts=parts, least=least, step=step)
    return simplex if simplex.free > 0 else Simplex(parts=parts, step=step)


def check(simplex: Simplex, point: Any) -> None:
    """The point is one of the simplex's, exactly enough for an assertion in a trainable."""
    assert list(point) == list(simplex.parts)
    assert abs(sum(point.values()) - 1) < 1e-9
    assert min(point.values()) >= simplex.least
    if simplex.step is not None:
        assert all(abs(share / simplex.step - round(share / simplex.step)) < 1e-6 for share in point.values())


@given(simplexes(), st.integers(0, 2**32))
@settings(max_examples=60, deadline=None)
def test_each_point_sums_to_one_respects_min_and_comes_back_from_its_coordinates(
    simplex: Simplex, seed: int
) -> None:
    rng = Random(seed)
    for _ in range(20):
        point = simplex.sample(rng)
        check(simplex, point)
        assert simplex.from_places(simplex.places(point)) == point
        assert simplex.own(point) == point
        made = simplex.from_places([rng.random() for _ in simplex.parts[1:]])
        check(simplex, made)
        assert simplex.from_places(simplex.places(made)) == made
        check(simplex, simplex.nearest([rng.random() for _ in simplex.parts]))
        if simplex.step is not None:
            assert simplex.at(simplex.index(point)) == point


@pytest.mark.parametrize("edge", [0.0, 1.0])
def test_the_ends_of_the_coordinates_are_corners(edge: float) -> None:
    simplex = Simplex(parts=("a", "b", "c"), least=0.1)
    point = simplex.from_places([edge, edge])
    check(simplex, point)
    assert max(point.values()) == 0.8
    assert simplex.from_places(simplex.places(point)) == point


@pytest.mark.parametrize("by", ["sample", "coordinates"])
def test_draws_are_uniform_over_the_simplex(by: str) -> None:
    simplex, rng = Simplex(parts=tuple("abcdefgh")), Random(3)
    draws = [
        simplex.sample(rng) if by == "sample" else simplex.from_places([rng.random() for _ in range(7)])
        for _ in range(4000)
    ]
    for part in simplex.parts:  # as Dirichlet's: mean 1/8, mean square 2/72
        assert sum(draw[part] for draw in draws) / 4000 == pytest.approx(1 / 8, rel=0.06)
        assert sum(draw[part] ** 2 for draw in draws) / 4000 == pytest.approx(2 / 72, rel=0.15)


@pytest.mark.parametrize("by", ["sample", "coordinates"])
def test_the_points_of_a_step_are_equally_likely(by: str) -> None:
    simplex, rng = Simplex(parts=("a", "b", "c"), step=0.25), Random(3)
    counts = Counter(
        simplex.index(
            simplex.sample(rng) if by == "sample" else simplex.from_places([rng.random(), rng.random()])
        )
        for _ in range(6000)
    )
    assert len(counts) == simplex.cardinality == 15
    assert max(counts.values()) < 1.35 * min(counts.values())


def test_the_points_of_a_step_are_counted_off() -> None:
    simplex = Simplex(parts=("a", "b"), least=0.1, step=0.25)
    assert [simplex.at(index) for index in range(simplex.size)] == [
        {"a": 0.25, "b": 0.75},
        {"a": 0.5, "b": 0.5},
        {"a": 0.75, "b": 0.25},
    ]


@pytest.mark.parametrize(
    ("point", "problem"),
    [
        ({"a": 0.5, "b": 0.4, "c": 0.2}, "its parts sum to 1.1, not to 1"),
        ({"a": 0.5, "b": 0.5}, "it lacks c: each of a, b, c has a number"),
        ({"a": 0.5, "b": 0.5, "c": "0"}, "c is '0': each of a, b, c has a number"),
        ({"a": 0.45, "b": 0.5, "c": 0.05}, "c is 0.05, below the least share of 0.1"),
        ({"a": 0.25, "b": 0.25, "c": 0.25, "d": 0.25}, "'d' is none of its parts a, b, c"),
        ([1, 0, 0], "[1, 0, 0] is not a mapping of a, b, c to their shares"),
        ({"a": 0.33, "b": 0.33, "c": 0.34}, "a is 0.33, which is not a multiple of step 0.05"),
    ],
)
def test_what_is_no_point_is_refused(point: Any, problem: str) -> None:
    simplex = Simplex(parts=("a", "b", "c"), least=0.1, step=0.05)
    with pytest.raises(ValueError, match=re.escape(problem)):
        simplex.own(point)
    assert not simplex.holds(point)


def test_a_given_point_is_rounded_to_one_that_sums_to_one() -> None:
    simplex = Simplex(parts=("a", "b", "c"), least=0.1)
    check(simplex, simplex.own({"a": 0.1 - 1e-8, "b": 1 / 3, "c": 0.9 - 1 / 3 + 3e-8}))


def test_a_space_with_one_is_normal_and_read_again() -> None:
    given = {"mix": {"simplex": ("a", "b"), "min": 0, "step": 0.5}, "x": {"uniform": [0, 1]}}
    space = normalise(given)
    assert space == {"mix": {"simplex": ["a", "b"], "step": 0.5}, "x": {"uniform": [0, 1]}}
    assert normalise(space) == space
    assert uses(space, "simplex")
    assert has_domain(space)
    parsed = parse(space)
    config = parsed.sample(Random(0))
    assert parsed.build(parsed.read(config)) == config
    assert grid_points(space) == 1
    assert grid_points(space, has_lattices=True) == 3
    assert without_steps(normalise({"a": [ABC], "b": {"choice": {"c": ABC, "d": 1}}})) == [
        ("a", "0"),
        ("b", "c"),
    ]


@pytest.mark.parametrize(
    ("node", "line"),
    [
        ({"simplex": ["a"]}, "m.simplex: has 1 parts, and needs two or more; name another part"),
        ({"simplex": "ab"}, "m.simplex: expected a list of the parts' names, got 'ab'; write [\"web\", \"code\", \"math\"]"),
        ({"simplex": ["a", 3]}, "m.simplex: expected a list of the parts' names, got ['a', 3]; write [\"web\", \"code\", \"math\"]"),
        ({"simplex": ["a", "b", "a"]}, "m.simplex: names 'a' twice; give each part a name of its own"),
        ({"simplex": ["a", "choice"]}, "m.simplex: 'choice' is a domain's name and cannot be a part's; rename the part"),
        (ABC | {"min": 0.4}, "m.min: 3 parts of at least 0.4 leave nothing of 1 to divide; make min less than 1/3"),
        (ABC | {"min": -0.1}, "m.min: expected a number 0 or more, and below 1, got -0.1; leave min out"),
        (ABC | {"step": 0}, "m.step: expected a number above 0 and below 1, got 0; leave step out"),
        (ABC | {"step": 0.3}, "m.step: 0.3 does not divide 1; write 0.333333333333"),
        (ABC | {"step": 0.25, "min": 0.3}, "m.step: multiples of 0.25 leave 3 parts of at least 0.3 nothing to divide; make step or min smaller"),
        (ABC | {"mn": 0.1}, "m: 'simplex' knows no key 'mn'; did you mean 'min'?"),
        (ABC | {"prior": {"a": 1}}, "m: 'simplex' has no prior; leave it out: numbers between bounds and choices have"),
    ],
)  # fmt: skip
def test_bad_input_is_one_line(refusal: Callable[..., str], node: Any, line: str) -> None:
    assert refusal(param_space={"m": node}) == f"param_space.{line}"


def test_relations_are_between_its_parts(refusal: Callable[..., str], fields: dict[str, Any]) -> None:
    spec = SweepSpec(**{**fields, "param_space": {"mix": ABC}, "where": ["mix.a > mix.b"]})
    config = spec.space.sample(Random(0))
    assert config["mix"]["a"] > config["mix"]["b"]
    for text, problem in (("mix.d > 0.5", "not a parameter"), ("mix > 0.5", "name one of its parts")):
        assert problem in refusal(param_space={"mix": ABC}, where=[text])


def test_documents_and_schema_have_it(fields: dict[str, Any]) -> None:
    nodes = [ABC, ABC | {"min": 0.1, "step": 0.1}, {"uniform": [0, 1], "prior": {"normal": 0.5, "sigma": 1}}]
    nodes += [{"choice": ["a", 1], "prior": [1, 2]}, {"choice": {"x": ABC, "y": 1}, "prior": {"x": 1}}]
    nodes += [{"min": {"uniform": [0, 1]}, "prior": 3, "step": ABC}]  # parameters of these names
    schema = jsonschema.Draft202012Validator(SweepSpec.json_schema())
    for node in nodes:
        spec = SweepSpec(**{**fields, "param_space": {"m": node}})
        assert SweepSpec.from_any(spec.to_dict()) == spec
        assert SweepSpec.from_yaml(spec.to_yaml()) == spec
        schema.validate(spec.to_dict())
    refused = [{"simplex": ["a"]}, ABC | {"prior": [1]}, ABC | {"min": 1}, {"const": 1, "prior": [1]}]
    refused += [{"uniform": [0, 1], "prior": {"normal": 1}}, {"uniform": [0, 1], "step": 0.5}]
    for node in refused:
        with pytest.raises(jsonschema.ValidationError):
            schema.validate(spec.to_dict() | {"param_space": {"m": node}})


def test_a_tuners_space_has_it_where_that_is_given_in_raysweeps_words() -> None:
    """In Tune's, which has no such domain, it is a constant."""
    tune = pytest.importorskip("ray.tune")
    config = tune.TuneConfig(metric="m", mode="min", num_samples=3)
    space = {"mix": ABC, "x": tune.uniform(0, 1)}
    tuner = tune.Tuner(print, param_space=space, tune_config=config)
    assert from_tuner(tuner).param_space == {"mix": {"const": ABC}, "x": {"uniform": [0, 1]}}
    assert from_tuner(tuner, param_space=space).param_space == {"mix": ABC, "x": {"uniform": [0, 1]}}


def test_coordinates_keep_branches() -> None:
    space = parse(normalise({"data": {"choice": {"mixed": {"mix": ABC}, "web": {"x": {"uniform": [0, 1]}}}}}))
    unfolding = Unfolding(space)
    values = {("data",): "mixed", ("data", "mixed", "mix"): {"a": 0.5, "b": 0.25, "c": 0.25}}
    places = unfolding.to_places(values)
    assert set(places) == {("data",), ("data", "mixed", "mix", "a"), ("data", "mixed", "mix", "b")}
    assert unfolding.to_values(places) == values
    assert not unfolding.space.is_reached(("data", "mixed", "mix", "a"), {("data",): "web"})
    assert unfolding.folded(frozenset(places)) == frozenset(values)


@pytest.mark.parametrize("node", [ABC, ABC | {"min": 0.1}, ABC | {"step": 0.1, "min": 0.1}])
def test_explored_points_stay_and_move(node: dict[str, Any]) -> None:
    space = normalise({"mix": node})
    [(_, simplex)] = leaves = mutable_leaves(space)
    assert isinstance(simplex, Simplex)
    config, seen = parse(space).sample(Random(1)), []
    for seed in range(50):
        after = explore(config, leaves, seed, resample_probability=0.2, factors=(0.8, 1.2))
        check(simplex, after["mix"])
        seen.append(after != config)
        config = after
    assert sum(seen) > 40
