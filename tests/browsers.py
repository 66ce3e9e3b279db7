"""A headless Chromium, and pages of it that remember what went wrong in them."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

CHROMIUM = [
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
]


@contextmanager
def chromium() -> Iterator[Any]:
    """The browser, ended at the end."""
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path="/usr/bin/chromium", args=CHROMIUM)
        yield browser
        browser.close()


class Watched:
    """A page that remembers what its console said, and what it asked for."""

    def __init__(self, browser: Any, **options: Any) -> None:
        self.page = browser.new_page(**options)
        self.problems: list[str] = []
        self.asked: list[str] = []
        self.page.on(
            "console", lambda said: self.problems.append(said.text) if said.type == "error" else None
        )
        self.page.on("pageerror", lambda error: self.problems.append(str(error)))
        self.page.on("request", lambda request: self.asked.append(request.url))

    def open(self, address: str) -> Any:
        self.page.goto(address)
        self.page.wait_for_selector("main[data-view]", timeout=90_000)
        return self.page


def wait_until(page: Any, script: str, within_s: float = 30.0) -> None:
    """Wait until a script says true. The page's own wait would run it by `eval`, which its policy forbids."""
    until = time.monotonic() + within_s
    while not page.evaluate(script):
        assert time.monotonic() < until, f"not true within {within_s:g} s: {script}"
        page.wait_for_timeout(20)
