"""Figures of daily use grow no faster than they may, by calls; `make everyday` has the seconds."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.everyday.comparing import exceeding, exponent, ratio, table
from benchmarks.everyday.figures import FIGURES, Figure
from tests.growth import LIMIT, exponent_prepared
from tests.growth import exponent as counted

COUNTED = [figure for figure in FIGURES if figure.tiny[1]]


@pytest.mark.parametrize("figure", COUNTED, ids=[f"{each.group}-{each.name}" for each in COUNTED])
def test_a_figure_of_daily_use_grows_no_faster_than_it_may(figure: Figure, tmp_path: Path) -> None:
    def prepared(size: int) -> Callable[[], object]:
        return figure.prepare(size, Path(tempfile.mkdtemp(dir=tmp_path)))

    assert exponent_prepared(prepared, *figure.tiny) < LIMIT


def test_growth_is_that_of_the_calls() -> None:
    assert counted(lambda n: [abs(i) for i in range(n)], 10, 40) == pytest.approx(1.0, abs=0.1)
    assert counted(lambda n: [abs(i) for i in range(n * n)], 10, 40) == pytest.approx(2.0, abs=0.1)


def test_what_is_fixed_is_taken_off_and_what_is_short_is_not_judged() -> None:
    assert exponent((10, 40), 1.0, 1.1, 1.4) == 1.0
    assert exponent((10, 40), 1.0, 1.1, 2.6) == 2.0
    assert exponent((10, 40), 1.0, 1.0001, 1.002) is None
    assert ratio([(0.2, 0.1), (0.3, 0.1), (0.1, 0.1)]) == 2.0
    assert ratio([(0.001, 0.0001)]) is None


def test_what_is_above_its_limit_is_named_on_a_line_of_its_own() -> None:
    row = {"figure": "spec: grid", "grows": "values", "sizes": (10, 40), "s": [0.1, 0.4]}
    rows = [
        row | {"ratio": 1.1, "exponent": 1.0, "against_s": 0.36},
        row | {"ratio": 1.3, "exponent": None},
        row | {"ratio": None, "exponent": 1.9},
        {"figure": "text: a log", "sizes": (1, 4), "absent": "it is not in this tree"},
    ]
    assert exceeding(rows) == [
        "SLOWER: spec: grid: 1.3 times as long (at most 1.15)",
        "GROWS: spec: grid: values to the power of 1.9 (at most 1.2)",
    ]
    assert "not measured: it is not in this tree" in table(rows)
