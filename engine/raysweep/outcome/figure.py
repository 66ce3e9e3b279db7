"""A chart as an object: it shows in a notebook, and is saved as a page or as a picture."""

from __future__ import annotations

import html
import os
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Literal

from raysweep.errors import RaysweepError, SpecError

Theme = Literal["light", "dark"]
BROWSER_VARIABLE: Final = "RAYSWEEP_BROWSER"
"""The environment variable with the path of a browser of the Chromium family, for pictures."""
_BROWSERS: Final = (
    "chromium",
    "chromium-browser",
    "google-chrome",
    "google-chrome-stable",
    "chrome",
    "microsoft-edge",
    "msedge",
    "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome",
)
_TIMEOUT_S: Final = 60.0
_HTML: Final = '<html lang="en"'


@dataclass(frozen=True, slots=True, repr=False)
class Figure:
    """One chart of a sweep, as a page that needs nothing else."""

    name: str
    """`history`, `parallel`, ..."""
    title: str
    page: str = field(repr=False)
    """The page's HTML."""
    height: int
    """In pixels, at a width of about 1,000."""

    def __repr__(self) -> str:
        return f"<Figure {self.name}: {self.title}>"

    def _repr_html_(self) -> str:
        # A frame of its own: neither its style nor its script can touch the notebook.
        shown = html.escape(self.page)
        return (
            f'<iframe title="{html.escape(self.title)}" srcdoc="{shown}" sandbox="allow-scripts" '
            f'width="100%" height="{self.height}" style="border: 0"></iframe>'
        )

    def save(
        self,
        path: str | os.PathLike[str],
        *,
        width: int = 1000,
        scale: float = 2.0,
        theme: Theme | None = None,
    ) -> Path:
        """Save it as `.html` or `.png`; a file that is there is replaced. Returns the file.

        Args:
            path: The file. A picture needs a browser of the Chromium family: on the PATH, or named by the
                environment variable RAYSWEEP_BROWSER.
            width: Of a picture, in pixels of the page.
            scale: Pixels of a picture for each pixel of the page.
            theme: `light` or `dark`; default: light in a picture, the reader's own in a page.

        Raises:
            SpecError: The name has another ending, a value cannot be, or the file cannot be written.
            RaysweepError: There is no browser for a picture, or it made none.
        """
        target = Path(path).expanduser()
        if theme not in (None, "light", "dark"):
            raise SpecError("theme", f"{theme!r} is unknown", "use light or dark")
        if target.suffix not in (".html", ".png"):
            raise SpecError("path", f"{str(target)!r} ends in neither .html nor .png", "name it figure.html")
        if not 200 <= width <= 8000 or not 0 < scale <= 8:
            raise SpecError("width", f"width {width}, scale {scale}", "use 200 to 8000 pixels, scale up to 8")
        if not target.parent.is_dir():
            fix = "name a file in a folder that exists"
            raise SpecError("path", f"{str(target.parent)!r} is not a folder", fix)
        try:
            if target.suffix == ".html":
                target.write_text(self._themed(theme), encoding="utf-8")
            else:
                self._draw(target, width, scale, theme or "light")
        except OSError as error:
            problem = f"{str(target)!r} cannot be written: {error.strerror or error}"
            raise SpecError("path", problem, "name a file that can be written") from error
        return target

    def _themed(self, theme: Theme | None) -> str:
        return self.page.replace(_HTML, f'{_HTML} data-theme="{theme}"', 1) if theme else self.page

    def _draw(self, target: Path, width: int, scale: float, theme: Theme) -> None:
        import subprocess
        import tempfile

        browser = find_browser()
        with tempfile.TemporaryDirectory(prefix="raysweep-figure-") as folder:
            page, picture = Path(folder, "figure.html"), Path(folder, "figure.png")
            page.write_text(self._themed(theme), encoding="utf-8")
            command = [
                *(browser, "--headless", "--disable-gpu", "--hide-scrollbars", "--no-first-run"),
                *("--disable-background-networking", "--virtual-time-budget=4000"),
                f"--user-data-dir={folder}/profile",
                f"--force-device-scale-factor={scale}",
                f"--window-size={width},{self.height}",
                f"--screenshot={picture}",
                page.as_uri(),
            ]
            if hasattr(os, "geteuid") and os.geteuid() == 0:
                command.insert(1, "--no-sandbox")  # Chromium refuses to start as root with one.
            try:
                ended = subprocess.run(command, capture_output=True, timeout=_TIMEOUT_S, check=False)
            except (OSError, subprocess.TimeoutExpired) as error:
                raise RaysweepError(f"{browser} made no picture: {error}") from error
            if not picture.exists():
                said = ended.stderr.decode(errors="replace").strip().splitlines()
                raise RaysweepError(f"{browser} made no picture: {said[-1] if said else ended.returncode}")
            target.write_bytes(picture.read_bytes())


def find_browser() -> str:
    """A browser that makes pictures. Raises: RaysweepError: There is none."""
    import shutil

    named = os.environ.get(BROWSER_VARIABLE, "").strip()
    for name in (named,) if named else _BROWSERS:
        found = shutil.which(name)
        if found is not None:
            return found
    problem = f"{BROWSER_VARIABLE}={named!r} is no program" if named else "there is none on the PATH"
    raise RaysweepError(
        f"a picture needs Chromium, Chrome or Edge, and {problem}: set {BROWSER_VARIABLE} to its path, "
        "or save the figure as .html"
    )
