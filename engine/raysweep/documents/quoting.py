"""Text of others inside Markdown, inside a shell's line, on a terminal: it stays text there."""

from __future__ import annotations

import html
import re
import shlex
from collections.abc import Iterable
from typing import Final

_MARKUP: Final = re.compile(r"[\\`*_~{}\[\]<>&|]|:(?=//)|(?<=www)\.", re.IGNORECASE)
_START: Final = re.compile(r"^[#+=-]|^\d(?=\d*[.)])")
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069]")
_OF_A_TERMINAL: Final = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")


def markdown(text: str) -> str:
    """A part of a line in which no character becomes mark-up, an image, a link, or the border of a cell."""
    line = " ".join(_CONTROL.sub(" ", text).split())
    return _MARKUP.sub(_entity, line)


def paragraph(text: str) -> str:
    """As `markdown`, of a text with which a line begins: neither a heading nor an item of a list."""
    return _START.sub(_entity, markdown(text))


def plain(page: str) -> str:
    """A page with what `markdown` made as a person reads it: for a terminal, which shows text alone."""
    return html.unescape(page)


def boxed(text: str) -> str:
    """The text with a box for each character by which a terminal is told something; lines and tabs stay."""
    return _OF_A_TERMINAL.sub("\ufffd", text)


def _entity(found: re.Match[str]) -> str:
    return f"&#{ord(found[0])};"


def code_block(text: str) -> str:
    """Lines of code; no text in them ends the block."""
    longest = max((len(run) for run in re.findall("`+", text)), default=0)
    fence = "`" * max(3, longest + 1)
    return f"{fence}\n{text}\n{fence}"


def shell_line(words: Iterable[str]) -> str:
    """These words as one line for a shell; with control characters in them, for bash and zsh."""
    return " ".join(_ansi(word) if _CONTROL.search(word) else shlex.quote(word) for word in words)


def _ansi(word: str) -> str:
    escaped = word.replace("\\", "\\\\").replace("'", "\\'")
    shown = _CONTROL.sub(lambda found: "".join(f"\\x{byte:02x}" for byte in found[0].encode()), escaped)
    return f"$'{shown}'"
