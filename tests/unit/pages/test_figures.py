"""`outcome.plot`: figures that show in notebooks and are saved as pages and pictures."""

from __future__ import annotations

import html
import os
import re
import struct
import subprocess
import sys
from base64 import b64encode
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.errors import RaysweepError, SpecError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.figure import Figure, find_browser
from raysweep.pages import figures
from raysweep.stored import StoredSweep
from tests.browsers import Watched, chromium, wait_until
from tests.sampling import first_of
from tests.unit.pages.sweeps import learn, store

NAMES = ("history", "parallel", "importances", "curves", "pareto")
TRY_IT = "</script><img src=x onerror=window.broken=1>"
PAINTED = """() => [...document.querySelectorAll('.plot > canvas:first-child')].map((canvas) => {
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  let count = 0;
  for (let at = 3; at < pixels.length; at += 4) count += pixels[at] > 0;
  return count;
})"""
COLOURS = """async (address) => {
  const image = new Image();
  image.src = address;
  await image.decode();
  const canvas = document.createElement('canvas');
  [canvas.width, canvas.height] = [image.width, image.height];
  canvas.getContext('2d').drawImage(image, 0, 0);
  const pixels = canvas.getContext('2d').getImageData(0, 0, canvas.width, canvas.height).data;
  const found = new Set();
  for (let at = 0; at < pixels.length; at += 4) found.add(pixels.slice(at, at + 3).join(','));
  return [...found];
}"""


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> SweepOutcome:
    root = tmp_path_factory.mktemp("figures")
    folder, found = store(
        root, metric=["auc", "latency_ms"], mode=["max", "min"], scheduler="fifo", num_samples=40
    )
    return StoredSweep.of(found.model_copy(update={"uri": folder.uri}))


def figure_of(outcome: SweepOutcome, name: str) -> Figure:
    made: Figure = getattr(outcome.plot, name)()
    return made


@pytest.mark.parametrize("name", NAMES)
def test_in_a_browser_a_saved_figure_is_drawn(
    browser: Any, outcome: SweepOutcome, tmp_path: Path, name: str
) -> None:
    path = figure_of(outcome, name).save(tmp_path / "a.html")
    watched = Watched(browser, viewport={"width": 1000, "height": 560})
    page = watched.open(path.as_uri())
    if name == "importances":
        assert page.locator("#importances li").count() >= 2
    else:
        wait_until(page, "document.querySelector('.plot').dataset.drawn === 'yes'")
        assert all(count > 1000 for count in page.evaluate(PAINTED))
    assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
    # The whole of it is in the height that a notebook gives it.
    assert page.evaluate("document.querySelector('main').offsetHeight") <= figure_of(outcome, name).height
    assert watched.problems == []
    assert [url for url in watched.asked if not url.startswith(("file:", "data:"))] == []
    page.close()


def test_in_a_browser_a_notebooks_cell_shows_it_in_a_frame_of_its_own(
    browser: Any, outcome: SweepOutcome
) -> None:
    watched = Watched(browser)
    shown = figure_of(outcome, "history")._repr_html_()
    watched.page.set_content(f"<!doctype html><p>Out[1]</p>{shown}")
    frame = watched.page.frame_locator("iframe")
    frame.locator("main[data-view=figure]").wait_for()
    frame.get_by_role("button", name="by time").click()
    assert frame.get_by_role("button", name="by time").get_attribute("aria-pressed") == "true"
    assert watched.problems == []
    watched.page.close()


def test_in_a_browser_a_hostile_sweep_stays_in_its_frame(browser: Any, tmp_path: Path) -> None:
    space = {TRY_IT: {"choice": ["1", TRY_IT]}, "x": {"uniform": [0, 1]}}

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return {"auc": config["x"], TRY_IT: 1.0} if iteration < 3 else None

    folder, found = store(tmp_path, curve, param_space=space, scheduler="fifo")
    hostile = StoredSweep.of(found.model_copy(update={"uri": folder.uri, "name": TRY_IT}))
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    folder.write_outcome_if_absent(hostile)
    watched = Watched(browser)
    shown = figure_of(hostile, "parallel")._repr_html_()
    assert html.escape(TRY_IT) in shown
    watched.page.set_content(f"<!doctype html>{shown}")
    frame = watched.page.frame_locator("iframe")
    frame.locator("main[data-view=figure]").wait_for()
    assert watched.page.evaluate("window.broken") is None
    assert frame.locator("img").count() == watched.page.locator("img").count() == 0
    watched.page.close()


@pytest.mark.parametrize("theme", first_of(["light", "dark"]))
def test_a_picture_is_made_by_the_browser_that_is_there(
    browser: Any, outcome: SweepOutcome, tmp_path: Path, theme: Any
) -> None:
    figure = figure_of(outcome, "history")
    path = figure.save(tmp_path / "a.png", width=800, scale=1.5, theme=theme)
    data = path.read_bytes()
    assert data[:8] == b"\x89PNG\r\n\x1a\n"
    assert struct.unpack(">II", data[16:24]) == (1200, round(1.5 * figure.height))
    page = browser.new_page()
    colours = page.evaluate(COLOURS, f"data:image/png;base64,{b64encode(data).decode()}")
    page.close()
    accent = {"light": "31,95,191", "dark": "108,171,255"}
    surface = {"light": "255,255,255", "dark": "24,32,42"}
    assert {accent[theme], surface[theme]} <= set(colours)


