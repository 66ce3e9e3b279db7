"""`docs/security.md`: each line of what somebody may or may not do is held by tests, and they are there."""

from __future__ import annotations

import ast
import re
import stat
from pathlib import Path

from devtools.airflow.local import secrets_of, write_secret

ROOT = Path(__file__).parents[2]
UNPICKLES = {
    "engine/raysweep/worker/setup.py": "a trainable by value, from its sweep's controller, through Ray",
    "engine/raysweep/worker/evaluation.py": "an evaluator by value, from its sweep's controller, through Ray",
    "engine/raysweep/worker/process/fork_server.py": "a trainable by value, from its worker",
    "engine/raysweep/worker/validation.py": "a trainer's validation, from a trial of its sweep, by its link",
    "engine/raysweep/delivery/process.py": "a callback object, from its sweep's controller, by a pipe",
    "engine/raysweep/training/worker_loop.py": "a training loop, from its driver, through Ray",
}


def rows() -> list[list[str]]:
    """The lines of the table of who may do what."""
    text = (ROOT / "docs/security.md").read_text().partition("## Who may do what")[2].partition("\n## ")[0]
    lines = [line for line in text.splitlines() if line.startswith("| ")][1:]
    return [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in lines]


def test_each_line_names_tests_that_exist() -> None:
    known = set()
    for path in (ROOT / "tests").rglob("test_*.py"):
        known |= set(re.findall(r"(?m)^def (test_\w+)", path.read_text()))
    found = rows()
    assert len(found) >= 14
    for cells in found:
        assert len(cells) == 4, cells
        named = re.findall(r"`(test_\w+)`", cells[3])
        assert named, cells
        assert set(named) <= known, set(named) - known


def test_nothing_that_is_stored_is_unpickled() -> None:
    """What unpickles gets it from a process of the same sweep; nothing reads the storage with it."""
    found = set()
    for package in ("engine", "operators", "flows"):
        for path in (ROOT / package).rglob("*.py"):
            tree = ast.parse(path.read_text())
            calls = (node.func for node in ast.walk(tree) if isinstance(node, ast.Call))
            names = {ast.unparse(each) for each in calls}
            if any(
                re.fullmatch(r"(\w*pickle|torch|joblib|marshal|shelve)\.(loads?|open)", each)
                for each in names
            ):
                found.add(str(path.relative_to(ROOT)))
    assert found == set(UNPICKLES)


def test_only_this_user_reads_the_password(tmp_path: Path) -> None:
    path = tmp_path / "passwords.json"
    path.write_text("of an earlier start")
    path.chmod(0o644)
    write_secret(path, "hunter22")
    assert path.read_text() == "hunter22"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secret = secrets_of(tmp_path, "api")
    assert secrets_of(tmp_path, "api") == secret
    assert stat.S_IMODE((tmp_path / "api.secret").stat().st_mode) == 0o600
