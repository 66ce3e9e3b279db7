"""The tour of a third night in `docs/guides/nightly.md`, from `raysweep --help` to its answers.

After a change that is meant, RAYSWEEP_GOLDEN=write writes the transcript: look at the diff.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.unit.cli.nights import Nights

PAGE: Final = Path(__file__).parents[3] / "docs" / "guides" / "nightly.md"
BEGIN: Final = "<!-- third night: written by tests/unit/cli/test_tour.py -->\n"
END: Final = "<!-- end -->\n"
STYLE: Final = re.compile(r"\x1b\[[0-9;]*m")
SHOWN: Final = {"--help": ("Look:", "  status", "  nights", "  best", "  trials")}
"""Of a long help, the lines that begin so."""


def test_the_page_shows_the_tour_of_a_third_night(
    cli: Callable[..., Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    nights = Nights(tmp_path / "nights")
    nights.add("2026-11-23", days_ago=3, promoted=True)
    nights.add("2026-11-24", days_ago=2, promoted=False)
    nights.add("2026-11-25", days_ago=1, promoted=False, trials=9, trial_s=900.0)
    for name in ("FORCE_COLOR", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in {"TTY_COMPATIBLE": "1", "TERM": "xterm-256color", "COLUMNS": "100"}.items():
        monkeypatch.setenv(name, value)
    storage = f" --storage {nights.url}"
    text, words = "", ["--help"]
    for _ in range(4):
        ran = cli(*words, *([] if "--help" in words else storage.split()))
        assert ran.code == 0
        lines = STYLE.sub("", ran.out).replace(storage, "").splitlines()
        shown = [
            line.rstrip() for line in lines if line.strip() and line.startswith(SHOWN.get(words[0], ("",)))
        ]
        text += "\n".join([f"$ raysweep {' '.join(words)}", *shown, ""]) + "\n"
        words = _next(words, text)
    page = PAGE.read_text(encoding="utf-8")
    before, _, rest = page.partition(BEGIN)
    transcript, _, after = rest.partition(END)
    made = f"```\n{text.rstrip()}\n```\n"
    assert made.count("\n") <= 60
    if os.environ.get("RAYSWEEP_GOLDEN") == "write":
        PAGE.write_text(f"{before}{BEGIN}{made}{END}{after}", encoding="utf-8")
        transcript = made
    assert made == transcript


def _next(words: list[str], seen: str) -> list[str]:
    """The command that the output of the one before names."""
    if words[0] == "--help":
        assert re.search(r"^  nights +Show the nights of a name", seen, re.MULTILINE)
        return ["nights", "churn"]
    wanted = "longer" if words[0] == "nights" else "next"
    return re.findall(rf"{wanted} +raysweep (.*)", seen)[-1].split()
