"""The walks of docs/architecture.md name code that is there, and each step is connected to one before it."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SECTION = re.compile(r"^### (?P<title>.+)\n\n(?P<steps>(?:\d+\. .*\n)+)", re.MULTILINE)
STEP = re.compile(r"^\d+\. `(?P<file>[\w/]+\.py)`(?:, `(?P<name>\w+)`)?", re.MULTILINE)
LONGEST = {
    "A config": 27,
    "A report": 25,
    "A checkpoint": 35,
    "A training": 30,
    "Resources": 13,
    "An Airflow task": 22,
    "Nights": 25,
}
"""How many files each walk may have."""


def read_walks() -> dict[str, list[tuple[str, str | None]]]:
    page = (ROOT / "docs/architecture.md").read_text(encoding="utf-8")
    walks = page[page.index("## Seven walks") :]
    return {
        found["title"]: [(step["file"], step["name"]) for step in STEP.finditer(found["steps"])]
        for found in SECTION.finditer(walks)
    }


WALKS = read_walks()


def path_of(file: str) -> Path:
    return ROOT / ("operators" if file.startswith("raysweep_airflow/") else "engine/raysweep") / file


def module_of(file: str) -> str:
    name = file.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    return name if file.startswith("raysweep_airflow/") else f"raysweep.{name}"


def imports_of(file: str) -> set[str]:
    """Each module that the file imports, and each name that it imports from one."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(path_of(file).read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module, *(f"{node.module}.{alias.name}" for alias in node.names)}
    return found


def imports(file: str, other: str) -> bool:
    module = module_of(other)
    return bool(({module, module.rpartition(".")[0]} - {"raysweep"}) & imports_of(file))


def test_there_are_seven_walks() -> None:
    assert len(WALKS) == 7
    for word, limit in LONGEST.items():
        (steps,) = [steps for title, steps in WALKS.items() if title.startswith(f"{word},")]
        assert 5 < len({file for file, _ in steps}) <= limit


@pytest.mark.parametrize("title", WALKS)
def test_each_step_names_code_that_is_there(title: str) -> None:
    for file, name in WALKS[title]:
        text = path_of(file).read_text(encoding="utf-8")
        assert name is None or re.search(rf"^ *(?:(?:async )?def|class) {name}\b", text, re.MULTILINE), name


@pytest.mark.parametrize("title", WALKS)
def test_each_step_is_connected_to_one_before_it(title: str) -> None:
    """One of the two imports the other, or a name from the package of the other."""
    files = [file for file, _ in WALKS[title]]
    for index, file in enumerate(files[1:], 1):
        before = files[:index]
        is_connected = any(imports(file, other) or imports(other, file) for other in before)
        assert is_connected or file in before, f"{file} after {before[-1]}"
