"""Names of metrics and parameters as a tracker takes them: two of them never become one.

A name that the tracker takes as it is stays. Of those that the tracker would make alike, the later ones get a
digest of themselves at their end, and the log names them once.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b

log = logging.getLogger("raysweep")


class Names:
    """The names at one tracker; `fold` makes what it takes of a name, with `max_chars` at most."""

    def __init__(self, tracker: str, fold: Callable[[str], str], max_chars: int = 1000) -> None:
        self._tracker, self._fold, self._max_chars = tracker, fold, max_chars
        self._given: dict[str, str] = {}
        self._owners: dict[str, str] = {}

    def of(self, names: Iterable[str]) -> Mapping[str, str]:
        """The tracker's name of each; in the same company the same, in whatever order they come."""
        new = [name for name in names if name not in self._given]
        for name in sorted(new, key=lambda each: (self._fold(each) != each, each)):
            self._given[name] = self._take(name)
        return self._given

    def _take(self, name: str) -> str:
        made = folded = self._fold(name)
        if made in self._owners:
            ending = f"_{blake2b(name.encode(), digest_size=4).hexdigest()}"
            made = folded[: self._max_chars - len(ending)] + ending
            text = "callback %s: %r is written as %r: %r is the name of %r there"
            log.warning(text, self._tracker, name, made, folded, self._owners[folded])
        self._owners[made] = name
        return made
