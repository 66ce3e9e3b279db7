"""Seeds of trials: those that the libraries of the field accept."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from raysweep import get_context
from raysweep.core.seeds import trial_seed
from raysweep.testing import run_trial


@given(st.integers(0, 2**63 - 1), st.integers(0, 10**6))
def test_the_seed_of_a_trial_is_below_two_to_the_31(seed: int, number: int) -> None:
    assert 0 <= trial_seed(seed, number) < 2**31


def test_trials_have_different_seeds() -> None:
    assert len({trial_seed(1, number) for number in range(1_000)}) == 1_000


def train(config: dict[str, float]) -> float:
    return float(np.random.RandomState(get_context().seed).uniform())


def test_run_trial_gives_the_seed_of_a_sweep_not_0() -> None:
    seeds = set()
    for number in range(3):
        (attempt,) = run_trial(lambda config: {"loss": 1.0, "seed": get_context().seed}, {}, number=number)
        seeds.add(attempt.reports[0]["seed"])
    assert seeds == {trial_seed(0, number) for number in range(3)}
    (attempt,) = run_trial(train, {}, metric="loss")
    assert attempt.end == "returned"
