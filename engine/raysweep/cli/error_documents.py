"""Errors for programs: with `--json`, a command that fails prints one document on standard output."""

from __future__ import annotations

import re
from typing import Any, Final

from raysweep.cli.consoles import print_json
from raysweep.errors import RaysweepError, docs_of

_WORD: Final = re.compile(r"(?<=[a-z])(?=[A-Z])")


def code_of(kind: type[BaseException]) -> str:
    """The stable name of an error: `spec_changed` of SpecChangedError; `bug`: it is not raysweep's."""
    if not issubclass(kind, RaysweepError):
        return "bug"
    own = next(each for each in kind.__mro__ if each.__module__ == "raysweep.errors")
    return _WORD.sub("_", own.__name__.removesuffix("Error")).lower()


def print_error(error: Exception, message: str, exit_code: int) -> None:
    """Print the document of an error. `message`: the line that people get."""
    print_document(
        code_of(type(error)),
        message,
        exit_code,
        **{name: getattr(error, name, None) for name in ("field", "problem", "fix", "others")},
        retryable=getattr(error, "retryable", False),
        docs=docs_of(error),
    )


def print_document(code: str, message: str, exit_code: int, **fields: Any) -> None:
    """Print `{"error": {"code": …, "message": …, "exit_code": …}}`, with those of `fields` that say more."""
    known = {name: value for name, value in fields.items() if value not in (None, "", ())}
    print_json({"error": {"code": code, "message": message, "exit_code": exit_code, **known}})
