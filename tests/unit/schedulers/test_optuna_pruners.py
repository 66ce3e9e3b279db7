"""ASHA and HyperBand beside Optuna's SuccessiveHalvingPruner and HyperbandPruner: where they agree, and not.

Optuna cannot pause a trial. Its pruner asks at once whether a trial is among the best 1/eta of its rung,
itself counted; ASHA as Ray Tune has it compares with a quantile of those that came before, between two of
them.
So they differ by two ranks at most, and it is always Optuna that stops.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from math import ceil

import pytest

optuna = pytest.importorskip("optuna")

from raysweep.schedulers import NOTHING, Pause, Resume  # noqa: E402
from raysweep.schedulers.asha import AshaScheduler  # noqa: E402
from raysweep.schedulers.machinery.brackets import bracket_size, halvings, milestone  # noqa: E402
from raysweep.schedulers.machinery.promotion import PromotionScheduler  # noqa: E402

SEEDS = range(30)


class Pruned:
    """A study of Optuna's whose trials report in any order, also when they should have been pruned."""

    def __init__(self, eta: int, mode: str) -> None:
        pruner = optuna.pruners.SuccessiveHalvingPruner(min_resource=1, reduction_factor=eta)
        optuna.logging.set_verbosity(optuna.logging.WARNING)
        direction = "maximize" if mode == "max" else "minimize"
        self._study = optuna.create_study(direction=direction, pruner=pruner)

    def goes_on(self, value: float) -> bool:
        """Whether the next trial continues after its first report."""
        trial = self._study.ask()
        trial.report(value, 1)
        return not trial.should_prune()


def first_reports(seed: int) -> Iterator[tuple[float, int, int]]:
    """Values of trials that come to the first rung one by one: with their rank, and how many there are."""
    rng = random.Random(seed)
    values: list[float] = []
    for _ in range(60):
        values.append(rng.random())
        yield values[-1], 1 + sum(value > values[-1] for value in values), len(values)


@pytest.mark.parametrize("eta", [2, 3, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_asha_stops_whom_optuna_stops_but_for_two_ranks(seed: int, eta: int) -> None:
    theirs, differ = Pruned(eta, "max"), 0
    ours = AshaScheduler(mode="max", max_t=eta**3, grace_period=1, reduction_factor=eta)
    for number, (value, rank, count) in enumerate(first_reports(seed)):
        goes_on, optunas = ours.report(number, 1, value) == NOTHING, theirs.goes_on(value)
        assert optunas == (rank <= max(1, count // eta))
        assert goes_on or not optunas, "ours is the one that lets continue"
        if goes_on != optunas:
            differ += 1
            assert rank <= min(max(1, count // eta) + 2, ceil((count - 2) / eta) + 1)
    assert differ < 10


@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize("eta", [2, 3, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_promotion_lets_go_on_at_once_whom_optuna_does(seed: int, eta: int, mode: str) -> None:
    """But for the first eta - 1 trials of a rung, of which the best continues there, and waits here.

    And here those continue later that come to be among the best as others fall behind.
    """
    theirs, later = Pruned(eta, mode), 0
    ours = PromotionScheduler(mode=mode, max_t=eta**3, grace_period=1, reduction_factor=eta)
    for number, (value, rank, count) in enumerate(first_reports(seed)):
        decisions = ours.report(number, 1, value if mode == "max" else -value)
        goes_on = (number, Resume()) in decisions
        assert goes_on == ((number, Pause()) not in decisions)
        later += sum(trial != number for trial, verdict in decisions if verdict == Resume())
        optunas = theirs.goes_on(value if mode == "max" else -value)
        assert goes_on == (optunas and count >= eta), (rank, count)
    assert later > 0


@pytest.mark.parametrize(("max_t", "eta"), [(81, 3), (27, 3), (64, 4), (16, 2)])
def test_brackets_have_the_rungs_and_the_shares_of_optunas(max_t: int, eta: int) -> None:
    """How many trials begin in each is a share there, by a hash of the number; here they come in order.

    Here the trials of a bracket wait for each other at a rung, there each is compared with those before it.
    """
    pruner = optuna.pruners.HyperbandPruner(min_resource=1, max_resource=max_t, reduction_factor=eta)
    pruner._try_initialization(optuna.create_study(pruner=pruner))
    s_max = halvings(max_t, eta)
    assert len(pruner._pruners) == s_max + 1
    for bracket, halving in enumerate(pruner._pruners):
        s = s_max - bracket
        first = halving._min_resource * eta**halving._min_early_stopping_rate
        assert [milestone(max_t, eta, left) for left in range(s, -1, -1)] == [
            first * eta**rung for rung in range(s + 1)
        ]
        assert bracket_size(s, s_max, eta) == pruner._trial_allocation_budgets[bracket]
