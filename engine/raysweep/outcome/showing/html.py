"""Outcomes and trials as HTML, for notebooks. All that comes from a sweep is escaped."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from html import escape
from typing import Any, Final

from raysweep.documents.json_values import leaves
from raysweep.numeric.shown import show_number

TOP: Final = 5
"""The number of the best trials that are shown."""
_CHARS: Final = 200
_CELL: Final = "text-align:left;vertical-align:top;padding:2px 12px 2px 0"
Row = Sequence[Any]


def outcome_html(name: str, status: str, why: str, heads: Sequence[str], rows: Iterable[Row]) -> str:
    """The end of the sweep, its best trials as a table (without rows: none), and how to see more."""
    shown = list(rows)
    head = f"<div><strong>{_text(name)}</strong> {_text(status)}</div><div>{_text(why)}</div>"
    more = "<div><code>.report()</code> writes all of it to one HTML file.</div>"
    return f"<div>{head}{_table(heads, shown) if shown else ''}{more}</div>"


def trial_html(name: str, state: str, rows: Iterable[Row]) -> str:
    """A trial: names and values."""
    head = f"<div><strong>{_text(name)}</strong> {_text(state)}</div>"
    return f"<div>{head}{_table(['', 'value'], rows)}</div>"


def show_pairs(config: Mapping[str, Any]) -> str:
    """A config on one line."""
    return " ".join(f"{path}={_shown(value)}" for path, value in leaves(config))


def _table(heads: Sequence[str], rows: Iterable[Row]) -> str:
    head = "".join(f'<th style="{_CELL}">{_text(each)}</th>' for each in heads)
    body = "".join(
        "<tr>" + "".join(f'<td style="{_CELL}">{_text(cell)}</td>' for cell in row) + "</tr>" for row in rows
    )
    return f"<table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"


def _text(value: Any) -> str:
    shown = _shown(value)
    return escape(shown if len(shown) <= _CHARS else f"{shown[: _CHARS - 1]}…")


def _shown(value: Any) -> str:
    return "" if value is None else show_number(value)
