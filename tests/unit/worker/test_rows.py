"""Names and values of a report, of kinds that are not plain."""

from __future__ import annotations

import math
from enum import StrEnum
from typing import Any

import hypothesis.strategies as st
import numpy as np
import orjson
import pytest
from hypothesis import given

from raysweep.errors import RaysweepError, message_of
from raysweep.worker.rows import MAX_DEPTH, MAX_TEXT_CHARS, RowMaker, as_json


class Name(StrEnum):
    LOSS = "loss"


@pytest.mark.parametrize("name", [np.str_("loss"), Name.LOSS, "loss"])
def test_names_of_other_kinds_of_strings_are_names(name: str) -> None:
    rows = RowMaker()
    rows.set_keys((name,))
    assert rows.keys == ("loss",)
    assert type(rows.keys[0]) is str


@pytest.mark.parametrize(
    ("name", "text"), [(7, "named by strings; 7 is a int"), ("\ud800", "named by valid Unicode text")]
)
def test_what_is_no_name_is_refused(name: Any, text: str) -> None:
    with pytest.raises(RaysweepError, match=text):
        RowMaker().set_keys((name,))


@pytest.mark.parametrize("raised", [SystemExit(3), KeyboardInterrupt(), ValueError("inner")])
def test_an_error_is_asked_what_it_says_at_no_risk(raised: BaseException) -> None:
    class SpeechlessError(Exception):
        def __str__(self) -> str:
            raise raised

    assert message_of(SpeechlessError()) == "<exception str() failed>"
    assert message_of(ValueError("said")) == "said"


class Point:
    def __repr__(self) -> str:
        return "Point(1, 2)"


class Speechless:
    def __repr__(self) -> str:
        raise RuntimeError("no")


class Hostile:
    """Its methods raise what is no `Exception`'s usual kind."""

    @property
    def item(self) -> Any:
        raise ValueError("no item")

    def __repr__(self) -> str:
        return "hostile"


@pytest.mark.parametrize(
    ("value", "kept", "odd"),
    [
        (..., "Ellipsis", "ellipsis"),
        (b"ab", "b'ab'", "bytes"),
        (1 + 2j, "(1+2j)", "complex"),
        (Point(), "Point(1, 2)", "Point"),
        (Hostile(), "hostile", "Hostile"),
        (Speechless(), "<Speechless: its repr raised RuntimeError>", "Speechless"),
        ("\ud800", "\\ud800", "str"),
        ("é", "é", ""),
        (None, None, ""),
        (True, True, ""),
        (math.nan, "NaN", ""),
        (-math.inf, "-Infinity", ""),
        (2**80, float(2**80), ""),
        (10**400, f"{10**400}"[:MAX_TEXT_CHARS], "int"),
        ((1, 2), [1, 2], ""),
        ({3}, [3], ""),
        ({1: "a", "b": Point()}, {"1": "a", "b": "Point(1, 2)"}, "Point"),
        ([{"deep": [b"x", 2**80]}], [{"deep": ["b'x'", float(2**80)]}], "bytes"),
        (np.arange(6).reshape(2, 3), [[0, 1, 2], [3, 4, 5]], ""),
        (np.arange(6).reshape(2, 3).T, [[0, 3], [1, 4], [2, 5]], ""),
        (np.array([1, Point()], dtype=object), [1, "Point(1, 2)"], "Point"),
        (np.float32(0.5), 0.5, ""),
        (np.array([1 + 2j]), ["(1+2j)"], "complex"),
        (np.datetime64("2026-01-02"), "2026-01-02", ""),
    ],
)
def test_any_value_has_a_form_in_json(value: Any, kept: Any, odd: str) -> None:
    assert as_json(value) == (kept, odd)


def test_what_is_kept_as_text_is_cut() -> None:
    text, odd = as_json(bytes(10_000))
    assert (len(text), odd) == (MAX_TEXT_CHARS + 1, "bytes")
    assert text.endswith("…")


def test_a_value_that_holds_itself_ends_at_a_depth() -> None:
    held: list[Any] = [object]
    held.append(held)
    found, odd = as_json(held)
    assert odd == "type"
    for _ in range(MAX_DEPTH):
        assert isinstance(found, list)
        found = found[1]
    assert found.startswith("[<class 'object'>")


JSON_LIKE = st.recursive(
    st.one_of(
        st.none(),
        st.booleans(),
        st.integers(),
        st.floats(),
        st.text(),
        st.binary(),
        st.complex_numbers(),
        st.dates(),
        st.decimals(),
        st.just(object()),
        st.just(Point()),
        st.characters(categories=["Cs"]),
    ),
    lambda inner: st.one_of(
        st.lists(inner),
        st.tuples(inner, inner),
        st.frozensets(st.integers()),
        st.dictionaries(st.one_of(st.text(), st.integers(), st.none(), st.binary()), inner),
    ),
    max_leaves=10,
)


@given(JSON_LIKE)
def test_no_value_fails_a_report(value: Any) -> None:
    rows = RowMaker()
    rows.set_keys(("odd",))
    packed = rows.pack([rows.convert("odd", value)])
    assert isinstance(orjson.loads(packed), list)
    assert rows.as_text.keys() <= {"odd"}
