"""Laws on real trainings of language models: figures that `benchmarks transfer-law` gives with more draws."""

from __future__ import annotations

from benchmarks.transfer_law import SMALL, TARGETS, _cut, _measure, name_of, read_table


def test_scores_of_survivors_give_intervals_that_hold_and_configs_that_carry() -> None:
    """A scheduler leaves three trials of 24 at the largest scale, all of them good ones."""
    cells = read_table()
    small = [cell for cell in cells if cell[0] < SMALL[0] and cell[1] < SMALL[1]]
    goals = [cell for cell in cells if name_of(cell) in TARGETS]
    found = _measure(cells, small, goals, "asha", 12, draws=10)
    assert found["hold"] >= 0.65
    assert found["all"]["most"] <= 0.01


def test_a_space_that_ends_before_the_optimum_is_an_edge() -> None:
    """Of the learning rates only the lower flank remains; the bowl alone places its optimum inside."""
    cells = read_table()
    small = [cell for cell in cells if cell[0] < SMALL[0] and cell[1] < SMALL[1]]
    goal = next(cell for cell in cells if name_of(cell) == TARGETS[1])
    verdicts = [_cut(cells, small, goal, axis=0, side=-1, count=12, seed=seed) for seed in range(10)]
    assert verdicts.count("edge") >= 8
