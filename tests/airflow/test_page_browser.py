"""The progress page in a real browser."""

from __future__ import annotations

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from raysweep.outcome.formatting import show_number
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
    """It draws the curve, changes its axis, asks again by itself, and stops asking at the end."""
    monkeypatch.setattr(views, "RUNNING_POLL_S", 0.3)
    pages.store(tmp_path / "half", *night, part=0.5)
    pages.store(tmp_path / "whole", *night)
    now = [task(place=place(tmp_path / "half"))]
    with pages.serving(site(monkeypatch, lambda *ids: now[0])) as base:
        watched = Watched(browser, viewport={"width": 390, "height": 844}, timezone_id="Europe/Berlin")
        page = watched.open(base + PAGE)
        assert page.get_attribute("main", "data-status") == "running"
        label = page.get_attribute(".curve svg", "aria-label")
        assert label.startswith("Best auc so far: 0.")
        path = page.get_attribute(".curve path.best", "d")
        page.get_by_role("button", name="by time").click()
        assert page.get_attribute(".curve path.best", "d") != path
        assert page.get_by_role("button", name="by time").get_attribute("aria-pressed") == "true"
        # A phone: nothing sticks out at the side.
        assert page.evaluate("document.documentElement.scrollWidth <= window.innerWidth")
        page.get_by_role("button", name="Show all").focus()
        now[0] = task("success", place=place(tmp_path / "whole"))
        page.wait_for_selector("main[data-status=completed]", timeout=90_000)
        # The keyboard's place, and what was chosen, outlast the change.
        assert page.evaluate("document.activeElement.dataset.key") == "long"
        assert page.get_by_role("button", name="by time").get_attribute("aria-pressed") == "true"
        assert "no longer asks" in page.inner_text("main")
        assert page.inner_text("#said") == "The sweep is completed now."
        count = len(watched.asked)
        page.wait_for_timeout(1000)
        assert len(watched.asked) == count
        page.close()
    assert watched.problems == []


@pytest.mark.servers
def test_in_a_browser_small_numbers_and_a_logarithmic_axis(
    browser: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """As the command line writes them; scores over many powers of ten are on a logarithmic axis unasked."""

    def curve(config: dict[str, Any], iteration: int) -> dict[str, Any] | None:
        return {"loss": config["x"]} if iteration == 1 else None

    spec, simulated = pages.night(
        curve=curve, metric="loss", mode="min", param_space={"x": {"loguniform": [1e-7, 1e8]}},
        num_samples=40, scheduler="fifo",
    )  # fmt: skip
    pages.store(tmp_path, spec, simulated)
    best = simulated.outcome.best
    assert best is not None
    with pages.serving(site(monkeypatch, lambda *ids: task("deferred", place=place(tmp_path)))) as base:
        watched = Watched(browser)
        page = watched.open(base + PAGE)
        assert page.inner_text(".score") == show_number(best.score)
        assert "e-0" in show_number(best.score)
        shown = page.locator("table.cards td:nth-child(3)").all_inner_texts()
        assert shown == [show_number(trial.score) for trial in simulated.outcome.top(len(shown))]
        page.wait_for_selector(".curve svg[data-scale=log]")
        ticks = page.locator(".curve svg text[text-anchor=end]").all_text_contents()
        assert 3 <= len(ticks) <= 8
        assert all(float(tick) == 10 ** round(math.log10(float(tick))) for tick in ticks), ticks
        page.get_by_role("button", name="log").click()
        page.wait_for_selector(".curve svg[data-scale=linear]")
        text = page.inner_text("main")
        # Counts and best are said once, and why Airflow's badge says something else.
        assert text.count("40 of 40 trials ended") == 1
        assert text.count("every trial has ended") == 1
        assert "Airflow still calls its task deferred" in text
        page.close()
    assert watched.problems == []
