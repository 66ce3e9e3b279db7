"""Documents for agents: cleaned, bounded, and honest about what is left out."""

from __future__ import annotations

import functools
from typing import Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raysweep.mcp_server.bounded import MAX_BYTES, MAX_ITEMS, MAX_TEXT, Cut

_LEAVES = st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=30)
# Names that are the same once they are clean: see the test of these.
_NAMES = st.text(st.characters(exclude_categories=["Cc", "Cf", "Cs"]), max_size=9)
DOCUMENTS = st.dictionaries(
    _NAMES,
    st.recursive(_LEAVES, lambda inner: st.lists(inner, max_size=6) | st.dictionaries(_NAMES, inner)),
    max_size=9,
)


NESTED: Any = functools.reduce(lambda inner, _: {"n" * 90: [inner]}, range(2_000), 1)


@settings(max_examples=40, deadline=None)
@given(DOCUMENTS)
def test_a_small_document_stays_as_it_is_but_for_control_characters(document: dict[str, Any]) -> None:
    cut = Cut.of(document)
    assert cut.truncated == []
    if orjson.dumps(document).isascii() and b"\\u" not in orjson.dumps(document):
        assert cut.document == document


def test_what_commands_a_terminal_becomes_a_box() -> None:
    cut = Cut.of({"na\x1bme": ["\x1b]0;title\x07", "a\u202eb", "two\nlines"]})
    assert cut.document == {"na\ufffdme": ["\ufffd]0;title\ufffd", "a\ufffdb", "two\nlines"]}


def test_what_is_left_out_is_listed() -> None:
    cut = Cut.of(
        {"error": {"traceback": "x" * (MAX_TEXT + 1)}, "trials": [1] * 300, "many": [1] * 200},
        rows="trials",
        limit=5,
    )
    assert cut.truncated == [
        "error.traceback: 2,000 of 2,001 characters",
        "trials: 5 of 300 items",
        f"many: {MAX_ITEMS} of 200 items",
    ]
    assert cut.document["trials"] == [1] * 5


@pytest.mark.parametrize(
    "document",
    [
        {"rows": [{"text": "é" * 5000, "more": ["y" * 5000] * 50}] * 90},
        {"a": {f"k{n}" * 500: "v" * 3000 for n in range(5000)}},
        {"a": [[["z" * 4000] * 99] * 99] * 99},
        {"a": NESTED},
        {"rows": [{"deep": NESTED}] * 90},
        {"rows": [{"wide": {str(n): "w" * 3000 for n in range(99)}}]},
    ],
)
def test_no_document_is_larger_than_the_bound(document: dict[str, Any]) -> None:
    cut = Cut.of(document, rows="rows")
    assert cut.size == len(orjson.dumps(cut.document)) <= MAX_BYTES
    assert cut.truncated
    assert len(cut.document.get("rows", [0])) >= 1, "the way to go on needs a row"


def test_names_that_become_one_are_counted() -> None:
    cut = Cut.of({"config": {"a\x1b": 1, "a\x07": 2, "b": 3}})
    assert cut.document == {"config": {"a\ufffd": 2, "b": 3}}
    assert cut.truncated == ["config: 2 of 3 fields"]
