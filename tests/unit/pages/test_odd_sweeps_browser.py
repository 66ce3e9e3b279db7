"""Reports of odd sweeps in a real browser: nothing sticks out, and no panel is empty without a reason."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest

from raysweep.numeric.shown import show_number
from raysweep.outcome.showing.formatting import show_duration
from raysweep.pages import write_report
from tests.browsers import Watched, chromium, wait_until
from tests.sampling import sampled
from tests.unit.pages.odd_sweeps import LOSS, ODD, once
from tests.unit.pages.soundness import ALL_DRAWN, CASES, HIDDEN, check_sound, options
from tests.unit.pages.sweeps import store

EVERY_DAY = [
    ("long names", (390, "dark")),
    ("impossible constraint", (1280, "light")),
    ("huge", (390, "light")),
    ("hostile", (390, "dark")),
]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def odd(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The URI of an odd sweep, by its name; stored once."""
    return cache(lambda name: ODD[name](tmp_path_factory.mktemp("odd")).uri)


@pytest.fixture(scope="module")
def reports(odd: Any, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of an odd sweep, by its name; made once."""
    return cache(lambda name: write_report(odd(name), tmp_path_factory.mktemp("report") / "a.html"))


@pytest.mark.parametrize(("name", "size"), sampled(CASES, lambda case: case in EVERY_DAY), ids=str)
def test_in_a_browser_an_odd_sweep_has_a_sound_page(
    browser: Any, reports: Any, name: str, size: tuple[int, str]
) -> None:
    watched = Watched(browser, **options(size))
    watched.open(reports(name).as_uri())
    check_sound(watched, name)
    watched.page.close()


@pytest.mark.parametrize("length", [36, 62, 200])
def test_in_a_browser_a_long_path_leaves_the_best_config_its_values(
    browser: Any, tmp_path: Path, length: int
) -> None:

    space = {"x": {"uniform": [0, 1]}, "y": {"uniform": [0, 1]}, "p" * length: {"uniform": [0, 1]}}
    folder, _ = store(tmp_path, once, **(LOSS | {"param_space": space, "num_samples": 3}))
    path = write_report(folder.uri, tmp_path / "a.html")
    for width in (390, 1280):
        page = Watched(browser, viewport={"width": width, "height": 900}).open(path.as_uri())
        assert page.evaluate(HIDDEN) == []
        assert page.locator(".config dd").count() == 3
        page.close()


@pytest.mark.parametrize(
    ("name", "red", "title", "has_best"),
    [
        ("all failed", "failed", None, False),
        ("impossible constraint", "breaks a constraint", "Nearest to the constraints", False),
        ("failed, others cut", "failed", "Trials by score", False),
        ("one trial", "", None, True),
        ("cancelled", "", "Best trials", True),
    ],
)
def test_in_a_browser_only_the_best_is_shown_as_the_best(
    browser: Any, reports: Any, name: str, red: str, title: str | None, has_best: bool
) -> None:
    """The legend has what is drawn, and no trial is in bold where none is the best."""
    page = Watched(browser, viewport={"width": 390, "height": 900}).open(reports(name).as_uri())
    wait_until(page, ALL_DRAWN)
    legend = page.locator("#progress .legend li").all_inner_texts()
    assert ("this sweep" in legend) == has_best
    assert [each for each in legend if each not in ("this sweep", "a trial")] == ([red] if red else [])
    label = page.get_attribute("#parallel canvas", "aria-label") if name != "one trial" else "in bold"
    assert ("in bold" in label) == has_best
    titles = page.locator("#top h2").all_inner_texts()
    assert titles == ([] if title is None else [title])
    page.close()


def test_in_a_browser_a_chart_of_many_parameters_is_scrolled_on_a_phone(browser: Any, reports: Any) -> None:
    page = Watched(browser, viewport={"width": 390, "height": 900}).open(reports("long names").as_uri())
    wait_until(page, ALL_DRAWN)
    plot = "document.querySelector('.plot.parallel')"
    assert page.evaluate(f"{plot}.scrollWidth") >= 58 * 12 > 390
    assert page.get_attribute(".plot.parallel", "tabindex") == "0"
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    page.close()


def test_in_a_browser_a_name_that_turns_the_text_turns_nothing_else(browser: Any, reports: Any) -> None:
    page = Watched(browser).open(reports("hostile").as_uri())
    assert page.inner_text("#progress h2").endswith(" so far")
    assert page.inner_text("#slices h2").endswith(" by each parameter")
    assert page.evaluate("window.broken") is None
    page.close()


def test_in_a_browser_what_runs_is_counted_once(browser: Any, reports: Any) -> None:
    page = Watched(browser).open(reports("live").as_uri())
    assert page.inner_text("#running h2") == "Running now: 2 of 3 slots"
    assert "2 running" in page.inner_text(".verdict")
    assert page.locator("#running tbody tr").last.inner_text().split()[3] == "starting"
    page.close()


def test_in_a_browser_a_number_of_trials_that_was_not_stored_is_not_said(browser: Any, reports: Any) -> None:
    page = Watched(browser).open(reports("interrupted").as_uri())
    assert "no fixed number" not in page.inner_text("#summary")
    page.close()


def test_in_a_browser_durations_are_those_of_python(browser: Any, reports: Any) -> None:
    page = Watched(browser).open(reports("one trial").as_uri())
    seconds = [0.0, 0.4, 0.6, 1.4, 8.7, 9.4, 9.6, 10.0, 59.6, 61.0, 3599.7, 3600.0, 90_000.2]
    assert page.evaluate("(all) => all.map((each) => window.raysweep.elapsed(each))", seconds) == [
        show_duration(each) for each in seconds
    ]
    page.close()


def test_in_a_browser_numbers_are_rounded_as_in_python(browser: Any, reports: Any) -> None:
    page = Watched(browser).open(reports("one trial").as_uri())
    numbers = [0.1234565, 100000.5, 100001.5, -100000.5, 2.5e-7, 1e300, 1e-300, 123456.5, 0.1 + 0.2, 999999.5]
    numbers += [place / 7 * 10.0 ** (place % 13 - 6) for place in range(1, 300)]
    shown = page.evaluate("(numbers) => numbers.map((each) => window.raysweep.number(each))", numbers)
    assert shown == [show_number(float(number)) for number in numbers]
    page.close()


@pytest.mark.parametrize(("name", "size"), sampled(CASES, lambda case: case in EVERY_DAY[:2]), ids=str)
def test_in_a_browser_an_odd_sweep_is_compared_with_all_others(
    browser: Any, odd: Any, tmp_path: Path, name: str, size: tuple[int, str]
) -> None:
    others = [odd(other) for other in ODD if other != name]
    path = write_report(odd(name), tmp_path / "a.html", compare=others)
    watched = Watched(browser, **options(size))
    page = watched.open(path.as_uri())
    check_sound(watched, name)
    assert page.locator("#compare table").first.locator("tbody tr").count() == len(ODD)
    page.close()
