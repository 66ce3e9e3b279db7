"""Doubts of a reader of a program: a note of the sweep, each text once.

A text has no numbers and no paths of an attempt: a sweep notes what all its trials say alike only once.
"""

from __future__ import annotations

from collections.abc import Callable


class Doubts:
    """Says each doubt about one source once."""

    def __init__(self, source: str, say: Callable[[str], None] = lambda text: None) -> None:
        self.source = source
        self._say = say
        self._said: set[str] = set()

    def say(self, text: str) -> None:
        """Say it, unless it was said before."""
        if text not in self._said:
            self._said.add(text)
            self._say(f"{self.source}: {text}")
