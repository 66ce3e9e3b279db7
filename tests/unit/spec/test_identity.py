from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raysweep.errors import SpecError
from raysweep.spec import slug, sweep_id


def test_ids_are_what_they_were() -> None:
    """Ids are on disk: they must never change."""
    assert sweep_id("flights", "2026-11-21") == "flights-9f331cd5c0"
    assert sweep_id("Flüge nach Köln!", "") == "fluge-nach-koln-7d64c5272e"


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
        ("a" * 60, "a" * 40),
        ("a" * 39 + "-b", "a" * 39),
        ("--A__b..C--", "a-b-c"),
        ("日本", ""),
        ("日本1", "1"),
    ],
)
def test_slug(name: str, made: str) -> None:
    assert slug(name) == made
