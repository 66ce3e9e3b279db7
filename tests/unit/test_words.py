"""`make check` finds phrases that plain English avoids, and prose that is not wrapped."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.words import (
    INSTEAD,
    MAX_CELL_WORDS,
    MAX_QUESTIONS,
    MAX_WORDS,
    QUESTIONS,
    count,
    counts,
    long_cells,
    long_lines,
    main,
    openings,
    phrases,
    questions,
)

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize(
    "planted",
    [
        "nobody reads this file",
        "the trial goes on from its checkpoint",
        "# a line whose phrase is broken: the trial goes\n    # on",
        "the searcher is told of results",
        "this option has no say here",
        "it stands in place of `gpu`",
    ],
)
def test_a_planted_sentence_is_found_with_what_to_write(planted: str) -> None:
    (found,) = phrases("docs/page.md", f"A first line.\n{planted}\n")
    assert found.line == 2
    assert found.instead.startswith("write: ")


def test_each_phrase_says_what_to_write() -> None:
    assert all(INSTEAD.values())


def test_names_of_files_and_identifiers_are_no_phrases() -> None:
    assert list(phrases("docs/page.md", "[More](guides/going-on.md), `goes_on`, ongoing on_start")) == []


def test_prose_is_wrapped_and_code_tables_and_links_are_as_long_as_they_are() -> None:
    long = "word " * 30
    page = f"{long}\n| {long} |\n```\n{long}\n```\n# {long}\n[a](https://example.org/{'x' * 120})\n"
    (found,) = long_lines("docs/page.md", page)
    assert found.line == 1


def test_a_cell_of_more_than_25_words_is_found() -> None:
    fits, long = "word " * MAX_CELL_WORDS, "word " * (MAX_CELL_WORDS + 1)
    (found,) = long_cells("docs/page.md", f"| a | b |\n|---|---|\n| {fits} | {fits} |\n| a | {long} |\n")
    assert (found.line, found.found) == (4, "a cell of 26 words")


def test_a_bar_in_code_ends_no_cell_and_blocks_of_code_are_no_tables() -> None:
    half = "word " * 13
    page = f"| `{half}|{half}` |\n```\n| {half}{half} |\n```\n| {half} | {half} |\n"
    (found,) = long_cells("docs/page.md", page)
    assert found.line == 1


def test_the_documentation_is_within_its_bound() -> None:
    assert sum(counts(ROOT).values()) <= MAX_WORDS


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("# A heading\n\nThree more words.", 5),
        ("| a | b |\n|---|---|\n| one `code` | 7.3 µs |", 6),
        ("```python\nno = words\n```\nafter", 1),
        ("[a link](https://example.org/long) and [one](page.md#part)", 4),
        ("a < b -- c → `<bytes>`", 4),
    ],
)
def test_words_are_those_that_a_person_reads(text: str, words: int) -> None:
    assert count(text) == words


def test_a_page_that_grows_fails_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    page = tmp_path / "README.md"
    page.write_text("word\n" * MAX_WORDS)
    assert main([str(tmp_path)]) == 0
    page.write_text("word\n" * (MAX_WORDS + 1))
    assert main([str(tmp_path), "--pages"]) == 1
    out = capsys.readouterr().out
    assert f"{MAX_WORDS + 1:6,} README.md" in out
    assert f"the documentation has {MAX_WORDS + 1:,} words, of at most {MAX_WORDS:,}; shorten a page" in out


def test_a_finding_fails_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("Plain.\n")
    assert main([str(tmp_path)]) == 0
    (tmp_path / "README.md").write_text("Somebody may read this.\n")
    assert main([str(tmp_path)]) == 1
    assert "README.md:1: Somebody: write:" in capsys.readouterr().out


@pytest.mark.parametrize("word", QUESTIONS)
def test_a_docstring_that_asks_is_found_wherever_it_stands(word: str) -> None:
    said = f'"""{word} it is."""'
    text = f"{said}\nX = 1\n{said}\n\n\nclass A:\n    {said}\n\n    def f(self) -> None:\n        {said}\n"
    assert list(openings(text)) == [(line, word) for line in (1, 3, 7, 10)]


@pytest.mark.parametrize(
    "text",
    [
        '"""True if it is whether or not."""',
        '"""Whatever it is."""',
        'TEXT = "What it is."',
        'print("How it is.")',
        "# Why it is.",
    ],
)
def test_other_texts_are_no_docstrings_that_ask(text: str) -> None:
    assert list(openings(text)) == []


def test_the_packages_are_within_their_bound() -> None:
    assert len(questions(ROOT)) <= MAX_QUESTIONS


def test_a_docstring_more_than_the_bound_fails_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md"):
        (tmp_path / name).write_text("Plain.\n")
    (tmp_path / "engine").mkdir()
    module = tmp_path / "engine" / "module.py"
    module.write_text('"""How it is."""\n' * MAX_QUESTIONS)
    assert main([str(tmp_path)]) == 0
    module.write_text('"""How it is."""\n' * (MAX_QUESTIONS + 1))
    assert main([str(tmp_path)]) == 1
    out = capsys.readouterr().out
    assert f"engine/module.py:{MAX_QUESTIONS + 1}: How: say the thing itself" in out
