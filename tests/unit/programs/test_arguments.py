"""How a config reaches a program: each style gives back, read as its tool reads it, what went in."""

from __future__ import annotations

import argparse
import importlib.util
import json
import shlex
import subprocess
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from raysweep.documents.placeholders import fill, names_in
from raysweep.programs.arguments import (
    ArgumentsError,
    as_text,
    fill_command,
    variables,
    write_arguments,
    write_config,
)
from raysweep.specs.checks.argument_names import is_hydra_key

TEXT = st.text(st.characters(exclude_characters="\0", exclude_categories=("Cs",)), max_size=20)
NUMBERS = st.one_of(st.integers(-(10**9), 10**9), st.floats(allow_nan=False, allow_infinity=False))
SCALARS = st.one_of(TEXT, NUMBERS, st.booleans())
needs_hydra = pytest.mark.skipif(
    importlib.util.find_spec("hydra") is None, reason="hydra-core is not installed"
)
NAMES = st.from_regex(r"[a-z][a-z_]{0,8}", fullmatch=True)


@given(st.dictionaries(NAMES, st.one_of(TEXT, NUMBERS), max_size=4))
def test_argparse_reads_flags_as_they_were(config: dict[str, Any]) -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name, value in config.items():
        parser.add_argument(f"--{name}", type=type(value))
    assert vars(parser.parse_args(write_arguments(config, "flags"))) == config


@given(st.dictionaries(NAMES, SCALARS, max_size=4))
def test_flags_with_equals_hold_one_argument_each(config: dict[str, Any]) -> None:
    written = write_arguments(config, "equals")
    assert dict(item.removeprefix("--").split("=", 1) for item in written) == {
        name: as_text(value) for name, value in config.items()
    }


def test_lists_nested_values_null_and_booleans() -> None:
    config = {
        "layers": [64, 32],
        "model": {"width": 3, "kind": "a b"},
        "none": None,
        "fp16": True,
        "x": -1e-05,
    }
    assert write_arguments(config, "flags") == [
        "--layers", "64", "32", "--model.width", "3", "--model.kind", "a b", "--fp16", "true", "--x=-1e-05",
    ]  # fmt: skip
    assert write_arguments(config, "equals") == [
        "--layers=[64, 32]", "--model.width=3", "--model.kind=a b", "--fp16=true", "--x=-1e-05",
    ]  # fmt: skip
    assert write_arguments(config, "hydra") == [
        "layers=[64,32]", "model.width=3", "model.kind='a b'", "none=null", "fp16=true", "x=-1e-05",
    ]  # fmt: skip
    assert dict(variables(config)) == {
        "LAYERS": "[64, 32]", "MODEL_WIDTH": "3", "MODEL_KIND": "a b", "FP16": "true", "X": "-1e-05",
    }  # fmt: skip


@needs_hydra
@given(st.one_of(SCALARS, st.none(), st.lists(SCALARS, max_size=3)))
def test_hydra_reads_an_override_as_it_was(value: Any) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    (written,) = write_arguments({"name": value}, "hydra")
    parsed = OverridesParser.create().parse_override(written).value()
    assert plain(parsed) == value
    assert type(plain(parsed)) is type(value)


