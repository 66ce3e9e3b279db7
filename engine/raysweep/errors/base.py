"""The root of all errors, and one line of text from any exception."""

from __future__ import annotations

from typing import ClassVar, Final

DOCS: Final = "docs/errors.md"
"""The page that has a section for each class; relative to the repository, as the documentation has no address
yet."""


def message_of(error: BaseException) -> str:
    """The message of an exception; one of a user's class may raise anything when it is asked."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  it is no end of ours
        return "<exception str() failed>"


def one_line(text: str, limit: int = 600) -> str:
    """The text with runs of white space made one space, cut to `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


def docs_of(error: BaseException | type[BaseException]) -> str:
    """The section of the documentation about this error: that of its class, or of the nearest above it.

    Empty for an error that is not raysweep's.
    """
    kind = error if isinstance(error, type) else type(error)
    name = next((each.__name__ for each in kind.__mro__ if each.__module__ == "raysweep.errors"), "")
    return f"{DOCS}#{name.lower()}" if name else ""


class RaysweepError(Exception):
    """The root of all errors of raysweep."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        return one_line("; ".join(str(part) for part in self.args if part not in ("", None)))
