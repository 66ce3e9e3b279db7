"""Thousands of sweeps drawn at random, each with faults drawn at random: nothing is lost, nothing hangs."""

from __future__ import annotations

import os
import random
import time
from collections import Counter

import pytest

from tests.unit.simulate.chaos import Drawn

pytestmark = [pytest.mark.faults, pytest.mark.timeout(14_400)]
SAMPLE = 240


@pytest.mark.parametrize("part", range(3))
def test_a_sample(part: int) -> None:
    """The same seeds each time."""
    for seed in range(part * SAMPLE // 3, (part + 1) * SAMPLE // 3):
        run(seed)


@pytest.mark.slow
def test_many_sweeps() -> None:
    """Each in an order of its own; RAYSWEEP_SEED repeats a run, RAYSWEEP_SWEEPS says how many.

    A failure names the seed of its sweep: `Drawn.of(seed).run()` repeats it alone.
    """
    number = int(os.environ.get("RAYSWEEP_SEED") or random.SystemRandom().randrange(2**32))
    count = int(os.environ.get("RAYSWEEP_SWEEPS") or 20_000)
    print(f"RAYSWEEP_SEED={number}")
    seeds, fired, began = random.Random(number), Counter[str](), time.monotonic()
    for _ in range(count):
        fired.update(run(seeds.randrange(2**62)))
    told = ", ".join(f"{number} {what}" for what, number in sorted(fired.items()))
    print(f"{count} sweeps in {time.monotonic() - began:.0f} s: {told}")
    assert fired["controller killed"] >= count / 20


def run(seed: int) -> Counter[str]:
    """One sweep; which faults fired. A failure says its seed."""
    drawn = Drawn.of(seed)
    try:
        drawn.run()
    except Exception as error:
        error.add_note(f"seed {seed}, after {dict(drawn.faults.fired)}")
        raise
    return drawn.faults.fired
