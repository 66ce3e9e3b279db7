# ruff: noqa: E501  (programs in strings)
"""The command line is quick, needs no Ray to look at sweeps, and says its version."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import raysweep
from raysweep.simulate import simulate
from tests.sampling import first_of

BLOCKED = """
import sys
HEAVY = ("ray", "optuna", "torch", "pandas", "numpy", "prefect", "airflow")

class Blocker:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in HEAVY:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)

sys.meta_path.insert(0, Blocker())
from raysweep.cli import main
"""


def run(code: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, check=False
    )


def test_help_is_quick_and_loads_nothing_heavy() -> None:
    code = "import sys; from raysweep.cli import main; code = main(['--help']); loaded = [m for m in ('pydantic', 'rich', 'ray', 'yaml') if m in sys.modules]; assert (code, loaded) == (0, []), loaded"
    used = []
    for _ in range(3):
        before = os.times()
        done = run(code)
        after = os.times()
        assert done.returncode == 0, done.stderr
        # CPU time: others use this machine too.
        used.append(
            after.children_user + after.children_system - before.children_user - before.children_system
        )
    assert min(used) <= 0.5
    assert "sweep" in done.stdout


def test_no_arguments_show_the_help() -> None:
    done = run("import sys; from raysweep.cli import main; sys.exit(main([]))")
    assert done.returncode == 0
    assert done.stdout.startswith("Usage: raysweep")


@pytest.mark.parametrize(
    "command", first_of(["status", "best", "trials", "trials --attempts", "status --json"])
)
def test_looking_at_a_sweep_where_ray_is_not_installed(store_sweep: Callable[..., Any], command: str) -> None:
    stored = store_sweep()
    arguments = [*command.split(), stored.sweep_id, "--storage", stored.folder.store.url]
    done = run(f"{BLOCKED}\nsys.exit(main(sys.argv[1:]))", *arguments)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout


def test_the_installed_script_and_the_module() -> None:
    script = Path(sys.executable).with_name("raysweep")
    for command in ([str(script)], [sys.executable, "-m", "raysweep.cli"]):
        done = subprocess.run([*command, "--version"], capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout) == (0, f"raysweep {raysweep.__version__}\n")


@pytest.mark.parametrize(("arguments", "field"), [([], "param_space"), (["train"], "scaling")])
def test_schema(cli: Callable[..., Any], arguments: list[str], field: str) -> None:
    ran = cli("schema", *arguments)
    assert (ran.code, ran.err) == (0, "")
    assert field in json.loads(ran.out)["properties"]


def test_a_reader_that_has_had_enough(store_sweep: Callable[..., Any]) -> None:
    stored = store_sweep()
    command = f"{sys.executable} -m raysweep.cli trials {stored.folder.uri} --json | head -c 1"
    done = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"], capture_output=True, text=True, check=False
    )
    assert "Traceback" not in done.stderr
    assert done.stderr == ""


def test_nothing_of_the_process_is_changed_for_good(cli: Callable[..., Any]) -> None:
    import logging
    import signal
    import warnings

    before = (
        sys.path[:],
        signal.getsignal(signal.SIGTERM),
        logging.getLogger().handlers[:],
        warnings.filters[:],
    )
    cli("status", "--storage", "nothing")
    after = (
        sys.path[:],
        signal.getsignal(signal.SIGTERM),
        logging.getLogger().handlers[:],
        warnings.filters[:],
    )
    assert after == before


@pytest.mark.parametrize("command", [("status",), ("trials",), ("best",), ("trials", "--csv")])
def test_text_that_the_terminal_cannot_show_is_shown_as_question_marks(
    tmp_path: Path, command: tuple[str, ...]
) -> None:
    space = {"x": {"grid_search": [1]}, "city": "Łódź → 東京"}
    spec = {
        "name": "cities",
        "trainable": "none:needed",
        "param_space": space,
        "metric": "loss",
        "mode": "min",
    }
    found = simulate(
        spec | {"seed": 1, "storage_path": str(tmp_path)},
        lambda config, step: {"loss": 1.0} if step < 2 else None,
        keep_at=str(tmp_path),
    )
    words = [command[0], found.outcome.sweep_id, *command[1:], "--storage", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-m", "raysweep.cli", *words],
        env=os.environ | {"PYTHONIOENCODING": "latin-1"},
        capture_output=True,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")
    assert command[0] == "status" or "?" in done.stdout.decode("latin-1")
