"""Checks of a page of an odd sweep in a real browser: nothing sticks out, no panel is empty for no reason."""

from __future__ import annotations

import re
from itertools import product
from typing import Any, Final

from tests.browsers import Watched, wait_until
from tests.unit.pages.odd_sweeps import ODD

SIZES: Final = [(390, "dark"), (390, "light"), (1280, "dark"), (1280, "light")]
"""Widths and colours that each odd sweep is looked at in."""
CASES: Final = list(product(ODD, SIZES))
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
"""Charts with nothing but axes, which are grey; so is a trial that was cut or cancelled."""
HIDDEN = """() => [...document.querySelectorAll('.config dd')].filter((value) => {
  const { width, height } = value.getBoundingClientRect();
  return value.textContent && (width < 40 || height < 10 || height > 400);
}).map((value) => value.textContent)"""
"""Values of the best config that cannot be read."""
BROKEN = """() => [...document.querySelectorAll('.tile .value')].filter((value) => {
  const { height } = value.getBoundingClientRect();
  return height > 1.6 * parseFloat(getComputedStyle(value).fontSize);
}).map((value) => value.textContent)"""
"""Numbers that go on in a second line, where the end of one reads as another one."""
CONTROLS = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


def check_sound(watched: Watched, name: str) -> None:
    """The page, whose sweep is the odd one of this name, shows all that it has."""
    page = watched.page
    wait_until(page, ALL_DRAWN)
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.evaluate(EMPTY) == []
    assert page.evaluate(HIDDEN) == []
    assert page.evaluate(BROKEN) == []
    assert not CONTROLS.search(page.inner_text("body"))
    if name not in ("metric never reported", "failed, others cut", "cancelled at once"):
        assert page.evaluate(DATALESS) == []
    assert watched.problems == []


def options(size: tuple[int, str]) -> dict[str, Any]:
    """The options of a browser for a width and colours."""
    width, scheme = size
    return {"viewport": {"width": width, "height": 900}, "color_scheme": scheme}
