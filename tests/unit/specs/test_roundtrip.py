"""YAML, JSON and Python say the same, and the JSON Schema takes all that the model takes."""

from __future__ import annotations

import json
import pickle
from pathlib import Path
from typing import Any

import jsonschema
import orjson
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from raysweep.documents.text import read_yaml, write_yaml
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec, TrainSpec
from tests.sampling import examples
from tests.unit.specs.strategies import CONSTANTS, SPECS

SWEEP_SCHEMA = jsonschema.Draft202012Validator(SweepSpec.json_schema())
TRAIN_SCHEMA = jsonschema.Draft202012Validator(TrainSpec.json_schema())
SLOW = settings(max_examples=examples(50), deadline=None, suppress_health_check=[HealthCheck.too_slow])


@SLOW
@given(SPECS)
def test_every_form_says_the_same(fields: dict[str, Any]) -> None:
    spec = SweepSpec(**fields)
    forms = [
        SweepSpec.from_json(orjson.dumps(fields)),
        SweepSpec.from_json(spec.to_json()),
        SweepSpec.from_yaml(spec.to_yaml()),
        SweepSpec.from_any(spec.to_dict()),
        spec.replace(),
        pickle.loads(pickle.dumps(spec)),  # noqa: S301
    ]
    for form in forms:
        assert form == spec
        assert form.digest() == spec.digest()
        assert form.to_json() == spec.to_json()


@SLOW
@given(SPECS)
def test_schema_accepts_what_the_model_accepts_and_what_it_writes(fields: dict[str, Any]) -> None:
    SWEEP_SCHEMA.validate(fields)
    SWEEP_SCHEMA.validate(SweepSpec(**fields).to_dict())


@SLOW
@given(SPECS, st.data())
def test_what_the_schema_refuses_the_model_refuses(fields: dict[str, Any], data: st.DataObject) -> None:
    field = data.draw(st.sampled_from(sorted({*SweepSpec.model_fields, "unknown"})))
    broken = {**fields, field: data.draw(CONSTANTS | st.lists(CONSTANTS, max_size=2) | st.just({"x": 1}))}
    if not SWEEP_SCHEMA.is_valid(broken):
        with pytest.raises(SpecError) as caught:
            SweepSpec(**broken)
        assert "\n" not in str(caught.value)


FORMS: list[Any] = [
    *(None, True, 1, 3, 0.5, [], {}, "", "m:C", "mlflow", "min", "2h", "1GB", "champion", "s3://b/c"),
    *("loss < 1", ["a"], ["m:C"], ["mlflow"], [{"mlflow": {}}], ["loss < 1"], [{"x": 1}], [None], [3]),
    *({"mlflow": None}, {"a": "m:C"}, {"x": 1}, {"a": {"files": "/x"}}, {"trainable": "m:C"}),
    {"command": ["a"]},
]
"""Short forms, among them some that a field reads beside a mapping or a list."""


@pytest.mark.parametrize(("model", "schema"), [(SweepSpec, SWEEP_SCHEMA), (TrainSpec, TRAIN_SCHEMA)])
def test_the_schema_accepts_each_short_form_that_the_model_accepts(
    model: type[SweepSpec] | type[TrainSpec], schema: jsonschema.Draft202012Validator, fields: dict[str, Any]
) -> None:
    base = {name: value for name, value in fields.items() if name in model.model_fields}
    accepted = set()
    for name in model.model_fields:
        for form in FORMS:
            try:
                model(**{**base, name: form})
            except SpecError:
                continue
            accepted.add(name)
            assert schema.is_valid({**base, name: form}), f"{name}: {form}"
    assert accepted > {"trainable", "storage_path", "tags"}


@given(
    st.recursive(
        CONSTANTS | st.text(alphabet="0123456789eE+-._:xonyf~ <#*&!%'\"\n", max_size=6),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
        max_leaves=8,
    )
)
def test_yaml_keeps_values_and_their_types(value: Any) -> None:
    back = read_yaml(write_yaml(value))
    assert back == value
    assert json.dumps(back) == json.dumps(value)


