"""What the doctor's job finds on a node without asking Ray."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

LOOK = """
from raysweep.jobs.probe import check_bytecode
for check in check_bytecode("whole"):
    print(check.status)
"""


@pytest.mark.parametrize(
    ("is_kept", "environment", "said"),
    [(True, {}, ""), (True, {"PYTHONDONTWRITEBYTECODE": "1"}, ""), (False, {}, "slow\n")],
    ids=["kept", "kept by the image", "not kept"],
)
def test_packages_without_bytecode_are_said_to_start_slowly(
    tmp_path: Path, is_kept: bool, environment: dict[str, str], said: str
) -> None:
    package = tmp_path / "whole"
    package.mkdir()
    (package / "__init__.py").touch()
    if is_kept:
        subprocess.run([sys.executable, "-m", "compileall", "-q", package], check=True)
    ran = subprocess.run(
        [sys.executable, "-c", LOOK],
        env=environment | {"PYTHONPATH": str(tmp_path)},
        check=True,
        capture_output=True,
        text=True,
    )
    assert ran.stdout == said
