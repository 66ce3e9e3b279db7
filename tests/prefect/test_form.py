"""The pages of Prefect, in a real browser."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.orchestrators.prefect import PrefectOrchestrator, ask_patiently

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(400)]


def test_the_form_of_the_deployment_shows_the_parameters(
    orchestrator: PrefectOrchestrator, page: Any, tmp_path: Path
) -> None:
    found = ask_patiently(orchestrator.servers, "GET", "/deployments/name/nightly-sweep/night")
    page.goto(
        f"{orchestrator.servers.address}/deployments/deployment/{found['id']}/run", wait_until="networkidle"
    )
    for text in (
        "train_spec",
        "accept_partial",
        "Whether a search that a deadline or a budget cut short counts",
    ):
        page.get_by_text(text).first.wait_for(timeout=30_000)
    page.screenshot(path=os.environ.get("RAYSWEEP_SCREENSHOT_FORM") or tmp_path / "form.png", full_page=True)


@pytest.fixture
def page() -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    arguments = ["--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
    arguments += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", headless=True, args=arguments
        )
        try:
            yield browser.new_page(viewport={"width": 1280, "height": 1600})
        finally:
            browser.close()
