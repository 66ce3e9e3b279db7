"""A look at a sweep that has ended imports no core, no models of specs, and nothing that retries."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.unit.verify.stored import store_sweep

HEAVY = ("raysweep.core.machine", "raysweep.specs.sweep", "raysweep.schedulers", "tenacity", "asyncio", "ray")
LOOK = """
import sys
from raysweep.cli import main
code = main(sys.argv[1:])
print([name for name in {heavy} if name in sys.modules])
sys.exit(code)
"""


@pytest.mark.parametrize("command", ["status", "best"])
def test_a_look_at_an_ended_sweep_imports_only_what_it_shows(tmp_path: Path, command: str) -> None:
    stored = store_sweep(tmp_path, is_ended=True)
    program = LOOK.format(heavy=HEAVY)
    words = [command, stored.folder.sweep_id, "--storage", stored.folder.store.url]
    shown = subprocess.run(
        [sys.executable, "-c", program, *words], capture_output=True, text=True, check=True
    ).stdout
    assert "loss" in shown
    assert shown.splitlines()[-1] == "[]"
