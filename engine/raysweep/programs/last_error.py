"""The error that ended a program, as the end of its stderr shows it: not one that it caught and continued.

Of a traceback, the type and message of the exception count, and those that it was raised `from`; without
one, the last lines. Each rank of PyTorch marks what it did not catch: any can be why the others failed.
"""

from __future__ import annotations

import re
from typing import Final

TRACEBACK: Final = "Traceback (most recent call last):"
_CAUSE: Final = "The above exception was the direct cause of the following exception:"
_RAISED: Final = re.compile(r"[A-Za-z_][\w.]*(?:Error|Exception|Interrupt|Exit)\b(?::|$)")
_RANK: Final = re.compile(r"(\[rank\d+\]):\s?(.*)")
_WARNING: Final = re.compile(r"\bwarn\b|warning\b", re.IGNORECASE)
_TERMINATE: Final = "terminate called"
_LAST_LINES: Final = 8


def text_of_last_error(stderr: str) -> str:
    """The words of the error that ended a program; of several ranks, of each."""
    ranks: dict[str, list[str]] = {}
    for line in stderr.splitlines():
        found = _RANK.match(line)
        ranks.setdefault(found[1] if found else "", []).append(found[2] if found else line)
    return "\n".join(_last_error(lines) for lines in ranks.values())


def _last_error(lines: list[str]) -> str:
    at = _last(lines, TRACEBACK, len(lines))
    if at is None:
        return "\n".join(_last_lines(lines))
    found = _exception(lines, at, len(lines))
    # A command-line program may show a later error without its traceback.
    later = next((i for i in range(len(found) - 1, 0, -1) if _RAISED.match(found[i])), 0)
    return "\n".join([*_causes(lines, at), *found[later:]])


def _causes(lines: list[str], at: int) -> list[str]:
    """Those that the exception of a traceback was raised from."""
    found: list[str] = []
    while (end := _last(lines, _CAUSE, at)) is not None and not any(map(str.strip, lines[end + 1 : at])):
        before = _last(lines, TRACEBACK, end)
        if before is None:
            break
        found += _exception(lines, before, end)
        at = before
    return found


def _exception(lines: list[str], at: int, end: int) -> list[str]:
    """The lines behind the frames of a traceback; all of them where it is a group's, which is indented."""
    frames = range(at + 1, end)
    start = next((i for i in frames if lines[i].strip() and not lines[i][0].isspace()), at + 1)
    return lines[start:end]


def _last_lines(lines: list[str]) -> list[str]:
    said = [line for line in lines if line.strip() and not _WARNING.search(line)]
    raised = [i for i, line in enumerate(said) if _RAISED.match(line) or line.startswith(_TERMINATE)]
    return said[raised[-1] :] if raised else said[-_LAST_LINES:]


def _last(lines: list[str], text: str, end: int) -> int | None:
    return next((i for i in range(end - 1, -1, -1) if text in lines[i]), None)
