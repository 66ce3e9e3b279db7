"""Pictures of a report at three widths: that of the gallery's flights."""

from __future__ import annotations

from typing import Final

from devtools.pictures.browser import Browser
from devtools.pictures.gallery import REPORTS

SIZES: Final = {390: 844, 1280: 960, 2560: 1440}
"""Height by width, in pixels: a phone, a laptop, a large screen."""


def make(browser: Browser) -> None:
    """Take them of the report that the gallery has."""
    for width, height in SIZES.items():
        browser.take((REPORTS / "flights.html").as_uri(), f"report-{width}", width=width, height=height)
