"""Whatever is done to a valid spec: it is a spec, or a SpecError of one line. Nothing else comes out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given, settings

from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from tests.sampling import examples

Path = tuple[str | int, ...]

SWEEP: dict[str, Any] = {
    "name": "flights",
    "trainable": "examples.quick:quadratic",
    "param_space": {
        "lr": {"loguniform": [1e-4, 1e-1]},
        "depth": {"choice": [4, 6, [1, 2], {"a": None}]},
        "net": {"width": {"qrandint": [8, 64, 8]}, "act": "relu", "drop": {"quniform": [0, 1, 0.25]}},
        "n": {"randn": [0, 1]},
        "g": {"grid_search": [1, 2]},
        "c": {"const": {"uniform": [0, 1]}},
        "s": {"sample_from": "math:sqrt"},
    },
    "metric": "loss",
    "mode": "min",
    "num_samples": 5,
    "seed": 3,
    "resources": {"bundles": [{"CPU": 1}, {"CPU": 1, "memory": 1e9}], "strategy": "SPREAD"},
    "isolation": "process",
    "search": {"random": {}},
    "scheduler": {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3, "brackets": 2}},
    "score": "best",
    "max_concurrent_trials": 2,
    "failure": {"max_failures": 2, "max_failed_fraction": 0.5, "backoff_initial_s": 0.1},
    "checkpoint": {"keep_last": 2, "keep_best": False},
    "stop": {"deadline": "2126-01-01T00:00:00+01:00", "target": 0.1, "trial": {"training_iteration": 9}},
    "storage_path": "s3://bucket/sweeps",
    "tags": {"team": "a"},
}
TRAIN: dict[str, Any] = {
    "name": "full",
    "trainable": "examples.quick:steps",
    "config": {"lr": 0.1, "net": {"width": 3}},
    "framework": "torch",
    "scaling": {"num_workers": 2, "resources": {"cpu": 1}},
    "warm_start_checkpoint": "s3://bucket/x",
    "failure": {"max_failures": 2},
    "storage_path": "/data/runs",
    "tags": {},
}


def known_names(schema: Any) -> Iterator[str]:
    """Every field name in a JSON Schema."""
    if isinstance(schema, dict):
        yield from schema.get("properties", {})
        for value in schema.values():
            yield from known_names(value)
    elif isinstance(schema, list):
        for value in schema:
            yield from known_names(value)


def places(value: Any, path: Path = ()) -> Iterator[Path]:
    """The path of every value in a document."""
    if path:
        yield path
    if isinstance(value, dict):
        for key, item in value.items():
            yield from places(item, (*path, key))
    elif isinstance(value, list):
        for number, item in enumerate(value):
            yield from places(item, (*path, number))


SCHEMAS = (SweepSpec.json_schema(), TrainSpec.json_schema())
NAMES = sorted({name for schema in SCHEMAS for name in known_names(schema)})
SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(max_size=12)
    | st.sampled_from(
        ["", "min", "asha", "tpe", "nan", "1e400", "a:b", "s3://", "file://h/x", "\0", "\ud800"]
    )
    | st.binary(max_size=3)
    | st.dates()
    | st.just(object())
)
KEYS = st.sampled_from(NAMES) | st.text(max_size=6)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS | st.integers(), inner, max_size=3),
    max_leaves=6,
)


def mutate(draw: st.DrawFn, document: dict[str, Any]) -> None:
    """One change at a random place: a value replaced, removed or moved, or a field added."""
    paths = list(places(document))
    if not paths:
        document[draw(KEYS)] = draw(VALUES)
        return
    *parents, last = draw(st.sampled_from(paths))
    owner: Any = document
    for part in parents:
        owner = owner[part]
    how = draw(st.sampled_from(["replace", "replace", "delete", "add", "rename", "copy"]))
    if how == "delete":
        del owner[last]
    elif how == "add" and isinstance(owner, dict):
        owner[draw(KEYS)] = draw(VALUES)
    elif how == "rename" and isinstance(owner, dict):
        owner[draw(KEYS)] = owner.pop(last)
    elif how == "copy" and isinstance(owner, dict):
        owner[draw(KEYS)] = copy.deepcopy(owner[last])
    else:
        owner[last] = draw(VALUES)


@st.composite
def mutated(draw: st.DrawFn, document: dict[str, Any]) -> dict[str, Any]:
    made = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 4))):
        mutate(draw, made)
    return made


def check(model: type[SweepSpec] | type[TrainSpec], document: dict[str, Any]) -> None:
    spec = read(model, document)
    if isinstance(spec, SpecError):
        text = str(spec)
        assert text
        assert len(text.splitlines()) == 1
        assert spec.field
        assert spec.exit_code == 2
        return
    again = model.from_json(spec.to_json())
    assert again == spec
    assert again.digest() == spec.digest()


def read(
    model: type[SweepSpec] | type[TrainSpec], document: dict[str, Any]
) -> SweepSpec | TrainSpec | SpecError:
    try:
        return model.from_any(document)
    except SpecError as error:
        return error


@pytest.mark.parametrize(("model", "document"), [(SweepSpec, SWEEP), (TrainSpec, TRAIN)])
def test_what_is_mutated_here_is_valid(
    model: type[SweepSpec] | type[TrainSpec], document: dict[str, Any]
) -> None:
    model.from_any(copy.deepcopy(document))


@given(mutated(SWEEP))
@settings(max_examples=examples(200), deadline=None)
def test_sweep_specs(document: dict[str, Any]) -> None:
    check(SweepSpec, document)


@given(mutated(TRAIN))
@settings(max_examples=examples(100), deadline=None)
def test_train_specs(document: dict[str, Any]) -> None:
    check(TrainSpec, document)
