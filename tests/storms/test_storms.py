"""A fixed sample of storms; `make storms` plays as many as there is time for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SAMPLE = "1,2,4,5,7,14"
"""Pairs with strays, marks and leftovers, a clock set back and forward, a bad hook, lost storage, kills."""


def play(tmp_path: Path, *arguments: str, timeout_s: float) -> None:
    """In an interpreter of its own: a storm forks, and pytest's process has threads."""
    command = [sys.executable, "-m", "tests.storms", "--folder", str(tmp_path), *arguments]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.faults
def test_a_sample_of_storms_violates_nothing(tmp_path: Path) -> None:
    play(tmp_path, "--seed", "1", "--only", SAMPLE, timeout_s=200.0)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_two_hundred_storms_violate_nothing(tmp_path: Path) -> None:
    play(tmp_path, "--seed", "2", "--storms", "200", timeout_s=1400.0)
