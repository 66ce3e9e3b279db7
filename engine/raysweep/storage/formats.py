"""Versions of what is stored. What another version wrote in another format is refused, never guessed at."""

from __future__ import annotations

from functools import cache
from importlib.metadata import PackageNotFoundError, version
from typing import Final

OTHER_FIX: Final = "use the version of raysweep that wrote it, or start again under a new key"


@cache
def this_version() -> str:
    """The version of raysweep that is installed here, as stored documents name their writer."""
    try:
        return version("raysweep")
    except PackageNotFoundError:
        return "unknown"


def other_format(found: object, known: int, *, name: str = "format", writer: object = None) -> str:
    """Says that something stored has another format than this version reads.

    Args:
        found: The format that it names; None: it names none.
        known: The only one that this version reads.
        name: The field that names it.
        writer: The version of raysweep that wrote it, if the file names one.

    Returns: The problem, for a message that begins with the path of the object.
    """
    by = f", written by raysweep {writer}" if writer else ""
    return f"has {name} {found!r}{by}; this version, raysweep {this_version()}, reads {name} {known}"
