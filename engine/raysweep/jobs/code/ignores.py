"""The files of a folder that are left out of a package: by names never meant, and by ignore files.

Patterns are those of gitignore(5), as Ray takes them: a path is left out where, in any one list, the last
pattern that matches it does not begin with `!`. What lies in a folder that is left out cannot be taken back.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Final

from raysweep.jobs.code.secret_names import is_secret

IGNORE_FILES: Final = (".gitignore", ".rayignore")

TOOLS: Final = (
    *(".git", ".hg", ".svn", "__pycache__", "*.pyc", ".venv", ".tox", ".nox", "node_modules"),
    *(".mypy_cache", ".ruff_cache", ".pytest_cache", ".hypothesis", ".ipynb_checkpoints", ".ds_store"),
)
NOTHING: Final = "(?!)"
"""An expression that nothing matches."""
_CLASS: Final = re.compile(r"\[:([^:\]]*):\]")
_CLASSES: Final = {
    "alnum": "[a-zA-Z0-9]", "alpha": "[a-zA-Z]", "blank": r"[ \t]", "cntrl": r"[\x00-\x1f\x7f]",
    "digit": "[0-9]", "graph": "[!-~]", "lower": "[a-z]", "print": "[ -~]", "punct": r"[!-/:-@\[-`{-~]",
    "space": r"[ \t-\r]", "upper": "[A-Z]", "xdigit": "[0-9a-fA-F]",
}  # fmt: skip

TOOL_REASON: Final = "made by a tool"
SECRET_REASON: Final = "may hold secrets"


def default_reason(name: str, *, folder: str = "", is_folder: bool = False) -> str:
    """The reason for leaving such a file or folder, in a folder of that name, out unasked; else ""."""
    if is_secret(name, folder=folder, is_folder=is_folder):
        return SECRET_REASON
    return TOOL_REASON if any(fnmatchcase(name.lower(), pattern) for pattern in TOOLS) else ""


@dataclass(frozen=True, slots=True)
class Patterns:
    """One list of patterns, for paths relative to the folder that it belongs to."""

    rules: tuple[tuple[re.Pattern[str], bool, bool], ...]
    """Expression, whether it takes back, whether it is about folders only."""

    @classmethod
    def of(cls, lines: Iterable[str]) -> Patterns:
        """From lines as they stand in a .gitignore."""
        rules = []
        for line in lines:
            text = line.rstrip("\r\n")
            text = text if text.endswith("\\ ") else text.rstrip()
            if not text or text.startswith("#"):
                continue
            takes_back = text.startswith("!")
            text = text[1:] if takes_back else text
            is_folder = text.endswith("/")
            text = text.rstrip("/")
            if text:
                rules.append((re.compile(_expression(text)), takes_back, is_folder))
        return cls(tuple(rules))

    def match(self, path: str, *, is_folder: bool) -> bool:
        """True if the path, `/`-separated, is left out."""
        is_out = False
        for expression, takes_back, for_folders in self.rules:
            if (is_folder or not for_folders) and expression.fullmatch(path):
                is_out = not takes_back
        return is_out


def _expression(pattern: str) -> str:
    """The regular expression of one pattern, over whole relative paths."""
    is_anchored = "/" in pattern
    parts = pattern.removeprefix("/").split("/")
    pieces = [] if is_anchored else ["(?:.*/)?"]
    for number, part in enumerate(parts):
        is_last = number == len(parts) - 1
        if part == "**":
            pieces.append(".+" if is_last else "(?:.*/)?")
        else:
            pieces.append(_segment(part) + ("" if is_last else "/"))
    return "".join(pieces)


def _segment(part: str) -> str:
    out: list[str] = []
    at = 0
    while at < len(part):
        letter = part[at]
        at += 1
        if letter == "*":
            out.append("[^/]*")
        elif letter == "?":
            out.append("[^/]")
        elif letter == "[":
            found, at = _set(part, at)
            out.append(found)
        elif letter == "\\" and at == len(part):
            return NOTHING
        else:
            at += letter == "\\"
            out.append(re.escape(part[at - 1]))
    return "".join(out)


def _set(part: str, at: int) -> tuple[str, int]:
    """The expression of a set whose `[` is before `at`, and where it ends.

    As git's wildmatch.c reads it: a set without an end makes a pattern that matches nothing, a range that
    runs backwards is its first letter.
    """
    negated = part[at : at + 1] in ("!", "^")
    at += negated
    pieces: list[str] = []
    before = ""
    while at < len(part) and (part[at] != "]" or not (pieces or before)):
        is_range = part[at] == "-" and before and part[at + 1 : at + 2] not in ("", "]")
        at += bool(is_range)
        if not is_range and (name := _CLASS.match(part, at)):
            if name[1] not in _CLASSES:
                return NOTHING, len(part)
            pieces.append(_CLASSES[name[1]])
            at, before = name.end(), ""
            continue
        at += part[at] == "\\"
        if at >= len(part):
            break
        if not is_range:
            pieces.append(re.escape(part[at]))
            before = part[at]
        elif before <= part[at]:
            pieces.append(f"[{re.escape(before)}-{re.escape(part[at])}]")
        before = "" if is_range else before
        at += 1
    if at >= len(part):
        return NOTHING, len(part)
    any_of = "|".join(pieces)
    return (f"(?!/|{any_of})." if negated else f"(?!/)(?:{any_of})"), at + 1
