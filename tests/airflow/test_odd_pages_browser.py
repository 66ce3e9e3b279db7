"""Airflow's page of odd sweeps in a real browser: as sound as their report, and with the same document."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.pages.document import make_document
from raysweep.runs.reading.whole_sweep import read_whole
from tests.airflow import pages
from tests.airflow.sites import PAGE, place, site, task
from tests.browsers import Watched, chromium
from tests.sampling import sampled
from tests.unit.pages.odd_sweeps import ODD
from tests.unit.pages.soundness import CASES, check_sound, options

EVERY_DAY = [("long names", (390, "dark")), ("all failed", (1280, "light"))]


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.mark.parametrize(("name", "size"), sampled(CASES, lambda case: case in EVERY_DAY), ids=str)
def test_in_a_browser_an_odd_sweep_has_a_sound_page_in_airflow(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, name: str, size: tuple[int, str]
) -> None:
    folder = ODD[name](tmp_path)
    shown = task("success", place=place(tmp_path, run_id=folder.sweep_id))
    with pages.serving(site(monkeypatch, lambda *ids: shown)) as base:
        watched = Watched(browser, **options(size))
        page = watched.open(base + PAGE)
        check_sound(watched, name)
        whole = read_whole(folder)
        assert page.get_attribute("main", "data-status") == whole.status.status
        if whole.status.metric and (no_best := make_document(whole)["no_best"]):
            assert no_best in page.inner_text("main")
        page.close()
