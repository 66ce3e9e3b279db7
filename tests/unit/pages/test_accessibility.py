"""Report, dashboard and figures as axe-core judges them, and by the keyboard alone; in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome import SweepOutcome
from raysweep.pages import write_report
from raysweep.pages.dashboard import Access, serving
from raysweep.stored import StoredSweep
from tests.browsers import Watched, chromium, wait_until
from tests.sampling import first_of
from tests.unit.pages.sweeps import first_half, nights, store

SHOWN = first_of([(390, "dark"), (1280, "light"), (390, "light"), (1280, "dark")])
PAGES = [
    ("", "dark"),
    ("name/night", "light"),
    ("run/rich", "dark"),
    ("run/half", "light"),
    ("run/none", "light"),
    pytest.param("", "light", marks=pytest.mark.slow),
    pytest.param("name/night", "dark", marks=pytest.mark.slow),
    pytest.param("run/rich", "light", marks=pytest.mark.slow),
    pytest.param("run/half", "dark", marks=pytest.mark.slow),
]
OPEN_ALL = "document.querySelectorAll('details').forEach((each) => { each.open = true; })"
FOUND = """async () => {
  const found = await axe.run(document, { resultTypes: ['violations'] });
  return found.violations.map((each) => [each.impact, each.id, each.nodes.slice(0, 3).map((node) => node.html.slice(0, 160))]);
}"""  # noqa: E501


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def axe() -> str:
    return (files("axe_playwright_python") / "axe.min.js").read_text(encoding="utf-8")


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three nights of one name, one more with several metrics and failures, and half of a sweep."""
    root = tmp_path_factory.mktemp("store")
    nights(root, (6, 9, 12))
    folder, _ = store(tmp_path_factory.mktemp("whole"), name="half")
    first_half(folder, root)
    return root


@pytest.fixture(scope="module")
def rich(root: Path) -> SweepOutcome:
    folder, found = store(
        root, name="rich", metric=["auc", "latency_ms"], mode=["max", "min"], scheduler="fifo",
        num_samples=60, constraints=["latency_ms <= 18"],
    )  # fmt: skip
    return found.model_copy(update={"uri": folder.uri})


@pytest.fixture(scope="module")
def report(rich: SweepOutcome, root: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    other = next(each.name for each in root.iterdir() if each.name.startswith("night-0"))
    return write_report(rich.uri, tmp_path_factory.mktemp("report") / "a.html", compare=[other])


@pytest.fixture(scope="module")
def address(rich: SweepOutcome, root: Path) -> Iterator[str]:
    with serving(str(root), Access(), 0) as (address, _):
        yield address


def findings(page: Any, axe: str) -> list[Any]:
    """What axe-core finds, with all that can be opened open."""
    page.evaluate(OPEN_ALL)
    page.evaluate(axe)
    found: list[Any] = page.evaluate(FOUND)
    return found


@pytest.mark.parametrize(("width", "scheme"), SHOWN)
def test_in_a_browser_axe_finds_nothing_in_a_report(
    browser: Any, report: Path, axe: str, width: int, scheme: str
) -> None:
    watched = Watched(browser, viewport={"width": width, "height": 844}, color_scheme=scheme)
    page = watched.open(report.as_uri())
    assert findings(page, axe) == []
    page.locator("#top button.link").first.click()
    assert page.locator("dialog[open]").count() == 1
    assert findings(page, axe) == []
    page.close()


def test_in_a_browser_axe_would_find_what_is_wrong(browser: Any, report: Path, axe: str) -> None:
    """The check itself can fail: a button without a name, a text without contrast."""
    page = Watched(browser, color_scheme="light").open(report.as_uri())
    page.evaluate(
        "document.querySelector('main').append(document.createElement('button'));"
        "document.querySelector('h1').style.color = '#c8c8c8'"
    )
    assert {each[1] for each in findings(page, axe)} >= {"button-name", "color-contrast"}
    page.close()


@pytest.mark.parametrize(("where", "scheme"), PAGES)
def test_in_a_browser_axe_finds_nothing_in_the_dashboard(
    browser: Any, address: str, root: Path, axe: str, where: str, scheme: str
) -> None:
    name = where.removeprefix("run/")
    ids = [each.name for each in root.iterdir() if each.name.startswith(f"{name}-")]
    place = f"run/{ids[0] if ids else name}" if where.startswith("run/") else where
    page = Watched(browser, color_scheme=scheme).open(f"{address}{place}")
    assert findings(page, axe) == []
    page.close()


def test_in_a_browser_axe_finds_nothing_in_figures(
    browser: Any, rich: SweepOutcome, axe: str, tmp_path: Path
) -> None:
    for name in ("history", "parallel", "importances", "curves", "pareto"):
        path = getattr(StoredSweep.of(rich).plot, name)().save(tmp_path / f"{name}.html")
        page = Watched(browser).open(path.as_uri())
        assert findings(page, axe) == [], name
        page.close()


def press_until(page: Any, script: str, most: int = 80) -> None:
    """Press Tab until a script about `document.activeElement` says true."""
    for _ in range(most):
        if page.evaluate(script):
            return
        page.keyboard.press("Tab")
    raise AssertionError(f"Tab does not lead to: {script}")


def test_in_a_browser_the_keyboard_alone_leads_through_the_dashboard(browser: Any, address: str) -> None:
    """From the list by a search to a sweep's page, to a trial's box, and back."""
    page = Watched(browser).open(address)
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.className") == "skip"
    page.keyboard.press("Enter")
    press_until(page, "document.activeElement.id === 'search'")
    page.keyboard.type("rich")
    assert page.locator("#runs tbody tr").count() == 1
    press_until(page, "document.activeElement.textContent === 'rich'")
    page.keyboard.press("Enter")
    page.wait_for_selector("main[data-view=report]")
    press_until(page, "document.activeElement.matches('#top button.link')")
    page.keyboard.press("Enter")
    wait_until(page, "document.querySelector('dialog[open]') !== null")
    assert page.evaluate("document.querySelector('dialog[open]').contains(document.activeElement)")
    page.keyboard.press("Escape")
    assert page.evaluate("document.activeElement.matches('#top button.link')")
    press_until(page, "document.activeElement.matches('#parallel summary')")
    page.keyboard.press("Enter")
    press_until(page, "document.activeElement.matches('#parallel .filters input')")
    page.keyboard.type("0.01")
    page.keyboard.press("Tab")
    wait_until(page, "!document.querySelector('#parallel [role=status]').textContent.startsWith('60 of')")
    page.keyboard.press("Shift+Tab")
    page.evaluate("document.activeElement.blur(); document.querySelector('#nav a').focus()")
    page.keyboard.press("Enter")
    page.wait_for_selector("main[data-view=list]")
    page.close()
