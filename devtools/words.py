"""Finds phrases that plain English avoids, prose that is not wrapped, and long table cells; counts words.

`make check` runs it over the documentation and over each line of the packages: names, comments, docstrings
and messages. A phrase is listed with what to write instead. A docstring says the thing itself: at most
`MAX_QUESTIONS` begin with one of `QUESTIONS`. Lines of code, tables and links are as long as they need to
be; other lines of the documentation have at most 100 columns. A cell of a table has at most 25 words. The
documentation has at most `MAX_WORDS` words: those of prose, headings and table cells, without blocks of code,
the bars of tables and the targets of links.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

INSTEAD: Final = {
    r"(nobody|somebody|whoever)": "name the program, the process or the person",
    r"(go|goes|went|going|gone) on": "continue",
    r"(is|are|was|were|be|been|being) told of": "receives",
    r"(has|have|had) no say": "is not used with",
    r"stands? in (the )?place of": "replaces, or: cannot be combined with",
    r"(come|comes|came) to nothing": "has no effect",
    r"(let|lets|letting) go of": "release",
    r"in vain": "without effect",
    r"of (its|their) own accord": "by itself",
    r"is no (option|name|number|metric|text|field) of": "is not one of",
}
"""Phrases, and what to write in their place."""
PAGES: Final = ("README.md", "CHANGELOG.md", "CONTRIBUTING.md", "docs")
PACKAGES: Final = ("engine", "operators", "flows", "dags", "examples")
DOCUMENTED: Final = ("engine", "operators", "flows", "devtools")
"""The packages whose docstrings are read."""
QUESTIONS: Final = ("What", "Whether", "How", "Which", "Where", "Why")
"""Openings that ask for the thing; see `MAX_QUESTIONS`."""
MAX_QUESTIONS: Final = 0
"""The most docstrings, those of fields included, that begin with one of `QUESTIONS`. Only ever lower it."""
MAX_COLUMNS: Final = 100
MAX_CELL_WORDS: Final = 25
MAX_WORDS: Final = 46_543
"""Of all pages. Lower it when pages get shorter; a page that grows makes another one shorter."""
_PHRASES: Final = {
    re.compile(rf"\b{phrase}\b".replace(" ", r"\s+"), re.IGNORECASE): new for phrase, new in INSTEAD.items()
}
_CELL_END: Final = re.compile(r"(?<!\\)\|")
_CODE: Final = re.compile(r"`[^`]*`")
_NO_WORDS: Final = re.compile(r"(?<=\])\([^)\s]*\)|\|")
_WORD: Final = re.compile(r"\w")
_FIRST_WORD: Final = re.compile(r"\s*\w+")
_ASKS: Final = re.compile(rf"[\"']\s*(?:{'|'.join(QUESTIONS)})\b")
"""To parse only what can have one."""
_LINE_END: Final = re.compile(r"\n[ \t#>]*")


@dataclass(frozen=True, slots=True)
class Finding:
    """One line to rewrite. `path` is relative to the project."""

    path: str
    line: int
    found: str
    instead: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found}: {self.instead}"


def find(root: Path) -> list[Finding]:
    """All findings of a checkout, by file and line."""
    found: list[Finding] = []
    for path in files(root):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        found += phrases(name, text)
        if path.suffix == ".md":
            found += long_lines(name, text)
            found += long_cells(name, text)
    return found


def files(root: Path) -> Iterator[Path]:
    """The files that are looked at."""
    for name in (*PAGES, *PACKAGES):
        path = root / name
        suffix = ".py" if name in PACKAGES else ".md"
        yield from sorted(path.rglob(f"*{suffix}")) if path.is_dir() else filter(Path.is_file, [path])


def phrases(name: str, text: str) -> Iterator[Finding]:
    """Each phrase of a text, also one that is broken by a line's end."""
    for pattern, instead in _PHRASES.items():
        for match in pattern.finditer(_LINE_END.sub(lambda gap: re.sub(r"[#>]", " ", gap[0]), text)):
            found = " ".join(match[0].split())
            yield Finding(name, text.count("\n", 0, match.start()) + 1, found, f"write: {instead}")


