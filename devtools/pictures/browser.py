"""A headless Chromium that takes pictures of pages, in light and in dark."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

IMAGES: Final = Path(__file__).resolve().parents[2] / "docs/images"
THEMES: Final = ("light", "dark")
WIDTH: Final = 1280
HEIGHT: Final = 800


class Browser:
    """Takes pictures into `docs/images`."""

    def __init__(self, chromium: Any) -> None:
        self._chromium = chromium
        self.taken: list[str] = []
        """The names of the pictures so far."""

    def take(self, address: str, name: str, *, width: int = WIDTH, height: int = HEIGHT) -> None:
        """`NAME-light.png` and `NAME-dark.png` of the top of one of raysweep's pages."""
        for theme in THEMES:
            page = self.new_page(viewport={"width": width, "height": height}, color_scheme=theme)
            page.goto(address)
            page.wait_for_selector("main[data-view]", timeout=90_000)
            self.keep(page, f"{name}-{theme}")
            page.close()

    def keep(self, page: Any, name: str) -> None:
        """Take a picture of what an open page shows."""
        page.wait_for_timeout(500)  # charts are drawn in the next frames
        page.screenshot(path=IMAGES / f"{name}.png")
        self.taken.append(f"{name}.png")

    def new_page(self, **options: Any) -> Any:
        """A page of the browser, for pages that have to be logged in to."""
        return self._chromium.new_page(**options)


@contextmanager
def open_browser() -> Iterator[Browser]:
    """The browser, ended at the end. Raises: RaysweepError: There is none."""
    from playwright.sync_api import sync_playwright

    from raysweep.outcome.figure import find_browser

    with sync_playwright() as playwright:
        chromium = playwright.chromium.launch(
            executable_path=find_browser(), args=["--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        )
        try:
            yield Browser(chromium)
        finally:
            chromium.close()
