"""A fixed sample of storms; `make storms` plays as many as there is time for."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.storms.putback import PUT_BACK

ROOT = Path(__file__).parents[2]
SAMPLE = "0,2,11,14,15,17,18,19,21,30,32"
"""Strays, marks and leftovers in pairs, a bad hook, a clock set back and forward, lost storage, kills."""
HERE_SAMPLE = "2,14,18,21"
"""Of these, some that the placement matters to."""


def play(tmp_path: Path, *arguments: str, timeout_s: float) -> subprocess.CompletedProcess[str]:
    """In an interpreter of its own: a storm forks, and pytest's process has threads."""
    command = [sys.executable, "-m", "tests.storms", "--folder", str(tmp_path), *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=timeout_s, check=False)


@pytest.mark.faults
def test_a_sample_of_storms_violates_nothing(tmp_path: Path) -> None:
    done = play(tmp_path, "--seed", "1", "--only", SAMPLE, timeout_s=200.0)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.faults
def test_a_sample_of_storms_whose_checkpoints_are_evaluated_violates_nothing(tmp_path: Path) -> None:
    done = play(tmp_path, "--seed", "12", "--only", "0", "--evaluate", timeout_s=200.0)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.faults
def test_a_sample_of_storms_without_ray_violates_nothing(tmp_path: Path) -> None:
    done = play(tmp_path, "--seed", "1", "--only", HERE_SAMPLE, "--here", timeout_s=200.0)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1500)
def test_two_hundred_storms_violate_nothing(tmp_path: Path) -> None:
    done = play(tmp_path, "--seed", "2", "--storms", "200", timeout_s=1400.0)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(700)
@pytest.mark.parametrize("fault", PUT_BACK)
def test_a_fault_that_is_put_back_is_found_within_ten_minutes(tmp_path: Path, fault: str) -> None:
    arguments = ("--seed", "3", "--storms", "1000", "--minutes", "9", "--until-found", "--put-back", fault)
    done = play(tmp_path, *arguments, timeout_s=650.0)
    assert done.returncode == 1, done.stdout + done.stderr
    assert "again: make storms" in done.stdout