def questions(root: Path) -> list[Finding]:
    """The docstrings of modules, classes, functions and fields that begin with one of `QUESTIONS`."""
    found: list[Finding] = []
    for path in sorted(each for name in DOCUMENTED for each in (root / name).rglob("*.py")):
        name, text = path.relative_to(root).as_posix(), path.read_text(encoding="utf-8")
        found += (Finding(name, line, word, "say the thing itself") for line, word in openings(text))
    return found


def openings(text: str) -> Iterator[tuple[int, str]]:
    """The line and first word of each docstring that begins with one of `QUESTIONS`."""
    for node in ast.walk(ast.parse(text)) if _ASKS.search(text) else ():
        match node:
            case ast.Expr(value=ast.Constant(value=str(said))):
                word = _FIRST_WORD.match(said)
                if word is not None and word[0].strip() in QUESTIONS:
                    yield node.lineno, word[0].strip()


def long_lines(name: str, text: str) -> Iterator[Finding]:
    """Lines of prose that are not wrapped."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        is_free = is_code or line.startswith(("|", "    ", "#", "!", "<"))
        # A link cannot be broken: what counts is where the last word begins.
        if not is_free and len(line) > MAX_COLUMNS and " " in line[MAX_COLUMNS:].strip():
            yield Finding(name, number, f"{len(line)} columns", f"wrap prose at {MAX_COLUMNS}")


def long_cells(name: str, text: str) -> Iterator[Finding]:
    """Cells of tables that have more words than a cell should; code in a cell counts by its words, too."""
    is_code = False
    for number, line in enumerate(text.splitlines(), 1):
        if line.lstrip().startswith("```"):
            is_code = not is_code
        if is_code or not line.startswith("|"):
            continue
        row = _CODE.sub(lambda code: code[0].replace("|", "/"), line)
        for words in (len(cell.split()) for cell in _CELL_END.split(row)):
            if words > MAX_CELL_WORDS:
                found = f"a cell of {words} words"
                yield Finding(name, number, found, f"write at most {MAX_CELL_WORDS}, or a list")


def count(text: str) -> int:
    """The words of a page that a person reads. A number is a word; a bar or a link's target is not."""
    lines, is_code = [], False
    for line in text.splitlines():
        is_fence = line.lstrip().startswith("```")
        is_code = is_code != is_fence
        if not is_code and not is_fence:
            lines.append(line)
    return sum(1 for word in _NO_WORDS.sub(" ", "\n".join(lines)).split() if _WORD.search(word))


def counts(root: Path) -> dict[str, int]:
    """The words of each page of the documentation."""
    pages = (path for path in files(root) if path.suffix == ".md")
    return {path.relative_to(root).as_posix(): count(path.read_text(encoding="utf-8")) for path in pages}


def main(argv: list[str] | None = None) -> int:
    """Print the findings and the counts; 1 if there are findings, or more than a limit allows."""
    parser = argparse.ArgumentParser(prog="python -m devtools.words", description=__doc__)
    parser.add_argument("root", nargs="?", type=Path, default=Path())
    parser.add_argument("--pages", action="store_true", help="also print the words of each page")
    args = parser.parse_args(argv)
    root = args.root.resolve()
    found, pages, asking = find(root), counts(root), questions(root)
    found += asking if len(asking) > MAX_QUESTIONS else []
    for each in found:
        print(each)  # noqa: T201
    for name, words in sorted(pages.items(), key=lambda page: page[1]) if args.pages else ():
        print(f"{words:6,} {name}")  # noqa: T201
    total = sum(pages.values())
    fix = "" if total <= MAX_WORDS else "; shorten a page (--pages lists them)"
    print(f"the documentation has {total:,} words, of at most {MAX_WORDS:,}{fix}")  # noqa: T201
    print(f"{len(asking)} docstrings begin with a question word, of at most {MAX_QUESTIONS}")  # noqa: T201
    return 1 if found or fix else 0


if __name__ == "__main__":
    sys.exit(main())
