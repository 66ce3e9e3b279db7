"""Private parts of Ray are imported in raysweep.raycompat, and nowhere else."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
# Modules that begin with an underscore, names from Ray that do, and its generated messages.
PRIVATE = re.compile(r"ray(\.\w+)*\.(_\w+|core\.generated)\b")
ALLOWED = (
    "engine/raysweep/raycompat/",
    "tests/unit/raycompat/",
    "tests/insides.py",
    # The name of a plug-in of Ray's, which Ray takes as text.
    "tests/faults/test_autoscaled.py",
)


def private_parts(tree: ast.AST) -> Iterator[str]:
    """What the module takes from Ray's insides, also by a name in a string."""
    for node in ast.walk(tree):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [f"{node.module}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            names = re.split(r"[\s,'\"`()]+", node.value)
        yield from (name for name in names if PRIVATE.match(name))


def test_it_sees_each_way() -> None:
    ways = (
        "import ray._private.state",
        "from ray._raylet import GcsClient",
        "from ray.core.generated import gcs_pb2",
        "from ray.train.v2._internal.util import x",
        "from ray.train.lightgbm.config import _set_network_params",
        "import_module('ray.train._internal.utils')",
        "exec('from ray._private import services')",
    )
    assert [way for way in ways if not list(private_parts(ast.parse(way)))] == []
    plain = "import ray; from ray.train import report; from raysweep._x import y; f('array._x')"
    assert list(private_parts(ast.parse(plain))) == []


def test_private_parts_of_ray_are_imported_in_one_place() -> None:
    found = {}
    for folder in ("engine", "operators", "flows", "devtools", "dags", "examples", "benchmarks", "tests"):
        for path in (ROOT / folder).rglob("*.py"):
            name = str(path.relative_to(ROOT))
            text = path.read_text(encoding="utf-8")
            if not name.startswith(ALLOWED) and re.search(r"\bray\b", text):
                found[name] = sorted(set(private_parts(ast.parse(text))))
    assert len(found) > 200
    assert {name: parts for name, parts in found.items() if parts} == {}, "put them behind raysweep.raycompat"
