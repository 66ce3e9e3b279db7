"""The gallery: eight examples, each with its report as a page and a picture of it.

An example is a folder of `examples/` with a trainable, `sweep.yaml`, `dag.py` and `flow.py`. The page
`docs/gallery.md` names all of them. `finetune` needs the environment of `make test-programs`.
"""

from __future__ import annotations

import html
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

from devtools.pictures.browser import Browser
from raysweep.pages.page import render

ROOT: Final = Path(__file__).resolve().parents[2]
REPORTS: Final = ROOT / "docs/gallery"
EXAMPLES: Final = (
    "quick",
    "program",
    "boosting",
    "population",
    "finetune",
    "serve",
    "customers",
    "flights",
)
OWN_ENVIRONMENT: Final = {"finetune": ROOT / ".venv-programs/bin"}
"""The folder of an example's commands, if it needs packages that the development environment lacks."""


def make(name: str, browser: Browser) -> None:
    """Run the example's sweep, and write its report and the pictures of it.

    Raises:
        subprocess.CalledProcessError: The sweep or the report failed; their output was shown.
    """
    bin_folder = OWN_ENVIRONMENT.get(name, Path(sys.executable).parent)
    raysweep = str(bin_folder / "raysweep")
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PATH": f"{bin_folder}:{os.environ['PATH']}"}
    report = REPORTS / f"{name}.html"
    with tempfile.TemporaryDirectory(prefix="raysweep-gallery-") as storage:
        for command in (
            [raysweep, "sweep", f"examples/{name}/sweep.yaml", "--key", "gallery", "--num-cpus", "2"],
            [raysweep, "report", f"{name}@gallery", "--output", str(report)],
        ):
            subprocess.run([*command, "--storage", storage], cwd=ROOT, env=environment, check=True)
    browser.take(report.as_uri(), f"gallery-{name}")


def redraw(name: str, browser: Browser) -> None:
    """Draw the example's report with the page parts of today, from the data in it; no sweep runs."""
    report = REPORTS / f"{name}.html"
    report.write_text(redrawn(report.read_text("utf-8")), encoding="utf-8")
    browser.take(report.as_uri(), f"gallery-{name}")


def redrawn(page: str) -> str:
    """A report's page, drawn anew from its data."""
    data = re.search(r'<script type="application/json" id="data">(.*?)</script>', page, re.DOTALL)
    title = re.search(r"<title>(.*?)</title>", page, re.DOTALL)
    assert data is not None
    assert title is not None
    document = json.loads(data[1])
    return render(html.unescape(title[1]), document, document["verdict"])
