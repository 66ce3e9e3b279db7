"""Documents as agents get them: without control characters, and cut to a size that a conversation holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from raysweep.documents.quoting import boxed

MAX_TEXT: Final = 2_000
"""Characters of one text."""
MAX_ITEMS: Final = 100
"""Items of a list or mapping that is no table of its own."""
MAX_BYTES: Final = 60_000
"""Of a whole document; rows at its end go first."""
MAX_DEPTH: Final = 60
MAX_NOTES: Final = 20
_LEAST_TEXT: Final = 50


class _TooLarge(Exception):
    """The document is larger than the bound."""


@dataclass(slots=True)
class Cut:
    """A document that was cut, and one line for each thing that was."""

    document: Any
    truncated: list[str] = field(default_factory=list)
    size: int = 0
    _seen: int = 0
    _depth: int = 0

    @classmethod
    def of(cls, document: Any, *, rows: str = "", limit: int = MAX_ITEMS) -> Cut:
        """The document, with at most `limit` of its `rows`, and within `MAX_BYTES`.

        Args:
            document: Plain data.
            rows: The field of its table; empty where it has none.
            limit: Of the rows.
        """
        longest, items, most = MAX_TEXT, MAX_ITEMS, limit
        while True:
            cut = cls(None)
            try:
                cut.document = cut._mapping(document, "", longest, items, {rows: most})
                cut.size = len(orjson.dumps(cut.document))
            except _TooLarge:
                cut.size = MAX_BYTES + 1
            if cut.size <= MAX_BYTES:
                return cut
            # Each round halves a bound, so there are few; and each ends as soon as it is too large.
            if rows and most > 1:
                most = max(1, min(most, len(document.get(rows, ()))) // 2)
            else:
                longest, items = max(1, longest // 2), max(1, items // 2)

    def _value(self, value: Any, at: str, longest: int, items: int) -> Any:
        self._count(1)
        if isinstance(value, str):
            return self._text(value, at, longest)
        if not isinstance(value, Mapping | Sequence):
            return value
        if self._depth == MAX_DEPTH:
            self._note(at, 0, len(value), "items")
            return "…"
        self._depth += 1
        if isinstance(value, Mapping):
            inner: Any = self._mapping(value, at, longest, items, {})
        else:
            inner = self._list(value, at, longest, items, items)
        self._depth -= 1
        return inner

    def _text(self, text: str, at: str, longest: int) -> str:
        clean = boxed(text[:longest])
        self._count(len(clean))
        if len(text) <= longest:
            return clean
        self._note(at, longest, len(text), "characters")
        return clean + "…"

    def _mapping(
        self, value: Mapping[str, Any], at: str, longest: int, items: int, limits: Mapping[str, int]
    ) -> dict[str, Any]:
        shown = max(longest, _LEAST_TEXT)
        # Of several names that are the same once they are cut and cleaned, one is left.
        names = {boxed(name[:shown]): name for name in list(value)[:items]}
        if len(names) < len(value):
            self._note(at, len(names), len(value), "fields")
        found = {}
        for inner, name in names.items():
            below = f"{at}.{inner}" if at else inner
            self._count(len(inner))
            if name in limits and isinstance(value[name], Sequence):
                found[inner] = self._list(value[name], below, longest, items, limits[name])
            else:
                found[inner] = self._value(value[name], below, longest, items)
        return found

    def _list(self, value: Sequence[Any], at: str, longest: int, items: int, most: int) -> list[Any]:
        if len(value) > most:
            self._note(at, most, len(value), "items")
        return [
            self._value(each, f"{at}[{place}]", longest, items) for place, each in enumerate(value[:most])
        ]

    def _count(self, characters: int) -> None:
        self._seen += characters
        if self._seen > MAX_BYTES:
            raise _TooLarge

    def _note(self, at: str, shown: int, total: int, unit: str) -> None:
        if len(self.truncated) < MAX_NOTES:
            place = at[:200] or "the document"
            self.truncated.append(f"{place}: {shown:,} of {total:,} {unit}")
