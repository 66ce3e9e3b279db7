"""The progress page in a real browser."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.pages import live
from raysweep_airflow.page import views
from tests.airflow import pages
from tests.airflow.sites import PAGE, Night, place, site, task
from tests.browsers import Watched, chromium

TRY_IT = "<img src=x onerror=window.broken=1>"


@pytest.fixture(scope="module")
def browser() -> Iterator[Any]:
    with chromium() as browser:
        yield browser


@pytest.fixture(scope="module")
def night() -> Night:
    return pages.night()


def test_in_a_browser_what_users_write_stays_text(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Names, configs, keys, errors: none of them becomes markup, and nobody outside is asked anything."""

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        if config["kind"].startswith("bad"):
            raise ValueError(f"{TRY_IT} failed")
        return {"auc": config["x"], "said": TRY_IT} if iteration == 1 else None

    space = {
        "x": {"uniform": [0, 1]},
        "kind": {"choice": [TRY_IT, f"bad {TRY_IT}"]},
        TRY_IT: {"choice": [TRY_IT]},
    }
    spec, simulated = pages.night(
        curve=curve, param_space=space, num_samples=12, scheduler="fifo", failure={"breaker_trials": 100}
    )
    pages.store(tmp_path, spec, simulated)
    shown = task(
        "success", place=place(tmp_path, key=TRY_IT, job_id=TRY_IT, job_url=f"javascript:alert(1)//{TRY_IT}")
    )
    with pages.serving(site(monkeypatch, lambda *ids: shown)) as base:
        watched = Watched(browser)
        page = watched.open(base + PAGE)
        assert page.evaluate("window.broken") is None
        assert page.locator("img").count() == 0
        assert page.locator("a[href^='javascript']").count() == 0
        text = page.inner_text("main")
        assert text.count(TRY_IT) > 5
        assert "failed" in text
        page.close()
    assert watched.problems == []
    assert all(url.startswith(base) for url in watched.asked if not url.startswith("data:"))


@pytest.mark.servers
def test_in_a_browser_it_follows_the_sweep(
    browser: Any, night: Night, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """It draws a running sweep, asks again by itself, shows the whole of it at the end, and stops asking."""
    monkeypatch.setattr(views, "RUNNING_POLL_S", 0.3)
    for name in ("POLL_S", "FRESH_S", "BUSY_SHARE"):
        monkeypatch.setattr(live, name, 0.2)
    pages.store(tmp_path / "half", *night, part=0.5)
    pages.store(tmp_path / "whole", *night)
    now = [task(place=place(tmp_path / "half"))]
    with pages.serving(site(monkeypatch, lambda *ids: now[0])) as base:
        watched = Watched(browser, viewport={"width": 390, "height": 844}, timezone_id="Europe/Berlin")
        page = watched.open(base + PAGE)
        assert page.get_attribute("main", "data-status") == "running"
        assert page.locator("#running tbody tr").count() == 4
        assert page.get_attribute("#progress canvas", "aria-label").startswith("Best auc so far: 0.")
        page.locator("#progress").get_by_role("button", name="by time").click()
        page.locator("#about summary", has_text="Spec").click()
        # A phone: nothing sticks out at the side.
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.locator("#best").get_by_role("button", name="Copy as JSON").focus()
        now[0] = task("success", place=place(tmp_path / "whole"))
        page.wait_for_selector("main[data-status=completed]", timeout=90_000)
        # The keyboard's place, what was opened and what was chosen outlast the change.
        assert page.evaluate("document.activeElement.textContent") == "Copy as JSON"
        assert page.locator("#about details[open]").count() == 1
        chosen = page.locator("#progress").get_by_role("button", name="by time")
        assert chosen.get_attribute("aria-pressed") == "true"
        assert page.locator("#running").count() == 0
        assert page.locator("#parallel, #curves, #timeline, #failures").count() == 4
        assert "no longer asks" in page.inner_text("main")
        assert page.inner_text("#said") == "It is completed now."
        count = len(watched.asked)
        page.wait_for_timeout(1000)
        assert len(watched.asked) == count
        page.close()
    assert watched.problems == []


@pytest.mark.servers
def test_in_a_browser_it_takes_the_colours_that_airflow_has(
    browser: Any, night: Night, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Airflow keeps its reader's choice in the browser; it wins over the system's."""
    pages.store(tmp_path, *night)
    back = "getComputedStyle(document.body).backgroundColor"
    with pages.serving(site(monkeypatch, lambda *ids: task("success", place=place(tmp_path)))) as base:
        found = {}
        for system in ("light", "dark"):
            for theme in ("", "light", "dark"):
                watched = Watched(browser, color_scheme=system)
                watched.page.add_init_script(f"localStorage.setItem('theme', '{theme}')")
                found[system, theme] = watched.open(base + PAGE).evaluate(back)
                watched.page.close()
        light, dark = found["light", ""], found["dark", ""]
        assert light != dark
        assert [found["dark", "light"], found["light", "light"]] == [light, light]
        assert [found["dark", "dark"], found["light", "dark"]] == [dark, dark]


@pytest.mark.servers
def test_in_a_browser_a_lost_login_and_a_late_task_are_said(
    browser: Any, night: Night, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """What is on the page stays while Airflow refuses, and why Airflow's badge says something else."""
    monkeypatch.setattr(views, "RUNNING_POLL_S", 0.05)
    pages.store(tmp_path, *night)
    with pages.serving(site(monkeypatch, lambda *ids: task("deferred", place=place(tmp_path)))) as base:
        watched = Watched(browser)
        page = watched.open(base + PAGE)
        assert "Airflow still calls its task deferred" in page.inner_text("main")
        page.route("**/sweep.json**", lambda route: route.fulfill(status=401, json={"detail": "no"}))
        page.wait_for_selector("#offline:not([hidden])")
        assert page.inner_text("#offline") == "You are logged out: reload Airflow to log in."
        assert page.get_attribute("main", "data-status") == "completed"
        page.unroute("**/sweep.json**")
        page.wait_for_selector("#offline", state="hidden")
        page.close()
