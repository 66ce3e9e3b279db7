"""The root of all errors, and one line of text from any exception."""

from __future__ import annotations

from typing import ClassVar


def message_of(error: BaseException) -> str:
    """What an exception says; one of a user's class may raise anything when it is asked."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  it is no end of ours
        return "<exception str() failed>"


def one_line(text: str, limit: int = 600) -> str:
    """The text with runs of white space made one space, cut to `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


class RaysweepError(Exception):
    """The root of all errors of raysweep."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        return one_line("; ".join(str(part) for part in self.args if part not in ("", None)))
