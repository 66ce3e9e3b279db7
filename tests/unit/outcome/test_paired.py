"""A comparison by seeds: chance is not taken for a gain, and gains are found."""

from __future__ import annotations

import math
import random
from collections.abc import Callable, Sequence
from typing import Any

import pytest

from raysweep.errors import SpecError
from raysweep.numeric.comparison import LEVEL
from raysweep.outcome import TrialOutcome
from raysweep.outcome.paired import Comparison, compare, configs_of

Score = float | None


def trials(rows: Sequence[Sequence[Score]], seeds: Sequence[int]) -> list[TrialOutcome]:
    """A trial for each config and seed; None: it failed."""
    return [
        TrialOutcome(
            trial_id=f"{number:05}",
            number=number,
            state="failed" if score is None else "completed",
            config={"x": config, "seed": seed},
            score=score,
        )
        for number, (config, seed, score) in enumerate(
            (config, seed, row[place]) for config, row in enumerate(rows) for place, seed in enumerate(seeds)
        )
    ]


def by_seed(base: Sequence[Score], new: Sequence[Score], mode: str = "max", **how: Any) -> Comparison:
    """Of one config each, over the same seeds."""
    sides = [configs_of(trials([row], range(len(row))), ["seed"]) for row in (base, new)]
    return compare(*sides, mode, is_paired=True, **how)


def test_scores_of_one_seed_are_paired() -> None:
    """The seeds differ far more than the configs do."""
    base = [10.0, 20.0, 30.0, 40.0]
    found = by_seed(base, [10.4, 20.5, 30.6, 40.5])
    assert (found.verdict, found.common, found.improvement) == ("better", 4, pytest.approx(0.5))
    assert found.low is not None
    assert 0 < found.low < 0.5 < found.high
    assert by_seed(base, [9.6, 19.5, 29.4, 39.5]).verdict == "worse"
    assert by_seed(base, [9.6, 19.5, 29.4, 39.5], "min").verdict == "better"


def test_only_common_seeds_count() -> None:
    base = configs_of(trials([[1.0, 2.0, 3.0]], [1, 2, 3]), ["seed"])
    new = configs_of(trials([[2.5, 3.6, 99.0]], [2, 3, 4]), ["seed"])
    found = compare(base, new, "max", is_paired=True)
    assert (found.common, found.improvement) == (2, pytest.approx(0.55))


def test_failures_do_not_flatter() -> None:
    base = [1.0, 2.0, 3.0, 4.0, 5.0]
    better = [2.0, 3.1, 4.0, 5.1, None]
    found = by_seed(base, better)
    assert (found.verdict, found.new.failed) == ("undecided", 1)
    assert "1 of its trials gave no score" in found.why


@pytest.mark.parametrize(
    ("base", "new"), [([1.0], [9.0]), ([1.0, None], [9.0, 9.0]), ([1.0, 2.0], [5.0, None])]
)
def test_one_common_seed_decides_nothing(base: list[Score], new: list[Score]) -> None:
    found = by_seed(base, new)
    assert (found.verdict, found.low, found.more_seeds) == ("undecided", None, None)


def test_so_do_trials_without_a_score() -> None:
    with pytest.raises(SpecError, match="ran to its end"):
        configs_of(trials([[None, None]], [1, 2]), ["seed"])
    with pytest.raises(SpecError, match="trial 9"):
        configs_of(trials([[1.0]], [1]), ["seed"], 9)


def test_the_config_of_a_trial_is_meant_where_one_is_named() -> None:
    stored = trials([[1.0, 1.1], [5.0, 5.1]], [1, 2])
    (chosen,) = configs_of(stored, ["seed"], 1)
    assert (chosen.config, chosen.scores) == ({"x": 0}, [1.0, 1.1])
    assert len(configs_of(stored, ["seed"])) == 2


def test_without_a_seed_the_means_are_compared() -> None:
    draw = random.Random(3)
    base, new = ([draw.gauss(mean, 1) for _ in range(8)] for mean in (0, 5))
    sides = [
        configs_of([each.model_copy(update={"config": {"x": 0}}) for each in trials([row], range(8))], [])
        for row in (base, new)
    ]
    found = compare(*sides, "max", is_paired=False)
    assert (found.verdict, found.test, found.common) == ("better", "unpaired", 0)
    assert found.low is not None
    assert found.low < 5 < found.high


Change = Callable[[random.Random], float]
PROPOSALS = 500


def kept(change: Change, configs: int = 1, seeds: int = 5, level: float = LEVEL) -> float:
    """The share of an agent's proposals that it keeps: those that are better than what it began with.

    Each seed has its own level, as a fold has; the noise beside it is as large as the gains of `change`.
    """
    draw, count = random.Random(f"{configs} {seeds} {level}"), 0
    for _ in range(PROPOSALS):
        levels = [draw.gauss(0, 10) for _ in range(seeds)]
        rows = [
            [level + gain + draw.gauss(0, 1) for level in levels]
            for gain in [0.0, *(change(draw) for _ in range(configs))]
        ]
        sides = [configs_of(trials(part, range(seeds)), ["seed"]) for part in (rows[:1], rows[1:])]
        count += compare(*sides, "max", is_paired=True, level=level).verdict == "better"
    return count / PROPOSALS


@pytest.mark.parametrize(
    ("configs", "seeds", "level"), [(1, 3, LEVEL), (1, 8, LEVEL), (6, 4, LEVEL), (1, 5, 0.02)]
)
def test_changes_without_effect_are_kept_no_more_often_than_the_level(
    configs: int, seeds: int, level: float
) -> None:
    """Three standard errors of 500 draws more would be chance."""
    bound = level + 3 * math.sqrt(level * (1 - level) / PROPOSALS)
    assert kept(lambda _: 0.0, configs, seeds, level) <= bound


def test_real_gains_are_found() -> None:
    assert kept(lambda _: 3.0, seeds=6) > 0.9
    assert kept(lambda _: -3.0, seeds=6) == 0.0


def test_so_many_more_seeds_decide_it() -> None:
    """The number that an undecided comparison names finds a gain of that size 4 times of 5."""
    draw = random.Random(1)
    first = by_seed([0.0] * 5, [0.9, -0.6, 1.4, 0.1, 0.5])
    assert (first.verdict, first.improvement) == ("undecided", pytest.approx(0.46))
    assert first.more_seeds is not None
    seeds, decided = 5 + first.more_seeds, 0
    for _ in range(200):
        gains = [first.improvement + draw.gauss(0, 0.76) for _ in range(seeds)]  # as those five
        decided += by_seed([0.0] * seeds, gains).verdict == "better"
    assert 130 < decided < 190
    assert by_seed([1.0, 2.0, 3.0], [1.0, 2.0, 3.0]).more_seeds is None, "no gain at all is never decided"
