"""The examples of the guide for those who extend raysweep pass the suites that it names."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from raysweep.documents.text import read_yaml
from raysweep.specs import SweepSpec

GUIDE = Path(__file__).parents[3] / "docs/guides/extending.md"


def files() -> dict[str, str]:
    """The guide's files: blocks that begin with the same name follow each other."""
    found: dict[str, str] = {}
    for name, block in re.findall(r"```python\n# (\w+\.py)[^\n]*\n(.*?)```", GUIDE.read_text(), re.DOTALL):
        found[name] = found.get(name, "") + block + "\n\n"
    return found


def test_the_examples_pass_their_suites(tmp_path: Path) -> None:
    """As a user runs them: in a process of their own, from a folder of their own."""
    for name, text in files().items():
        (tmp_path / name).write_text(text)
    done = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path)],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert done.returncode == 0, done.stdout
    passed = re.search(r"(\d+) passed", done.stdout)
    assert passed is not None
    assert int(passed[1]) >= 33
    assert "failed" not in done.stdout


def test_the_yaml_is_a_specs() -> None:
    (block,) = re.findall(r"```yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    fields = {"name": "s", "trainable": "m:f", "param_space": {"x": {"uniform": [0, 1]}}, "metric": "m"}
    given = read_yaml(block)
    assert isinstance(given, dict)
    spec = SweepSpec.from_any({**fields, "mode": "min", **given})
    assert (spec.scheduler.is_plugin, spec.search.is_plugin) == (True, True)


@pytest.mark.parametrize("name", sorted(files()))
def test_the_examples_are_files(name: str) -> None:
    compile(files()[name], name, "exec")
