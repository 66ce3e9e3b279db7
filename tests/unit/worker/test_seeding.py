"""The first trial of a worker draws what any later one with its seed would."""

from __future__ import annotations

import subprocess
import sys

import pytest

LATE = """
import sys
from raysweep.worker.seeding import seed_generators
assert "numpy" not in sys.modules
for seed in (7, 8):
    seed_generators(seed)
    import random
    import numpy as np
    print(random.random(), np.random.random())
assert np.random.__spec__.loader.get_source("numpy.random")
"""
EARLY = "import numpy\n" + LATE.replace('assert "numpy" not in sys.modules', "")


LARGE = """
import numpy as np
from raysweep.worker.seeding import seed_generators
for seed in (7, 7 + 2**32, 7 + 2**63):
    seed_generators(seed)
    print(np.random.random())
"""


def _run(code: str) -> list[str]:
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


def test_numpy_is_seeded_when_it_is_imported_late() -> None:
    late = _run(LATE)
    assert late == _run(EARLY)
    assert late[0] != late[1]


def test_numpy_takes_what_it_can_of_a_large_seed() -> None:
    assert len(set(_run(LARGE))) == 1


TORCH = """
import sys
from pathlib import Path
from tests.unit.worker.pairs import Worker

def train(config):
    import torch
    print(torch.rand(1).item(), torch.initial_seed())

assert "torch" not in sys.modules
worker = Worker(Path("unused"))
worker.run(train, seed=7)
worker.run(train, seed=8)
worker.run(train, seed=7)
worker.run(train, seed=2**63 + 7)
"""


def test_torch_is_seeded_when_it_is_imported_late_and_in_each_attempt() -> None:
    pytest.importorskip("torch")
    first, other, again, large = _run(TORCH)
    assert first == again
    assert first.split()[1] == "7"
    assert len({first, other, large}) == 3
