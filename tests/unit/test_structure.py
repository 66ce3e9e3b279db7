"""`make structure` counts what it says, and `make check` fails where a figure is over its limit."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

from devtools import structure
from devtools.sizes import code_lines

RAY = f"ray.{chr(95)}private"
"""In parts: these tests import none of it."""
LIMITS = """
from raysweep.documents.base import SpecModel

class Limits(SpecModel):
    '''Two options, one of a class that derives from it; the others are none.'''

    deadline: str
    known: ClassVar[int] = 1
    _seen: int = 0

class Night(Limits):
    # A comment is no code.
    hours: float

class Limit:
    above: float
"""
COMMANDS = """
@app.command()
def sweep(spec: Annotated[str, typer.Argument()], key: Annotated[str, typer.Option()]) -> None: ...

def helper() -> None: ...
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A small checkout with one fault of each kind that `--check` holds."""
    files = {
        "__init__.py": "",
        "a.py": "def f():\n    from raysweep.b import g\n    return g\n",
        "b.py": "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    from raysweep import a\ng = 1\n",
        "schedulers/__init__.py": "",
        "schedulers/asha.py": "class AshaOptions:\n    pass\n",
        "cluster/__init__.py": "",
        "cluster/rungs.py": "from raysweep.schedulers.asha import AshaOptions\nis_asha = AshaOptions\n",
        "cluster/peek.py": f"from {RAY} import state\n",
        "raycompat/__init__.py": f"from {RAY} import state\n",
        "runs/__init__.py": "from raysweep.storage.journal.journal import Journal\n",
        "runs/catalog.py": "def f(store):\n    return store.put_if_version('a', b'', None)\n",
        "storage/journal/journal.py": "class Journal:\n    pass\n",
        "storage/journal/objects.py": "def f(store):\n    return store.put_if_absent('a', b'')\n",
        "core/__init__.py": "def f(rules):\n    return rules.behaviour >= 3\n",
        "outcome.py": "def f(end):\n    return end.why.partition(':')\n",
        "progress.py": 5 * "class A:\n    name: str\n    status: str\n    started_at: float\n",
        "runs/folder.py": "ENDED: tuple[str, ...] = ('a.json', 'b.json', 'c.json')\n",
        "documents/base.py": "class SpecModel:\n    pass\n",
        "limits.py": LIMITS,
        "cli.py": COMMANDS,
        "plots.py": "from importlib import import_module\nimport_module('raysweep.a')\n",
    }
    for name, text in files.items():
        path = tmp_path / "engine/raysweep" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tmp_path / "tests/unit").mkdir(parents=True)
    (tmp_path / "tests/unit/test_a.py").write_text("HELPER = 1\n")
    (tmp_path / "tests/unit/helper.py").write_text("HELPER = 2\n")
    both = "from tests.unit.helper import HELPER\nfrom tests.unit.test_a import HELPER\n"
    (tmp_path / "tests/unit/test_b.py").write_text(both)
    (tmp_path / "tests/unit/test_long.py").write_text("\n" * 501)
    (tmp_path / "operators").mkdir()
    (tmp_path / "operators/work.py").write_text("\n" * 502)
    (tmp_path / "docs/adr").mkdir(parents=True)
    (tmp_path / "docs/adr/0001-x.md").write_text("three words here")
    (tmp_path / "CHANGELOG.md").write_text("# Changes\n")
    return tmp_path


def test_each_kind_is_counted_and_named(checkout: Path) -> None:
    report = structure.count(checkout)
    assert report.places == {
        "import circles": ["2 modules: raysweep.a raysweep.b"],
        "names of policies outside their files": ["raysweep.cluster.rungs: AshaOptions"],
        "private imports of Ray": [f"raysweep.cluster.peek: {RAY}.state"],
        "branches by behaviour": ["raysweep.core:2"],
        "durable primitives": [
            "journals: raysweep.runs",
            "objects replaced by version: raysweep.runs.catalog",
        ],
        "imports of a test module by another": ["tests.unit.test_b: tests.unit.test_a"],
        "files over 500 lines": [
            "operators/work.py: 502 lines",
            "tests/unit/test_long.py: 501 lines",
        ],
        "code that reads a sentence": ["raysweep.outcome:f:2: end.why.partition(':')"],
        "imports by a text outside registries": ["raysweep.plots:2: import_module('raysweep.a')"],
        "models of a run's standing": 5 * ["raysweep.progress: A"],
        "objects of an ended run": ["a.json", "b.json", "c.json"],
        "options of specs": ["raysweep.limits.Limits.deadline", "raysweep.limits.Night.hours"],
        "options of the command line": ["raysweep.cli:3", "raysweep.cli:3"],
        "commands": ["raysweep.cli.sweep"],
    }
    assert report.figures["loose modules at the top"] == 7
    assert report.figures["decisions (ADRs), and their words"] == "1 3"


def test_a_figure_over_its_limit_is_named_with_its_places(checkout: Path) -> None:
    assert list(structure.over_limits(structure.count(checkout))) == [
        "import circles: 1, the limit is 0:\n  2 modules: raysweep.a raysweep.b",
        "names of policies outside their files: 1, the limit is 0:\n  raysweep.cluster.rungs: AshaOptions",
        f"private imports of Ray: 1, the limit is 0:\n  raysweep.cluster.peek: {RAY}.state",
        "branches by behaviour: 1, the limit is 0:\n  raysweep.core:2",
        "imports of a test module by another: 1, the limit is 0:\n  tests.unit.test_b: tests.unit.test_a",
        (
            "files over 500 lines: 2, the limit is 0:\n"
            "  operators/work.py: 502 lines\n  tests/unit/test_long.py: 501 lines"
        ),
        "code that reads a sentence: 1, the limit is 0:\n  raysweep.outcome:f:2: end.why.partition(':')",
        (
            "imports by a text outside registries: 1, the limit is 0:\n"
            "  raysweep.plots:2: import_module('raysweep.a')"
        ),
        "models of a run's standing: 5, the limit is 4:\n  " + "\n  ".join(5 * ["raysweep.progress: A"]),
        "objects of an ended run: 3, the limit is 2:\n  a.json\n  b.json\n  c.json",
    ]


def test_code_is_counted_without_blanks_comments_and_docstrings() -> None:
    assert code_lines(LIMITS, ast.parse(LIMITS)) == 9
    text = 'KIND = """a\ntext\n"""\n"""What it is."""\n'
    assert code_lines(text, ast.parse(text)) == 3


def test_a_number_over_its_limit_is_named(checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(structure, "LIMITS", {"code lines of engine, operators, flows": 10, "commands": 0})
    assert structure.over_limits(structure.count(checkout)) == [
        "code lines of engine, operators, flows: 61, the limit is 10:",
        "commands: 1, the limit is 0:\n  raysweep.cli.sweep",
    ]
