"""`make check` finds sections of the documentation that its search does not find any more."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from devtools.site_search import FINDS, FIRST, found, main, missing

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = [{"title": words, "text": "", "location": place} for words, place in FINDS.items()]


def test_titles_come_before_texts_and_all_words_must_be_there() -> None:
    sections = [
        {"title": "Runs", "text": "memory of a GPU", "location": "a/"},
        {"title": "GPU memory", "text": "", "location": "b/"},
        {"title": "GPU", "text": "", "location": "c/"},
    ]
    assert found("gpu memory", sections) == ["b/", "a/"]


def test_a_section_that_is_gone_is_named() -> None:
    assert missing(SECTIONS) == []
    (line,) = missing([each for each in SECTIONS if "gpu" not in each["location"]])
    assert line.startswith("search: 'GPU out of memory' does not find guides/troubleshooting/")


def test_a_section_behind_others_is_not_found() -> None:
    others = [{"title": "champion champion", "text": "champion", "location": f"{n}/"} for n in range(FIRST)]
    (line,) = missing([*others, *SECTIONS])
    assert "'champion'" in line


def test_what_is_not_found_fails_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    index = tmp_path / "search_index.json"
    index.write_text(json.dumps({"docs": SECTIONS}))
    assert main(index) == 0
    index.write_text(json.dumps({"docs": SECTIONS[1:]}))
    assert main(index) == 1
    assert "search: 'resume'" in capsys.readouterr().out
    assert (
        "mkdocs build --strict --quiet\n\t$(BIN)/python -m devtools.site_search"
        in (ROOT / "Makefile").read_text()
    )
