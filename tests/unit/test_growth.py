"""Figures of daily use grow no faster than they may, by calls; `make everyday` has the seconds."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest

from benchmarks.everyday.__main__ import BEGINS, with_table
from benchmarks.everyday.comparing import exceeding, exponent, joined, ratio, table
from benchmarks.everyday.earlier import earlier, last_of
from benchmarks.everyday.figures import FIGURES, Done, Figure
from benchmarks.everyday.measuring import least
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


def test_a_page_has_the_ratios_of_several_comparisons_and_how_much_more_work_was_done() -> None:
    grid = {"figure": "spec: grid", "sizes": [10, 40], "s": [0.1, 0.4], "exponent": 1.0, "ratio": 1.1}
    pbt = grid | {"figure": "simulator: pbt", "exponent": 1.1, "ratio": 1.02, "work": 1.47}
    absent = {"figure": "simulator: pbt", "sizes": [10, 40], "absent": "it is not in this tree"}
    both = [
        {"against": "v0.1.0", "figures": [grid, pbt]},
        {"against": "v0.2.0", "figures": [grid | {"exponent": 1.05, "ratio": None}, absent]},
    ]
    page = with_table(f"Before.\n{BEGINS}old\n```\nAfter.\n", joined(both))
    head, first, second = page.removeprefix(f"Before.\n{BEGINS}").removesuffix("\n```\nAfter.\n").split("\n")
    assert head.split()[-2:] == ["v0.1.0", "v0.2.0"]
    assert first.split() == ["spec:", "grid", "10/40", "0.1/0.4", "1.05", "1.10", "-"]
    assert second.split() == ["simulator:", "pbt", "10/40", "0.1/0.4", "1.10", "1.02", "(1.47)", "-"]


def test_the_quickest_of_some_calls_counts_and_its_own_seconds_where_it_has_some(tmp_path: Path) -> None:
    seconds = iter([0.3, 0.1, 0.2, 0.4, 0.5])
    figure = Figure(
        name="own",
        grows="calls",
        sizes=(1, 2),
        prepare=lambda n, place: lambda: Done(seconds=next(seconds), units=n),
    )
    assert least(figure, 7) == Done(seconds=0.1, units=7)


def test_the_last_tree_is_that_of_the_newest_release_else_that_of_a_day_before(tmp_path: Path) -> None:
    def git(*arguments: str, at: int = 0) -> str:
        when = {"GIT_AUTHOR_DATE": f"@{at} +0000", "GIT_COMMITTER_DATE": f"@{at} +0000"}
        who = dict.fromkeys(("GIT_AUTHOR_NAME", "GIT_COMMITTER_NAME"), "a")
        mail = dict.fromkeys(("GIT_AUTHOR_EMAIL", "GIT_COMMITTER_EMAIL"), "a@b")
        command = ["git", "-C", str(tmp_path), *arguments]
        ran = subprocess.run(command, env=when | who | mail, capture_output=True, check=True, text=True)
        return ran.stdout.strip()

    git("init", "--quiet")
    (tmp_path / "engine" / "raysweep").mkdir(parents=True)
    made = []
    for number, at in enumerate((1_700_000_000, 1_700_050_000, 1_700_100_000, 1_700_150_000)):
        (tmp_path / "engine" / "raysweep" / "one.py").write_text(str(number))
        git("add", ".")
        git("commit", "--quiet", "--message", str(number), at=at)
        made.append(git("rev-parse", "HEAD"))
    assert last_of(tmp_path) == made[1]
    git("tag", "v0.1.0", made[2])
    assert last_of(tmp_path) == "v0.1.0"
    with earlier("last", tmp_path) as tree:
        assert (tree / "engine" / "raysweep" / "one.py").read_text() == "2"
    with pytest.raises(ValueError, match="revision of git"), earlier("v9", tmp_path):
        pass
