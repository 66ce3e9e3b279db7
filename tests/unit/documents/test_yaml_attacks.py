"""YAML that somebody wrote to get past the checks: read as plain values, or refused with its place."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from raysweep.documents.text import read_json, read_yaml
from raysweep.documents.yaml_values import FREE_VALUES
from raysweep.errors import SpecError
from raysweep.specs import SweepSpec

SPEC = "trainable: my_project:train\n"
TWICE = {
    "plainly": "trainable: subprocess:call",
    "quoted": '"trainable": subprocess:call',
    "by an escape": '"tr\\x61inable": subprocess:call',
    "as !!value": "!!value trainable: subprocess:call",
    "as !!str": "!!str trainable: subprocess:call",
    "by the tag's whole name": "!<tag:yaml.org,2002:value> trainable: subprocess:call",
    "as !!binary": "!!binary dHJhaW5hYmxl: subprocess:call",
    "with a tag of one's own": "!mine trainable: subprocess:call",
    "as a complex key": "? trainable\n: subprocess:call",
    "folded": "? >-\n  trainable\n: subprocess:call",
    "with an anchor": "&a trainable: subprocess:call",
}


@pytest.mark.parametrize("line", TWICE.values(), ids=TWICE)
def test_no_key_can_be_given_twice(line: str) -> None:
    """In whatever form: the last one would win, and name what runs."""
    with pytest.raises(SpecError, match=r"given twice|means nothing here") as caught:
        read_yaml(SPEC + line + "\n")
    assert "line 2" in str(caught.value)


def test_keys_are_compared_as_the_values_that_they_are() -> None:
    for text in ("{1: a, 0x1: b}", "{1: a, 1.0: b}", "{1: a, true: b}", "{~: a, null: b}", "{a: 1, 'a': 2}"):
        with pytest.raises(SpecError, match="given twice"):
            read_yaml(text)
    assert read_yaml("{1: a, '1': b}") == {1: "a", "1": "b"}


def test_what_is_merged_in_never_wins() -> None:
    assert read_yaml(SPEC + "<<: {trainable: subprocess:call, x: 1}\n") == {
        "trainable": "my_project:train",
        "x": 1,
    }
    merged = read_yaml("a: &a {x: 1}\nb: &b {x: 2, y: 2}\nc: {<<: [*a, *b]}\n")["c"]
    assert merged == {"x": 1, "y": 2}
    for text in ("{<<: {a: 1}, <<: {a: 2}}", "{<<: 1}", "{<<: [1]}", "!!merge x: {a: 1}"):
        with pytest.raises(SpecError):
            read_yaml(text)
    assert read_yaml("{'<<': 1, a: <<}") == {"<<": 1, "a": "<<"}


REFUSED = {
    "an object": ("a: !!python/object/apply:os.system [x]", "'python/object/apply:os.system' means nothing"),
    "a date": ("a: !!timestamp 2026-11-21", "'timestamp' means nothing"),
    "a set": ("!!set {a, b}", "'set' means nothing"),
    "an ordered map": ("!!omap [a: 1]", "'omap' means nothing"),
    "bytes": ("a: !!binary AAAA", "'binary' means nothing"),
    "no integer": ("a: !!int x", "'x' is no int"),
    "no boolean": ("a: !!bool maybe", "'maybe' is no bool"),
    "no number": ("a: !!float x", "'x' is no float"),
    "no null": ("a: !!null x", "'x' is no null"),
    "a list as text": ("a: !!str [x]", "'str' means nothing"),
    "a text as list": ("a: !!seq x", "'seq' means nothing"),
    "a list as key": ("? [a]\n: 1", "a sequence is a key"),
    "a circle": ("a: &a [*a]", "an alias"),
    "a circle of mappings": ("&a {b: *a}", "an alias"),
    "many digits": ("a: " + "1" * 5000, "5000 digits"),
    "many hex digits": ("a: 0x" + "f" * 5000, "digits"),
    "half a pair": ('a: "\\ud800"', "surrogate"),
    "depth": ("[" * 5000, "nested too deeply"),
    "two documents": ("a: 1\n---\nb: 2\n", "single document|another document"),
}


@pytest.mark.parametrize(("text", "problem"), REFUSED.values(), ids=REFUSED)
def test_what_is_no_plain_value_is_refused(text: str, problem: str) -> None:
    with pytest.raises(SpecError, match=problem) as caught:
        read_yaml(text)
    assert "\n" not in str(caught.value)


def test_a_few_lines_cannot_stand_for_billions_of_values() -> None:
    lines = ["a0: &a0 [x, x]"]
    lines += [f"a{n}: &a{n} [*a{n - 1}, *a{n - 1}, *a{n - 1}]" for n in range(1, 40)]
    with pytest.raises(SpecError, match="too many values"):
        read_yaml("\n".join(lines))
    # As often as a person would.
    text = "base: &b {x: 1, y: [1, 2, 3]}\n" + "".join(f"n{number}: *b\n" for number in range(5000))
    assert read_yaml(text)["n4999"] == {"x": 1, "y": [1, 2, 3]}


def test_a_long_list_without_aliases_is_not_bounded() -> None:
    values = list(range(FREE_VALUES + 1))
    assert read_yaml(json.dumps(values)) == values


@pytest.mark.parametrize("text", ["[" * 100_000, '{"a": ' * 100_000, "[" + "1" * 5000 + "]"])
def test_the_same_of_json(text: str) -> None:
    with pytest.raises(SpecError, match=r"nested too deeply|thousands of digits") as caught:
        read_json(text)
    assert "\n" not in str(caught.value)


@given(st.text())
@example("😀")
@example('"\n  trainable: subprocess:call')
@example("\u2028x: y")
def test_text_that_is_escaped_as_json_is_that_text(text: str) -> None:
    """What `tojson` makes of a parameter of a DAG cannot be anything but one value."""
    from jinja2.utils import htmlsafe_json_dumps

    try:
        text.encode()
    except UnicodeEncodeError:
        return
    assert read_yaml(f"a: {htmlsafe_json_dumps(text)}\nb: 1\n") == {"a": text, "b": 1}


TAGS = [
    "!!value",
    "!!str",
    "!!int",
    "!!merge",
    "!!binary",
    "!!map",
    "!!seq",
    "!x",
    "!",
    "!!bool",
    "!!timestamp",
]
WORDS = [
    "trainable",
    "'trainable'",
    '"trainable"',
    "<<",
    "=",
    "dHJhaW5hYmxl",
    "1",
    "0x1",
    "true",
    "~",
    "x",
    ".inf",
]
PIECES = st.sampled_from(
    (*TAGS, *WORDS, *["&a", "*a", "&b", "*b", "{", "}", "[", "]", ",", ":", "?", "-", "|", ">"])
)
SPACE = st.sampled_from((" ", " ", " ", "\n", "\n  ", ": ", ""))


@settings(max_examples=300, suppress_health_check=[HealthCheck.too_slow])
@given(st.lists(st.tuples(PIECES, SPACE), max_size=14).map(lambda them: "".join(a + b for a, b in them)))
def test_whatever_is_written_is_plain_values_or_an_error(text: str) -> None:
    """And where trainable stands first, it is that one that is read."""
    for each in (text, SPEC + text):
        try:
            value = read_yaml(each)
        except SpecError:
            continue
        assert is_plain(value)
        if each.startswith(SPEC) and isinstance(value, dict):
            assert value["trainable"] == "my_project:train" or not text.strip() or is_continued(text)


def is_continued(text: str) -> bool:
    """Whether the text continues with the line before it, or is another document."""
    return yaml.compose(SPEC + text).value[0][1].value != "my_project:train"


def is_plain(value: Any) -> bool:
    if isinstance(value, dict):
        return all(
            isinstance(key, str | int | float | None) and is_plain(each) for key, each in value.items()
        )
    if isinstance(value, list):
        return all(map(is_plain, value))
    return value is None or isinstance(value, str | int | float)


def test_a_spec_says_where() -> None:
    with pytest.raises(
        SpecError, match="YAML: not valid YAML at line 3, column 1: the key 'name' is given twice"
    ):
        SweepSpec.from_yaml("name: a\ntrainable: m:f\nname: b\n")


@pytest.mark.parametrize("levels", [101, 300, 900])
def test_a_text_has_no_more_levels_than_can_be_stored(levels: int) -> None:
    text = "[" * levels + "]" * levels
    for read in (read_json, read_yaml):
        assert read("[" * 100 + "]" * 100)
        with pytest.raises(SpecError, match="nested too deeply; nest less"):
            read(text)