def test_without_a_browser_one_line_says_so(
    outcome: SweepOutcome, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("RAYSWEEP_BROWSER", raising=False)
    monkeypatch.setattr("raysweep.outcome.figure._BROWSERS", ("chromium", "chrome"))
    figure = figure_of(outcome, "history")
    with pytest.raises(
        RaysweepError, match=r"needs Chromium, Chrome or Edge.*save the figure as \.html"
    ) as said:
        figure.save(tmp_path / "a.png")
    assert "\n" not in str(said.value)
    monkeypatch.setenv("RAYSWEEP_BROWSER", "/no/such/browser")
    with pytest.raises(RaysweepError, match="RAYSWEEP_BROWSER='/no/such/browser' is no program"):
        find_browser()
    broken = tmp_path / "broken"
    broken.write_text("#!/bin/sh\necho it broke >&2\nexit 3\n")
    broken.chmod(0o755)
    monkeypatch.setenv("RAYSWEEP_BROWSER", str(broken))
    monkeypatch.setenv("PATH", os.defpath)
    with pytest.raises(RaysweepError, match="made no picture: it broke"):
        figure.save(tmp_path / "a.png")
    assert not (tmp_path / "a.png").exists()
    assert figure.save(tmp_path / "a.html").exists()


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"path": "a.svg"}, r"ends in neither \.html nor \.png"),
        ({"path": "a"}, r"ends in neither \.html nor \.png"),
        ({"path": "no/such/a.html"}, "is not a folder"),
        ({"path": "a.png", "width": 3}, "width 3"),
        ({"path": "a.png", "scale": 0}, "scale 0"),
        ({"path": "a.html", "theme": "blue"}, "theme: 'blue' is unknown"),
    ],
)
def test_what_cannot_be_saved_is_said(
    outcome: SweepOutcome, tmp_path: Path, given: dict[str, Any], problem: str
) -> None:
    path = tmp_path / given.pop("path")
    with pytest.raises(SpecError, match=problem):
        figure_of(outcome, "history").save(path, **given)


def test_what_a_sweep_has_not_is_said(tmp_path: Path) -> None:
    folder, found = store(tmp_path, num_samples=6)
    small = StoredSweep.of(found.model_copy(update={"uri": folder.uri}))
    with pytest.raises(SpecError, match=r"plot\.pareto: .* the sweep has one metric, auc"):
        small.plot.pareto()
    with pytest.raises(SpecError, match=r"plot\.importances: "):
        small.plot.importances()

    def silent(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        raise ValueError("no")

    folder, found = store(tmp_path, silent, name="silent", num_samples=3)
    silent_one = StoredSweep.of(found.model_copy(update={"uri": folder.uri}))
    for name in ("history", "importances", "curves", "pareto"):
        with pytest.raises(SpecError, match=rf"plot\.{name}: "):
            getattr(silent_one.plot, name)()
    with pytest.raises(RaysweepError, match="does not say where the sweep is stored"):
        StoredSweep.of(found.model_copy(update={"uri": ""})).plot.history()


def test_other_sweeps_are_drawn_beside_it_and_a_second_chart_reads_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, found = store(tmp_path, name="one", num_samples=12)
    other, other_found = store(tmp_path, name="two", num_samples=12)
    one = StoredSweep.of(found.model_copy(update={"uri": folder.uri}))
    two = StoredSweep.of(other_found.model_copy(update={"uri": other.uri}))
    by_outcome, by_id = one.plot.history(compare=[two]), one.plot.history(compare=[other.sweep_id])
    for figure in (by_outcome, by_id):
        assert f'"id":"{other.sweep_id}"' in figure.page
    one.plot.curves()
    monkeypatch.setattr(figures, "read_whole", lambda folder: pytest.fail("it is read already"))
    assert re.match(r"<Figure parallel: one: ", repr(one.plot.parallel()))


def test_a_sweep_that_went_on_is_read_again(tmp_path: Path) -> None:
    folder, found = store(tmp_path, learn, num_samples=12)
    one = StoredSweep.of(found.model_copy(update={"uri": folder.uri}))
    assert '"status":"completed"' in one.plot.history().page
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    folder.write_outcome_if_absent(found.model_copy(update={"status": "deadline"}))
    assert '"status":"deadline"' in one.plot.history().page


def test_what_draws_is_imported_when_it_is_asked_for() -> None:
    code = (
        "import sys, raysweep as rs\n"
        "rs.StoredSweep.plot\n"
        "print(sorted(each for each in sys.modules if each.startswith('raysweep.pages')))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n"
