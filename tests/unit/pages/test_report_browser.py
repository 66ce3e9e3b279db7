"""A report in a real browser: what a sweep says stays text, and the keyboard alone is enough."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise, product
from pathlib import Path
from typing import Any

import pytest

from raysweep.pages import write_report
from raysweep.storage.logs import log_name
from tests.browsers import Watched, chromium, wait_until
from tests.sampling import first_of
from tests.unit.pages.sweeps import store

TRY_IT = "</script><img src=x onerror=window.broken=1><script>window.broken=1</script>"
ALL_DRAWN = """(() => {
  const left = [...document.querySelectorAll('.plot')].filter((each) => each.dataset.drawn !== 'yes');
  left[0]?.scrollIntoView({block: 'center'});
  return left.length === 0;
})()"""
"""A busy browser may scroll past a chart without a look at it: then it is shown again."""
SIZES = [(360, 740), (1280, 800), (2560, 1440)]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Of a sweep with all that a report shows but repeats."""
    root = tmp_path_factory.mktemp("report")
    folder, _ = store(
        root, metric=["auc", "latency_ms"], mode=["max", "min"], scheduler="fifo", num_samples=60,
        constraints=["latency_ms <= 18"],
    )  # fmt: skip
    other, _ = store(root, name="other", num_samples=12)
    return write_report(folder.uri, root / "a.html", compare=[other.sweep_id])


def open_report(browser: Any, path: Path, **options: Any) -> tuple[Watched, Any]:
    """The page, scrolled through once so that all of it is drawn."""
    watched = Watched(browser, **options)
    page = watched.open(path.as_uri())
    page.evaluate(
        "document.querySelectorAll('section').forEach((each) => each.scrollIntoView({block: 'center'}))"
    )
    for _ in range(20):
        page.mouse.wheel(0, 600)
        page.wait_for_timeout(20)
    page.evaluate("window.scrollTo(0, 0)")
    return watched, page


def test_in_a_browser_what_a_sweep_says_stays_text(browser: Any, tmp_path: Path) -> None:
    """Names, configs, metrics, errors, logs and tags with markup: nothing runs, and nobody is asked."""

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        if config["kind"].startswith("bad"):
            raise ValueError(f"{TRY_IT} failed")
        return {"auc": config["x"], TRY_IT: config["x"], "said": TRY_IT} if iteration < 3 else None

    space = {
        "x": {"uniform": [0, 1]},
        "kind": {"choice": [TRY_IT, f"bad {TRY_IT}"]},
        TRY_IT: {"choice": ["1", TRY_IT]},
    }
    folder, outcome = store(
        tmp_path / "store", curve, param_space=space, scheduler="fifo", tags={"by": TRY_IT}, num_samples=40
    )
    failed = outcome.first_failure
    assert failed is not None
    log = f"{folder.sweep_id}/{log_name(failed.trial_id, 1)}"
    folder.store.put(log, f"{TRY_IT}\nlast words\n".encode())
    named = outcome.model_copy(update={"name": TRY_IT, "why": f"completed: {TRY_IT}", "notes": (TRY_IT,)})
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    folder.write_outcome_if_absent(named)
    path = write_report(folder.uri, tmp_path / "a.html")
    watched, page = open_report(browser, path)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    page.locator("#top button.link").first.click()
    text = page.inner_text("body")
    assert page.evaluate("window.broken") is None
    assert page.locator("img").count() == 0
    assert page.locator("script").count() == 2
    assert page.inner_text("h1") == TRY_IT
    assert text.count(TRY_IT) > 10
    assert "last words" in text
    assert [url for url in watched.asked if not url.startswith(("file:", "data:"))] == []
    # The policy holds as well: markup that got in would not run.
    page.evaluate(
        "document.body.insertAdjacentHTML('beforeend', '<img src=\"data:,\" onerror=\"window.broken=1\">')"
    )
    page.wait_for_timeout(200)
    assert page.evaluate("window.broken") is None
    assert any("Content Security Policy" in problem for problem in watched.problems)
    page.close()


@pytest.mark.parametrize(
    ("size", "scheme"),
    first_of(product(SIZES, ["light", "dark"])),
    ids=lambda part: part if isinstance(part, str) else str(part[0]),
)
def test_in_a_browser_nothing_sticks_out_and_all_is_drawn(
    browser: Any, report: Path, size: tuple[int, int], scheme: str
) -> None:
    width, height = size
    watched, page = open_report(
        browser, report, viewport={"width": width, "height": height}, color_scheme=scheme
    )
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    assert page.locator(".plot").count() >= 8
    wait_until(page, ALL_DRAWN)
    assert page.evaluate(PAINTED) == []
    assert watched.problems == []
    page.close()


@pytest.mark.slow
def test_in_a_browser_texts_have_contrast(browser: Any, report: Path) -> None:
    """4.5 to 1 and more between every text and what lies behind it, in both schemes."""
    for scheme in ("light", "dark"):
        _, page = open_report(browser, report, color_scheme=scheme)
        page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
        assert page.evaluate(FAINT) == []
        page.close()


def test_in_a_browser_everything_has_a_name_and_a_place(browser: Any, report: Path) -> None:
    """Each control and each picture is named, headings have an order, ids are unique."""
    _, page = open_report(browser, report)
    page.evaluate("document.querySelectorAll('details').forEach((each) => { each.open = true; })")
    assert page.evaluate(UNNAMED) == []
    assert page.evaluate("document.documentElement.lang") == "en"
    ids = page.evaluate("[...document.querySelectorAll('[id]')].map((each) => each.id)")
    assert len(ids) == len(set(ids))
    levels = page.evaluate(
        "[...document.querySelectorAll('main :is(h1,h2,h3)')].map((each) => +each.tagName[1])"
    )
    assert levels[0] == 1
    assert levels.count(1) == 1
    assert all(after <= before + 1 for before, after in pairwise(levels))
    labels = page.evaluate("[...document.querySelectorAll('canvas[role=img]')].map((each) => each.ariaLabel)")
    assert all(re.search(r"\d|by ", label) for label in labels), labels
    page.close()


