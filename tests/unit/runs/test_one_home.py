"""What a run in the storage does has one home, `runs/` and the models: whoever shows it computes nothing."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from raysweep.core.vocabulary.lifecycle import FINAL
from raysweep.documents.json_numbers import Counts

ROOT = Path(__file__).parents[3]
PACKAGES = ("engine/raysweep", "operators/raysweep_airflow", "flows/raysweep_prefect", "devtools")
# Where counts are kept and sums of them are made.
HOMES = tuple(
    f"engine/raysweep/{name}" for name in ("core/", "runs/", "documents/json_numbers.py", "outcome/")
)
ENDS = {"completed", "stopped", "failed", "cancelled"}
AT_WORK = {"starting", "running"}


def sources() -> Iterator[tuple[str, str]]:
    for package in PACKAGES:
        for path in sorted((ROOT / package).rglob("*.py")):
            name = path.relative_to(ROOT).as_posix()
            if not name.startswith(HOMES):
                yield name, path.read_text(encoding="utf-8")


def sums(text: str) -> Iterator[int]:
    """Lines that take a sweep's counts apart, or list by hand which states are an end."""
    if "counts" not in text and not re.search(r"[\"'](stopped|starting)[\"']", text):
        return
    nodes = list(ast.walk(ast.parse(text)))
    types = {id(node.slice) for node in nodes if isinstance(node, ast.Subscript)}
    for node in nodes:
        match node:
            case ast.Tuple() if id(node) in types:
                pass
            case ast.Attribute(value=ast.Attribute(attr="counts"), attr=name):
                if name not in ("ended", "failed", "finished", "shown"):
                    yield node.lineno
            case ast.Subscript(value=ast.Attribute(attr="counts")):
                yield node.lineno
            case ast.comprehension(iter=ast.Attribute(attr="counts")):
                yield node.iter.lineno
            case ast.Tuple(elts=items) | ast.List(elts=items) | ast.Set(elts=items):
                words = {item.value for item in items if isinstance(item, ast.Constant)}
                if len(words & ENDS) > 2 or words >= AT_WORK:
                    yield node.lineno


def flattenings(text: str) -> Iterator[int]:
    """Functions that walk down nested mappings and yield as they go."""
    for function in re.finditer(r"^ *def (\w+)\(.*?(?=^[\w@]|\Z)", text, re.DOTALL | re.MULTILINE):
        goes_down = re.search(r" in (sorted\()?\w+\.items\(\)", function[0])
        if goes_down and f"yield from {function[1]}(" in function[0]:
            yield text.count("\n", 0, function.start()) + 1


def test_sums_over_counts_are_made_by_the_models() -> None:
    found = [f"{name}:{line}" for name, text in sources() for line in sums(text)]
    assert not found, "say it on `Counts`, or on the model that has them"


def test_a_config_is_flattened_in_one_place() -> None:
    found = {name for name, text in sources() if list(flattenings(text))}
    # The others walk a search space, through its lists and its branches; or the pages of the site.
    home = "engine/raysweep"
    assert found == {
        f"{home}/documents/json_values.py",
        f"{home}/space/parsed.py",
        f"{home}/space/branches.py",
        f"{home}/space/held_tuples.py",
        "devtools/agent_pages.py",
    }


@pytest.mark.parametrize(
    "text",
    [
        "ended = sum(progress.counts.get(state, 0) for state in _ENDED)",
        'failed = status.counts["failed"]',
        "total = sum(number for number in outcome.counts)",
        "names = ', '.join(f'{number} {name}' for name, number in progress.counts.items())",
        '_ENDED = ("completed", "stopped", "failed")',
        'is_at_work = status in ("starting", "running", "stopping")',
    ],
)
def test_a_sum_is_seen(text: str) -> None:
    assert list(sums(text)) == [1]


def test_a_second_flattening_is_seen() -> None:
    text = """
def other():
    yield 1

def paths(value, path):
    if isinstance(value, dict):
        for key, item in value.items():
            yield from paths(item, f"{path}/{key}")
"""
    assert list(flattenings(text)) == [5]


def test_what_counts_as_ended_is_what_the_lifecycle_says() -> None:
    assert {state for state in [*FINAL, "pending", "running", "waiting"] if Counts({state: 1}).ended} == FINAL


def test_counts_as_people_see_them() -> None:
    counts = Counts(
        {"pending": 9, "queued": 2, "running": 1, "stopping": 1, "waiting": 1, "stopped": 3, "failed": 1}
    )
    assert counts.shown == {"stopped": 3, "failed": 1, "running": 2, "waiting": 1}
    assert (counts.ended, counts.finished) == (4, 3)
    assert Counts.of({"failed": 0, "completed": 1}) == {"completed": 1}
