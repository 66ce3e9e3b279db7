from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.specs import RunId, RunRequest, SweepSpec, TrainSpec, slug, sweep_id
from raysweep.specs.identity import check_distinct, file_name, is_run_id

ROOT = Path(__file__).parents[3]
HOME = ROOT / "engine/raysweep/specs/identity.py"
TRAINING = TrainSpec(name="full", trainable="m:f", storage_path="/sweeps")
SWEEP = SweepSpec(
    name="flights",
    trainable="m:f",
    param_space={"x": {"uniform": [0, 1]}},
    metric="loss",
    mode="min",
    storage_path="/sweeps",
)


def test_ids_are_what_they_were() -> None:
    """Ids are on disk: they must never change."""
    assert sweep_id("flights", "2026-11-21") == "flights-9f331cd5c0"
    assert sweep_id("Flüge nach Köln!", "") == "fluge-nach-koln-7d64c5272e"
    assert RunId.of(SWEEP, "2026-11-21").id == "flights-9f331cd5c0"
    assert RunId.of(TRAINING, "k").id == "full-83d7be7479"


@pytest.mark.parametrize("spec", [SWEEP, TRAINING])
def test_without_a_key_the_same_spec_is_the_same_run(spec: SweepSpec | TrainSpec) -> None:
    run = RunId.of(spec, None)
    assert run.key == f"spec-{spec.digest()[:16]}"
    assert run == RunId.of(spec.replace(tags={"by": "me"}), None)
    assert run == RunId.of(spec.replace(storage_path="/elsewhere"), None)
    assert run != RunId.of(spec, "")


def test_a_sweep_and_a_training_of_one_name_and_key_are_two_runs() -> None:
    assert RunId.of(SWEEP, "k").id != RunId.of(TRAINING.replace(name="flights"), "k").id


def test_a_request_is_the_same_from_every_folder(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.chdir(tmp_path)
    request = RunRequest.of(TRAINING.replace(storage_path="out"), None)
    assert request.spec.storage_path == str(tmp_path / "out")
    monkeypatch.chdir("/")
    assert RunRequest.of(request.spec, None) == request


def test_ids_are_made_in_one_place() -> None:
    """Nowhere else is an id, a default key or a prefix of one made."""
    folders = (ROOT / name for name in ("engine", "operators", "flows", "devtools"))
    files = [path for folder in folders for path in folder.rglob("*.py") if path != HOME]
    assert len(files) > 200
    assert [f"{path}:{line}" for path in files for line in made_by_hand(ast.parse(path.read_text()))] == []


@pytest.mark.parametrize(
    "text",
    [
        "sweep_id(name, key)",
        'prefixed = f"train {key}"',
        "rs.sweep_id(name, key)",
        'RunId(kind="train", name=name, key=key)',
        'key = f"spec-{spec.digest()[:16]}"',
        'key = "train " + key',
        "key = uuid.uuid4().hex if key is None else key",
    ],
)
def test_what_is_made_by_hand_is_seen(text: str) -> None:
    assert list(made_by_hand(ast.parse(text))) == [1]


def made_by_hand(tree: ast.AST) -> Iterator[int]:
    for node in ast.walk(tree):
        match node:
            case (
                ast.Call(func=ast.Name(id="sweep_id" | "RunId") | ast.Attribute(attr="sweep_id" | "RunId"))
                | ast.JoinedStr(values=[ast.Constant(value="train " | "spec-"), *_])
                | ast.BinOp(left=ast.Constant(value="train " | "spec-"))
                | ast.IfExp(test=ast.Compare(left=ast.Name(id="key")), body=ast.Attribute(attr="hex"))
            ):
                yield node.lineno


@given(st.text(), st.text(st.characters()))
def test_ids_are_safe_as_names_of_folders(name: str, key: str) -> None:
    if not slug(name):
        with pytest.raises(SpecError, match=r"^name: "):
            sweep_id(name, key)
        return
    made = sweep_id(name, key)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*-[0-9a-f]{10}", made)
    assert len(made) <= 51
    assert made == sweep_id(name, key)


def test_keys_tell_sweeps_apart() -> None:
    assert len({sweep_id("n", key) for key in ("", "a", "b", "a ", "A")}) == 5


@pytest.mark.parametrize(
    ("name", "made"),
    [
        ("a" * 40, "a" * 40),
        ("a" * 41, "a" * 31 + "-2afd03c7"),
        ("a" * 60, "a" * 31 + "-a051c54c"),
        ("a" * 30 + "-" * 5 + "b" * 20, "a" * 30 + "-77eb9393"),
        ("--A__b..C--", "a-b-c"),
        ("日本", ""),
        ("日本1", "1"),
    ],
)
def test_slug(name: str, made: str) -> None:
    assert slug(name) == made


LONG = "flights-from-new-york-in-2013-by-carrier-"


@pytest.mark.parametrize("length", range(1, 61))
def test_a_gates_sweep_is_another_one_than_its_sweep(length: int) -> None:
    name = ("flights-" * 8)[: length - 1] + "x"
    assert sweep_id(name, "k") != sweep_id(f"{name}-gate", "k")


def test_long_names_are_as_distinct_as_short_ones() -> None:
    names = [LONG, LONG + "a", LONG + "b", LONG + "A", LONG + "a!"]
    assert len({sweep_id(name, "k") for name in names}) == len({slug(name) for name in names}) == len(names)


def test_no_two_names_have_one_file() -> None:
    names = ["flights", "Flights", "flights!", "fl\u00efghts", LONG + "a", LONG + "b", "x" * 40, "X" * 40]
    files = {file_name(name) for name in names}
    assert len(files) == len(names)
    assert {"flights", "x" * 40} < files, "a name that is a slug is the file's"
    assert all(re.fullmatch(r"[a-z0-9-]{1,50}", name) for name in files)


def test_names_that_would_be_one_run_are_refused_before_they_run() -> None:
    check_distinct(["flights-east", "flights-west", "flights-east"], "data_sets")
    with pytest.raises(
        SpecError, match=r"^data_sets: 'flights-東' and 'flights-西' .* id, flights-…; let them"
    ):
        check_distinct(["flights-\u6771", "flights-\u897f"], "data_sets")


@pytest.mark.parametrize("key", [date(2026, 11, 25), 20261125, 1.5, b"k"])
def test_a_key_that_is_no_text_is_refused_in_one_line(key: Any) -> None:
    """YAML makes a date of 2026-11-25 without quotes, a template a number."""
    kind = type(key).__name__
    with pytest.raises(SpecError, match=rf'^key: expected text, got .* \({kind}\); write key=".*", in YAML'):
        RunId.of(SWEEP, key)
    with pytest.raises(SpecError, match=r"^name: expected text"):
        sweep_id(key, "k")


@pytest.mark.parametrize("name", ["", "  ", "..", "/", "a/b", "\ud800", "x" * 300, "a\n"])
def test_the_name_of_a_file_is_one_whatever_the_name(name: str) -> None:
    found = file_name(name)
    assert re.fullmatch("[a-z0-9-]{1,60}", found), found
    assert not is_run_id(name)


@given(st.text(max_size=80), st.text(max_size=20))
def test_each_id_has_the_form_of_one(name: str, key: str) -> None:
    if slug(name):
        assert is_run_id(sweep_id(name, key))