@pytest.mark.slow
def test_in_a_browser_the_keyboard_alone_is_enough(browser: Any, report: Path) -> None:
    _, page = open_report(browser, report)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "Skip to the report"
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "page"
    seen = []
    for _ in range(200):
        page.keyboard.press("Tab")
        seen.append(page.evaluate("document.activeElement.textContent || document.activeElement.ariaLabel"))
        if seen[-1] == "Ranges as numbers":
            break
    assert {"Copy as JSON", "by time", "Clear ranges"} <= set(seen)
    # Ranges without a pointer.
    page.keyboard.press("Enter")
    field = page.get_by_label("rate from")
    field.focus()
    page.keyboard.type("0.01")
    page.keyboard.press("Tab")
    shown = "document.querySelector('#parallel [role=status]').textContent"
    wait_until(page, f"/^[1-9]\\d? of 60 trials$/.test({shown}) && !{shown}.startsWith('60')")
    # One trial's box: opened, and closed with Escape; the focus is back where it was.
    button = page.locator("#top button.link").first
    button.focus()
    page.keyboard.press("Enter")
    assert page.locator("dialog.trial[open] h2").inner_text().startswith("Trial 000")
    page.keyboard.press("Escape")
    assert page.locator("dialog.trial[open]").count() == 0
    assert page.evaluate("document.activeElement.className") == "link mono"
    page.close()


def test_in_a_browser_a_range_keeps_the_trials_within_it(browser: Any, report: Path) -> None:
    _, page = open_report(browser, report)
    canvas = page.locator(".parallel canvas")
    canvas.scroll_into_view_if_needed()
    box = canvas.bounding_box()
    assert box is not None
    page.mouse.move(box["x"] + 46, box["y"] + 40)
    page.mouse.down()
    page.mouse.move(box["x"] + 46, box["y"] + 150, steps=5)
    page.mouse.up()
    wait_until(page, "!document.querySelector('#parallel [role=status]').textContent.startsWith('60 of')")
    page.wait_for_timeout(300)
    low = float(page.get_by_label("rate from").input_value())
    rates = page.evaluate(
        "(() => { const heads = [...document.querySelectorAll('#parallel th')].map((th) => th.textContent);"
        " return [...document.querySelectorAll('#parallel tbody tr')]"
        ".map((row) => Number(row.children[heads.indexOf('rate')].textContent)); })()"
    )
    assert rates
    assert all(rate >= 0.99 * low for rate in rates)
    page.get_by_role("button", name="Clear ranges").click()
    wait_until(page, "document.querySelector('#parallel [role=status]').textContent === '60 of 60 trials'")
    page.close()


PAINTED = """() => [...document.querySelectorAll('.plot > canvas:first-child')].filter((canvas) => {
  const data = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let painted = 0;
  for (let at = 3; at < data.length; at += 4) painted += data[at] > 0;
  return painted < 300;
}).map((canvas) => canvas.getAttribute('aria-label'))"""
"""Canvases with next to nothing on them."""

FAINT = """() => {
  const parse = (text) => text.match(/[\\d.]+/g).map(Number);
  const light = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((each) => each / 255)
      .map((each) => (each <= 0.03928 ? each / 12.92 : ((each + 0.055) / 1.055) ** 2.4));
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (node) => {
    for (let each = node; each; each = each.parentElement) {
      const found = parse(getComputedStyle(each).backgroundColor);
      if (found.length === 3 || found[3] > 0) return found;
    }
    return [255, 255, 255];
  };
  const found = new Set();
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const node = walker.currentNode.parentElement;
    if (!walker.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest('script,.unseen,.skip,option')) continue;
    const [one, other] = [light(parse(getComputedStyle(node).color)), light(behind(node))];
    const ratio = (Math.max(one, other) + 0.05) / (Math.min(one, other) + 0.05);
    if (ratio < 4.5) found.add(`${node.tagName}.${node.className}: ${ratio.toFixed(2)}`);
  }
  return [...found];
}"""
"""Texts with too little contrast."""

UNNAMED = """() => [
  ...document.querySelectorAll('button,select,input,canvas[role=img],[tabindex="0"],section,dialog'),
].filter((node) => {
    const by = node.getAttribute('aria-labelledby');
    const name = node.getAttribute('aria-label') || (by && document.getElementById(by)?.textContent)
      || (node.labels && [...node.labels].map((each) => each.textContent).join(''))
      || (node.tagName === 'BUTTON' && node.textContent);
    return !name || !name.trim();
  }).map((node) => node.outerHTML.slice(0, 120))"""
"""Controls, pictures and regions without a name."""


def test_all_of_it_is_drawn_before_it_is_printed(browser: Any, report: Path) -> None:
    watched = Watched(browser, viewport={"width": 1280, "height": 400})
    page = watched.open(report.as_uri())
    drawn = "[...document.querySelectorAll('canvas[role=img]')].map((each) => each.style.width !== '')"
    assert not all(page.evaluate(drawn)), "what is out of sight is drawn when it is needed"
    page.pdf()
    assert all(page.evaluate(drawn))
    page.close()
