"""The core knows no policy by name: it asks what a scheduler, and a search's options, say of themselves."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

import raysweep.core
from raysweep.schedulers.registry import KINDS as KINDS_OF_SCHEDULERS
from raysweep.schedulers.spec import SchedulerSpec
from raysweep.search.registry import KINDS as KINDS_OF_SEARCHERS
from raysweep.search.spec import SearchSpec

CORE = Path(raysweep.core.__file__).parent
KINDS = {**SchedulerSpec.kinds, **SearchSpec.kinds}
ORDINARY = {"auto": r"\bauto\b", "configs": "configs[_ ]search", "gp": r"\bgp\b", "grid": r"\bgrid\b"}
ORDINARY["random"] = r"\brandom\b"
"""Kinds whose names are ordinary words, or parts of such words: the pattern by which the core names them."""


def _patterns() -> Iterator[str]:
    for kind in KINDS:
        yield ORDINARY.get(kind) or kind.replace("_", "[_ -]?")
    for options in (*SchedulerSpec.kinds.values(), *SearchSpec.kinds.values()):
        yield rf"\b{options.__name__}"
        for name, found in vars(sys.modules[options.__module__]).items():
            is_own = isinstance(found, type) and found.__module__ == options.__module__
            if is_own and name.endswith(("Scheduler", "Searcher", "Model")):
                yield rf"\b{name}\b"


OF_POLICIES = re.compile("|".join(_patterns()), re.IGNORECASE)


def named_in(source: str) -> list[str]:
    """Names, strings and imports of a module that name a policy; docstrings too."""
    found = []
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)) | ast.Name(id=text) | ast.Attribute(attr=text):
                texts = [text]
            case (
                ast.alias(name=text)
                | ast.ClassDef(name=text)
                | ast.FunctionDef(name=text)
                | ast.arg(arg=text)
            ):
                texts = [text]
            case ast.ImportFrom(module=str(text)):
                texts = [text]
            case _:
                texts = []
        found += [text for text in texts if OF_POLICIES.search(text)]
    return found


def test_the_core_names_no_policy() -> None:
    paths = sorted(CORE.rglob("*.py"))
    assert len(paths) > 20
    assert {path.name: names for path in paths if (names := named_in(path.read_text()))} == {}


def test_it_would_be_noticed() -> None:
    for line in (
        "from raysweep.specs import AshaOptions",
        "kind = 'tpe'",
        "x.FifoScheduler",
        "def f(grid): ...",
    ):
        assert named_in(line), line


@pytest.mark.parametrize("kind", KINDS)
def test_each_registered_name_would_be_noticed(kind: str) -> None:
    for options in (SchedulerSpec.kinds.get(kind), SearchSpec.kinds.get(kind)):
        assert options is None or named_in(f"from raysweep.specs import {options.__name__}")
    assert named_in(f"kind = {kind!r}") or kind == "configs", "the events have configs too"
    assert named_in(f"is_{kind}_search = True") or kind in ORDINARY


def test_each_kind_of_the_spec_has_its_class() -> None:
    """A kind that is registered without its class, or without its options, cannot be used."""
    assert list(KINDS_OF_SCHEDULERS) == list(SchedulerSpec.kinds)
    assert list(KINDS_OF_SEARCHERS) == list(SearchSpec.kinds)
