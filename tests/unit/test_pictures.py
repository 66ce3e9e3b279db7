"""`make check` finds pictures of the documentation that are stale, missing, unused or made by hand."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from devtools.pictures import gallery, stale
from raysweep.pages.page import render

STYLES = "engine/raysweep/pages/static/page.css"
ARTIFACTS = "flows/raysweep_prefect/artifacts.py"
PICTURES = ("report-390-light.png", "prefect-ended-light.png", "prefect-approval-light.png")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout with two pictures, a report of the gallery, and a page that shows them."""
    for name, text in {
        STYLES: "main {}",
        ARTIFACTS: "TABLE = 1",
        "engine/raysweep/version.py": '__version__ = "0.1.0"',
        "docs/gallery/quick.html": "<html>",
        "README.md": "\n".join(f"![it](docs/images/{name})" for name in PICTURES),
        **{f"docs/images/{name}": "picture" for name in PICTURES},
    }.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    stale.record((*PICTURES, "gallery-quick.html"), tmp_path)
    return tmp_path


def test_pictures_of_these_parts_are_fresh(root: Path) -> None:
    assert stale.find_problems(root) == []


def test_of_other_parts_those_are_stale_that_show_them(root: Path) -> None:
    (root / STYLES).write_text("main {color: red}")
    found = stale.find_problems(root)
    assert [line.partition(":")[0] for line in found] == [
        "docs/gallery/quick.html",
        "docs/images/report-390-light.png",
    ]
    fix = "the page parts or the version have changed since; run make pictures PICTURES="
    assert [line.partition(": ")[2] for line in found] == [f"{fix}gallery", f"{fix}report"]
    stale.record(("gallery-quick.html", "report-390-light.png"), root)
    assert stale.find_problems(root) == []
    (root / ARTIFACTS).write_text("TABLE = 2")
    ended, approval = stale.find_problems(root)
    assert approval.startswith("docs/images/prefect-approval-light.png: the page parts")
    assert ended.startswith("docs/images/prefect-ended-light.png: the page parts")


def test_a_report_is_drawn_anew_from_the_data_in_it() -> None:
    said = "The sweep is <complete>."
    page = render("a & b: completed", {"verdict": said, "label": "</script>"}, said)
    older = page.replace("const rs", "const older").replace("<style>", "<style>main {}")
    assert gallery.redrawn(older) == page != older


def add_by_hand(root: Path) -> None:
    (root / "docs/images/mine.png").write_text("drawn")


def remove(root: Path) -> None:
    (root / "docs/images/report-390-light.png").unlink()


def show_nowhere(root: Path) -> None:
    (root / "README.md").write_text("")


@pytest.mark.parametrize(
    ("change", "problems"),
    [
        (
            add_by_hand,
            ["mine.png: no script made it; run make pictures", "mine.png: no page shows it; remove it"],
        ),
        (remove, ["report-390-light.png: missing; run make pictures PICTURES=report"]),
        (show_nowhere, [f"{name}: no page shows it; remove it" for name in sorted(PICTURES)]),
    ],
)
def test_what_is_no_picture_of_a_script_and_a_page(
    change: Callable[[Path], None], problems: list[str], root: Path
) -> None:
    change(root)
    assert stale.find_problems(root) == problems


def test_make_check_fails_on_a_stale_picture_and_names_the_command(root: Path) -> None:
    (root / "docs/gallery/program.html").write_text("<html>")
    stale.record(("gallery-program.html",), root)
    (root / "engine/raysweep/version.py").write_text('__version__ = "0.2.0"')
    script = "import sys; from pathlib import Path; from devtools.pictures import __main__, stale; "
    script += (
        f"stale.find_problems.__defaults__ = (Path({str(root)!r}),); sys.exit(__main__.main(['--check']))"
    )
    ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=False)
    assert ran.returncode == 1
    assert ran.stderr.count("run make pictures PICTURES=") == 4
    assert "docs/gallery/program.html and 1 more: " in ran.stderr
    assert "$(BIN)/python -m devtools.pictures --check" in (stale.ROOT / "Makefile").read_text()
