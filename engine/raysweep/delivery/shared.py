"""The events that were read and are not yet delivered to all callbacks: read once, for all of them.

The buffer is bounded. A callback that lags behind by more reads the journal by itself from then on: it holds
up no other, and takes no more memory.
"""

from __future__ import annotations

import threading
from collections import deque
from typing import Final

from raysweep.delivery.feed import Item

MAX_ITEMS: Final = 50_000


class Behind(Exception):
    """The events that are asked for are not in the buffer any more."""


class SharedEvents:
    """One thread adds; each callback's thread takes, from its own place on."""

    def __init__(self, max_items: int = MAX_ITEMS) -> None:
        self._max = max_items
        self._items: deque[Item] = deque()
        self._dropped = 0
        """The ordinal of the newest event that is not in the buffer any more."""
        self._changed = threading.Condition()
        self._places: dict[str, int] = {}
        self.is_complete = False
        """True if nothing more comes."""

    def add(self, items: list[Item]) -> None:
        """Add events, in order."""
        with self._changed:
            self._items.extend(items)
            while len(self._items) > self._max:
                self._dropped = self._items.popleft().ordinal
            self._changed.notify_all()

    def complete(self) -> None:
        """Nothing more comes."""
        with self._changed:
            self.is_complete = True
            self._changed.notify_all()

    def take(self, name: str, after: int, most: int, wait_s: float) -> list[Item]:
        """Up to `most` events after the one of ordinal `after`; none where none came within `wait_s`.

        Raises: Behind.
        """
        with self._changed:
            self._places[name] = after
            self._let_go()
            if not self._newer(after) and not self.is_complete:
                self._changed.wait(wait_s)
            if after < self._dropped:
                self._places.pop(name, None)
                raise Behind
            if not self._newer(after):
                return []
            first = after - self._items[0].ordinal + 1
            return [self._items[each] for each in range(first, min(len(self._items), first + most))]

    def register(self, name: str, after: int) -> None:
        """A callback begins: what it has not taken stays."""
        with self._changed:
            self._places[name] = after

    def _newer(self, after: int) -> bool:
        return bool(self._items) and self._items[-1].ordinal > after

    def _let_go(self) -> None:
        """Drop what all have taken."""
        least = min(self._places.values())
        while self._items and self._items[0].ordinal <= least:
            self._items.popleft()
