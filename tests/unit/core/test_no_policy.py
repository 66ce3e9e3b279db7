"""The core knows no policy by name: it asks what a scheduler, and a search's options, say of themselves."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import raysweep.core
from raysweep import schedulers, search
from raysweep.specs.schedulers import SchedulerSpec
from raysweep.specs.search import SearchSpec

CORE = Path(raysweep.core.__file__).parent
OF_POLICIES = re.compile(
    r"asha|fifo|\btpe\b|\brandom\b|\bgrid\b|\bconfigs[_ ]search|(Random|Grid|Tpe|Configs)Options", re.I
)


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


def test_each_kind_of_the_spec_has_its_class() -> None:
    assert set(schedulers._KINDS) == set(SchedulerSpec.kinds)
    assert set(search._KINDS) == set(SearchSpec.kinds)
