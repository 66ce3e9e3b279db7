"""The dashboard in a real browser: search, a sweep that continues, logs, and texts that stay texts."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.pages import live
from raysweep.pages.dashboard import Access, serving
from raysweep.storage.logs import log_name
from tests.browsers import Watched, chromium, wait_until
from tests.unit.pages.odd_sweeps import ODD
from tests.unit.pages.sweeps import first_half, nights, second_half, store
from tests.unit.runs.across_runs.nights import add, event, mark

TRY_IT = "</script><img src=x onerror=window.broken=1>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


def test_in_a_browser_runs_are_found_and_what_they_say_stays_text(browser: Any, tmp_path: Path) -> None:
    folder, outcome = store(tmp_path, name="one", num_samples=6)
    store(tmp_path, name="two", num_samples=6)
    folder.store.delete(f"{folder.sweep_id}/outcome.json")
    folder.write_outcome_if_absent(outcome.model_copy(update={"name": TRY_IT, "status": "deadline"}))
    folder.store.put(f"{folder.sweep_id}/{log_name('00000', 1)}", f"{TRY_IT} of a log\n".encode())
    with serving(str(tmp_path), Access(), 0) as (address, _):
        watched = Watched(browser, viewport={"width": 390, "height": 844})
        page = watched.open(address)
        assert page.locator("tbody tr").count() == 2
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.get_by_label("Search").fill("two compl")
        assert page.locator("tbody tr").count() == 1
        page.get_by_label("Search").fill("")
        page.get_by_label("State").select_option("deadline")
        assert page.locator("#count").inner_text() == "1 of 2 runs"
        page.get_by_role("link", name=TRY_IT).click()
        page.wait_for_selector("main[data-view=report]")
        assert page.inner_text("h1") == TRY_IT
        page.evaluate("raysweep.model.open(0)")
        page.get_by_role("button", name="Show its log").click()
        wait_until(page, "document.querySelector('dialog[open] pre').textContent.includes('of a log')")
        assert page.evaluate("window.broken") is None
        assert page.locator("img").count() == 0
        page.close()
    assert watched.problems == []
    assert all(url.startswith((address, "data:")) for url in watched.asked)


def test_in_a_browser_no_name_or_config_makes_the_list_of_runs_wide_or_high(
    browser: Any, tmp_path: Path
) -> None:
    for odd in ("long names", "hostile", "failed, others cut"):
        ODD[odd](tmp_path)
    with serving(str(tmp_path), Access(), 0) as (address, _):
        page = Watched(browser, viewport={"width": 1280, "height": 900}).open(address)
        wait_until(page, "document.querySelectorAll('tbody tr').length === 3")
        heights = page.evaluate("[...document.querySelectorAll('tbody tr')].map((row) => row.offsetHeight)")
        assert max(heights) < 130, heights
        room = "(table) => [table.scrollWidth, table.parentElement.clientWidth]"
        wide, frame = page.eval_on_selector("table", room)
        assert wide <= frame
        page.close()


def test_in_a_browser_it_follows_a_sweep(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It shows what is new by itself, but not to a reader who has a trial's box open."""
    for name in ("FRESH_S", "POLL_S", "BUSY_SHARE"):
        monkeypatch.setattr(live, name, 0.2)
    folder, _ = store(tmp_path / "a")
    copy = first_half(folder, tmp_path / "b")
    with serving(str(tmp_path / "b"), Access(), 0) as (address, _):
        watched = Watched(browser)
        page = watched.open(f"{address}run/{copy.sweep_id}")
        assert page.get_attribute("main", "data-status") == "interrupted"
        before = int(page.get_attribute("main", "data-ended"))
        page.evaluate("raysweep.model.open(0)")
        second_half(folder, copy)
        page.wait_for_selector("#newer", state="attached")
        assert int(page.get_attribute("main", "data-ended")) == before
        page.keyboard.press("Escape")
        page.get_by_role("button", name="Show what is new").click()
        page.wait_for_selector("main[data-status=completed]")
        assert page.get_attribute("main", "data-ended") == "24"
        assert page.locator("dialog").count() == 1
        # Nothing changes any more: what it asks is answered without content.
        page.wait_for_timeout(700)
        with page.expect_response(lambda answer: "/api/runs/" in answer.url) as asked:
            pass
        assert asked.value.status == 204
        page.close()
    assert watched.problems == []


def test_in_a_browser_a_damaged_champion_is_named_beside_the_others(browser: Any, tmp_path: Path) -> None:
    folder, *_ = nights(tmp_path, (6, 9))
    add(folder.store, folder.sweep_id, 0.75)
    damaged = f"champions/flights/{'l' * 60}.min/000000000001.jsonl"
    folder.store.put(damaged, b"{torn\n")
    with serving(str(tmp_path), Access(), 0) as (address, _):
        watched = Watched(browser, viewport={"width": 390, "height": 844})
        for path, rows in (("", 2), ("name/night", 2)):
            page = watched.open(address + path)
            assert page.locator("tbody tr").count() == rows + 1
            assert "0.75" in page.inner_text("#champions tbody")
            problem = page.inner_text("#champions .problem")
            assert problem.startswith(f"A champion cannot be read: {folder.store.url}/{damaged}: is damaged")
            assert "restore" in problem
            assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        folder.store.delete(event(1), mark(1))
        page = watched.open(address)
        assert page.locator("#champions table").count() == 0
        assert page.locator("#champions .problem").count() == 1
        page.close()
    assert watched.problems == []


def test_in_a_browser_nights_of_a_name_lie_over_each_other(browser: Any, tmp_path: Path) -> None:
    nights(tmp_path, (6, 9, 12))
    store(tmp_path, name="other", num_samples=6)
    with serving(str(tmp_path), Access(), 0) as (address, _):
        watched = Watched(browser, viewport={"width": 390, "height": 844})
        page = watched.open(address)
        link = page.get_by_role("link", name="3 sweeps named night, side by side").first
        assert page.locator("a[href='/name/other']").count() == 0
        link.click()
        page.wait_for_selector("main[data-view=nights]")
        assert page.locator("#nights tbody tr").count() == 3
        assert page.locator("#nights strong").count() == 1
        wait_until(page, "document.querySelector('.plot').dataset.drawn === 'yes'")
        page.get_by_role("button", name="by time").click()
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.locator("#nights tbody a").first.click()
        page.wait_for_selector("main[data-view=report]")
        page.close()
    assert watched.problems == []
