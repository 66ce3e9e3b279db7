"""Laws on real trainings of language models: figures that `benchmarks transfer-law` gives with more draws."""

from __future__ import annotations

from benchmarks.transfer_law import SMALL, TARGETS, _measure, name_of, read_table


def test_scores_of_survivors_give_intervals_that_hold_and_configs_that_carry() -> None:
    """A scheduler leaves three trials of 24 at the largest scale, all of them good ones."""
    cells = read_table()
    small = [cell for cell in cells if cell[0] < SMALL[0] and cell[1] < SMALL[1]]
    goals = [cell for cell in cells if name_of(cell) in TARGETS]
    found = _measure(cells, small, goals, "asha", 12, draws=10)
    assert found["hold"] >= 0.65
    assert found["all"]["most"] <= 0.01