@pytest.mark.parametrize(
    "text", ["1e-4", "on", "yes", "12:30", "0o17", "2026-11-21", "null", "1_000", "", "~"]
)
def test_strings_are_quoted_for_readers_of_yaml_1_1_too(text: str) -> None:
    assert yaml.safe_load(write_yaml({"a": text})) == {"a": text}
    assert read_yaml(write_yaml({"a": text})) == {"a": text}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1e-4", 1e-4),
        ("1.5e3", 1500.0),
        (".5", 0.5),
        ("-3", -3),
        ("0x1F", 31),
        ("0o17", 15),
        ("010", 10),
        ("yes", "yes"),
        ("off", "off"),
        ("12:30", "12:30"),
        ("2026-11-21T06:00:00Z", "2026-11-21T06:00:00Z"),
        ("true", True),
        ("~", None),
        ("null", None),
        ("", None),
    ],
)
def test_yaml_is_read_by_the_core_schema_of_1_2(text: str, value: Any) -> None:
    read = read_yaml(f"a: {text}")["a"]
    assert read == value
    assert type(read) is type(value)


def test_merge_keys_and_anchors_work() -> None:
    read = read_yaml("base: &b {x: 1, y: 2}\nmine: {<<: *b, y: 3}\n")
    assert read["mine"] == {"x": 1, "y": 3}


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: 1\na: 2\n", "the key 'a' is given twice"),
        ("a: [1, 2\n", "line 2, column 1"),
        ("a: !!python/object:os.system x\n", "the tag 'python/object:os.system' means nothing here"),
    ],
)
def test_bad_yaml_is_refused_with_its_place(text: str, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        SweepSpec.from_yaml(text)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('{"a": 1, "a": 2}', "the key 'a' is given twice"),
        ('{"a": NaN}', "NaN is not JSON"),
        ('{"a": ', "line 1, column 7"),
        ("[1]", "expected a mapping, got [1]"),
        (b"\xff\xfe\xfa", "not valid"),
    ],
)
def test_bad_json_is_refused_with_its_place(text: str | bytes, said: str) -> None:
    with pytest.raises(SpecError) as caught:
        SweepSpec.from_json(text)
    assert said in str(caught.value)


def test_files_by_their_suffix(tmp_path: Path, spec: SweepSpec) -> None:
    for suffix, text in ((".yaml", spec.to_yaml()), (".yml", spec.to_yaml()), (".json", spec.to_json())):
        path = tmp_path / f"sweep{suffix}"
        path.write_text(text)
        assert SweepSpec.from_file(path) == spec
        assert SweepSpec.from_any(str(path)) == spec


def test_files_that_cannot_be_read_name_the_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match=r"nowhere\.yaml: cannot be read: No such file"):
        SweepSpec.from_file(tmp_path / "nowhere.yaml")
    with pytest.raises(SpecError, match=r"unknown kind of file '\.toml'; use a \.yaml"):
        SweepSpec.from_file(tmp_path / "spec.toml")
    empty = tmp_path / "empty.yaml"
    empty.write_text("")
    with pytest.raises(SpecError, match=r"empty\.yaml: expected a mapping, got None"):
        SweepSpec.from_file(empty)


def test_train_spec_in_every_form() -> None:
    spec = TrainSpec(
        name="full",
        trainable="m:train",
        config={"lr": 0.1, "layers": (64, 64)},
        framework="torch",
        scaling={"num_workers": 2, "resources": {"cpu": 2}},
        storage_path="s3://b/p",
        tags={"a": "b"},
    )
    assert spec.config["layers"] == (64, 64)
    assert spec.scaling.resources.cpu == 2
    assert TrainSpec.from_json(spec.to_json()) == TrainSpec.from_yaml(spec.to_yaml()) == spec
    TRAIN_SCHEMA.validate(spec.to_dict())
    assert spec.replace(tags={}).digest() == spec.digest()
    assert spec.replace(config={}).digest() != spec.digest()


def test_schema_carries_the_field_docstrings() -> None:
    schema = SweepSpec.json_schema()
    assert schema["properties"]["num_samples"]["description"].startswith("The number of configs to draw")
    for name, model in {"SweepSpec": schema, **schema["$defs"]}.items():
        for field, about in model.get("properties", {}).items():
            assert name == "SpaceValue" or "description" in about or "$ref" in about, (name, field)


@pytest.mark.parametrize(
    "space",
    [
        {"lr": {"uniform": [0]}},
        {"lr": {"uniform": ["0", "1"]}},
        {"lr": {"choice": []}},
        {"lr": {"choice": [1], "other": 2}},
        {"uniform": [0, 1]},
        {"a": {"b": {"grid_search": 3}}},
    ],
)
def test_schema_refuses_wrong_spaces(fields: dict[str, Any], space: dict[str, Any]) -> None:
    assert not SWEEP_SCHEMA.is_valid({**fields, "param_space": space})
