"""The chance that a config runs, as a factor of what a Gaussian process maximises."""

from __future__ import annotations

import math

import pytest
import torch
from optuna.distributions import CategoricalDistribution, FloatDistribution

from raysweep.search.models.feasibility import fit
from raysweep.search.models.gp_failures import ENOUGH, LogChance

DISTRIBUTIONS = {"x": FloatDistribution(0, 1), "kind": CategoricalDistribution(["a", "b"])}
PROMISED = math.log(1000)
"""A process often promises a thousandfold improvement where nothing runs."""


def test_where_a_config_is_likely_to_run_it_is_the_logarithm_of_the_chance() -> None:
    chances, log_chances = line_of_chances()
    for chance, log_chance in zip(chances, log_chances, strict=True):
        if chance >= ENOUGH:
            assert log_chance == pytest.approx(math.log(chance))
    assert max(chances) > ENOUGH


def test_where_a_config_is_likely_to_fail_a_thousandfold_promise_does_not_outweigh_it() -> None:
    chances, log_chances = line_of_chances()
    best = max(log_chances)
    below = [log for chance, log in zip(chances, log_chances, strict=True) if chance < ENOUGH - 0.08]
    assert len(below) > 10
    assert max(below) + PROMISED < best


def line_of_chances() -> tuple[list[float], list[float]]:
    """Along a line of which the upper half fails: the chances, and their logarithms as `gp` has them."""
    labels = {n: ((n / 20, 1.0, 0.0), n < 10) for n in range(21)}
    found = fit(labels)
    assert found is not None
    places = torch.linspace(0, 1, 101, dtype=torch.float64)
    kinds = torch.zeros(101, dtype=torch.float64)
    chances = [found.chance((float(x), 1.0, 0.0)) for x in places]
    return chances, LogChance(found, DISTRIBUTIONS).at({"x": places, "kind": kinds}).tolist()