@needs_hydra
@given(st.text("aZ09_.+-/@e$:~ =é", max_size=6))
def test_a_parameter_is_a_key_of_hydra_where_its_parser_takes_it(path: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser
    from hydra.errors import HydraException

    try:
        found = OverridesParser.create().parse_override(f"{path}=1")
    except HydraException:
        is_key = False
    else:  # not those of which hydra takes only a part, or none
        is_key = found.input_line == f"{path}=1" and found.value() == 1 and bool(found.key_or_group)
    assert not is_hydra_key(path) or is_key


@needs_hydra
@given(st.text("aé1.: ,'\\{}[]()=-é\t#", min_size=1, max_size=6))
def test_hydra_reads_the_keys_of_a_mapping_as_they_were_or_they_are_refused(key: str) -> None:
    from hydra.core.override_parser.overrides_parser import OverridesParser

    try:
        (written,) = write_arguments({"name": [{key: 1}]}, "hydra")
    except ArgumentsError:
        return
    (parsed,) = OverridesParser.create().parse_override(written).value()
    assert [str(found) for found in parsed] == [key] or isinstance(next(iter(parsed)), int | float)


@pytest.mark.parametrize("text", ["café", "naïve", "/data/Müller/a.csv", ".5", ".1e3", "a²", "١٢"])
def test_a_text_that_hydra_does_not_read_as_it_is_has_quotes(text: str) -> None:
    """Its grammar knows letters and digits of ASCII only; a text that begins with a dot may be a number."""
    assert write_arguments({"k": text}, "hydra") == [f"k='{text}'"]
    assert write_arguments({"k": "./" + "data"}, "hydra") == ["k='./data'"]


def plain(parsed: Any) -> Any:
    text = getattr(parsed, "text", None)
    if text is not None:
        return text
    return [plain(item) for item in parsed] if isinstance(parsed, list) else parsed


def test_switches_are_there_or_not() -> None:
    config = {
        "fp16": True,
        "debug": False,
        "model": {"bias": True},
        "lr": 0.1,
        "x": [True],
        "none": None,
        "n": -1,
    }
    written = ["--fp16", "--model.bias", "--lr", "0.1", "--x", "true", "--n=-1"]
    assert write_arguments(config, "switches") == written


@given(st.dictionaries(NAMES, st.booleans(), max_size=5))
def test_argparse_reads_switches_as_they_were(config: dict[str, bool]) -> None:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    for name in config:
        parser.add_argument(f"--{name}", action="store_true")
    assert vars(parser.parse_args(write_arguments(config, "switches"))) == config


@pytest.mark.parametrize(
    ("config", "message"),
    [
        (
            {"model": {"path": 1}, "path": "x"},
            "the parameter path would replace the variable PATH: rename it",
        ),
        ({"a": {"b": 1}, "a_b": 2}, "the parameters a.b and a_b are one variable, A_B: rename one"),
    ],
)
def test_no_parameter_of_a_trial_replaces_a_variable_or_another_one(
    config: dict[str, Any], message: str
) -> None:
    """As where a choice between mappings brings it, which no check of a spec sees."""
    with pytest.raises(ArgumentsError, match=message):
        dict(variables(config))


def test_a_parameter_whose_variable_programs_need_is_left_to_the_placeholder_that_names_it() -> None:
    assert dict(variables({"path": "x", "lr": 1}, named=["path"])) == {"LR": "1"}


@given(st.dictionaries(NAMES, st.one_of(SCALARS, st.lists(SCALARS, max_size=3)), max_size=4))
def test_a_config_file_is_read_as_it_was(
    tmp_path_factory: pytest.TempPathFactory, config: dict[str, Any]
) -> None:
    folder = tmp_path_factory.mktemp("config")
    assert json.loads(write_config(config, "json", folder).read_text(encoding="utf-8")) == config
    assert yaml.safe_load(write_config(config, "yaml", folder).read_text(encoding="utf-8")) == config


@given(st.dictionaries(NAMES, TEXT, min_size=1, max_size=4))
def test_a_filled_command_reaches_the_program_as_it_is(config: dict[str, str]) -> None:
    command = ["x", *(f"pre{{{name}}}post" for name in config)]
    filled = fill_command(command, config, config.__getitem__, style="flags", resume=(), adds_args=False)
    assert filled == ["x", *(f"pre{value}post" for value in config.values())]


def test_args_are_what_no_other_placeholder_names() -> None:
    config = {"lr": 0.1, "width": 3}
    filled = fill_command(
        ["x", "--rate", "{lr}", "{args}", "end"], config, lambda name: as_text(config[name]),
        style="flags", resume=(), adds_args=False,
    )  # fmt: skip
    assert filled == ["x", "--rate", "0.1", "--width", "3", "end"]


@pytest.mark.parametrize("command", [["x", "{resume}", "end"], ["x", "end"]])
def test_resume_arguments_are_there_with_a_checkpoint_only(command: list[str]) -> None:
    def filled(resume: tuple[str, ...]) -> list[str]:
        return fill_command(command, {}, lambda name: "/c d", style="flags", resume=resume, adds_args=False)

    assert filled(()) == ["x", "end"]
    assert set(filled(("--resume", "{checkpoint}"))) == {"x", "end", "--resume", "/c d"}


@given(TEXT)
def test_text_without_a_name_in_braces_stays_as_it_is(text: str) -> None:
    if not names_in(text) and "{{" not in text:
        assert fill(text, lambda name: pytest.fail(name)) == text


def test_braces_of_json_shells_and_escapes_stay() -> None:
    for text in ('{"a": {"b": 1}}', "${HOME}", "{ lr }", "{}", "a{1}b"):
        assert fill(text, lambda name: "!") == text
    assert fill("{{lr}}-{lr}", lambda name: "!") == "{lr}-!"


def test_a_shell_sees_what_was_quoted() -> None:
    config = {"text": "a 'b' $HOME `x` \"c\"\n"}
    line = shlex.join(["printf", "%s", *write_arguments(config, "equals")])
    found = subprocess.run(["sh", "-c", line], capture_output=True, text=True, check=True)
    assert found.stdout == f"--text={config['text']}"


@given(st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2)))
def test_values_that_are_no_text_are_json(value: Any) -> None:
    if not isinstance(value, str):
        assert json.loads(as_text(value)) == value
