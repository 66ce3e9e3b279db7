"""Reports of odd sweeps in a real browser: nothing sticks out, and no panel is empty without a reason."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from raysweep.numeric.shown import show_number
from raysweep.pages import write_report
from tests.browsers import Watched, chromium, wait_until
from tests.sampling import sampled
from tests.unit.pages.odd_sweeps import LOSS, ODD, once
from tests.unit.pages.sweeps import store

SIZES = [(390, "dark"), (390, "light"), (1280, "dark"), (1280, "light")]
EVERY_DAY = [
    ("long names", (390, "dark")),
    ("impossible constraint", (1280, "light")),
    ("huge", (390, "light")),
]
ALL_DRAWN = """(() => {
  const left = [...document.querySelectorAll('.plot')].filter((each) => each.dataset.drawn !== 'yes');
  left[0]?.scrollIntoView({block: 'center'});
  return left.length === 0;
})()"""
EMPTY = """() => [...document.querySelectorAll('main > section')].filter((section) => {
  const inside = section.cloneNode(true);
  inside.querySelector('.bar')?.remove();
  return !inside.textContent.trim() && !inside.querySelector('canvas');
}).map((section) => section.id)"""
"""Panels with nothing below their title."""
DATALESS = """() => {
  const style = getComputedStyle(document.documentElement);
  const greys = ['--faint', '--line'].map((name) => style.getPropertyValue(name).trim())
    .map((hex) => [1, 3, 5].map((at) => parseInt(hex.slice(at, at + 2), 16)));
  const isFar = (data, at) => greys.every(
    (grey) => grey.some((each, part) => Math.abs(each - data[at + part]) > 40));
  return [...document.querySelectorAll('.plot:not(.parallel) > canvas:first-child')].filter((canvas) => {
    const { data } = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4) found += data[at + 3] > 200 && isFar(data, at);
    return found < 4;
  }).map((canvas) => canvas.getAttribute('aria-label'));
}"""
"""Charts with nothing but axes, which are grey; so is a line of a trial that was cut."""
HIDDEN = """() => [...document.querySelectorAll('.config dd')].filter((value) => {
  const { width, height } = value.getBoundingClientRect();
  return value.textContent && (width < 40 || height < 10 || height > 400);
}).map((value) => value.textContent)"""
"""Values of the best config that cannot be read."""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The report of an odd sweep, by its name; made once."""
    made: dict[str, Path] = {}

    def report(name: str) -> Path:
        if name not in made:
            root = tmp_path_factory.mktemp("odd")
            made[name] = write_report(ODD[name](root).uri, root / "a.html")
        return made[name]

    return report


@pytest.mark.parametrize(
    ("name", "size"), sampled(product(ODD, SIZES), lambda case: case in EVERY_DAY), ids=str
)
def test_in_a_browser_an_odd_sweep_has_a_sound_page(
    browser: Any, reports: Any, name: str, size: tuple[int, str]
) -> None:
    width, scheme = size
    options = {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
    watched = Watched(browser, **options)
    page = watched.open(reports(name).as_uri())
    wait_until(page, ALL_DRAWN)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(EMPTY) == []
    assert page.evaluate(HIDDEN) == []
    if name not in ("metric never reported", "failed, others cut"):
        assert page.evaluate(DATALESS) == []
    assert watched.problems == []
    page.close()


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


def test_in_a_browser_numbers_are_rounded_as_in_python(browser: Any, reports: Any) -> None:
    page = Watched(browser).open(reports("one trial").as_uri())
    numbers = [0.1234565, 100000.5, 100001.5, -100000.5, 2.5e-7, 1e300, 1e-300, 123456.5, 0.1 + 0.2, 999999.5]
    numbers += [place / 7 * 10.0 ** (place % 13 - 6) for place in range(1, 300)]
    shown = page.evaluate("(numbers) => numbers.map((each) => window.raysweep.number(each))", numbers)
    assert shown == [show_number(float(number)) for number in numbers]
    page.close()
