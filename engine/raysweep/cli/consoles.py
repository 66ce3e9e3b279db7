"""The consoles: results on standard output; with `--json`, messages for people on standard error."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any, Final

import orjson
import typer
from rich.table import Table
from rich.text import Text

from raysweep.terminal import TextConsole

PIPE_COLUMNS: Final = 2000
SCHEMA_VERSION: Final = 1
"""Of the documents of `--json`: raised when a field goes, or means something else."""
MAX_ROWS: Final = 1000
"""A document lists so many rows; `--from` shows those after them."""


def make_console(*, is_stderr: bool = False) -> TextConsole:
    """A console for people; when not on a terminal, lines are never cut or wrapped."""
    console = TextConsole(stderr=is_stderr)
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    return console


def make_table(*columns: str, widths: Mapping[int, int]) -> Table:
    """A table without lines: it can be cut and grepped. Columns that end in `>` are right-aligned.

    Those in `widths` are folded, and get so many columns at least; the others are never broken.
    """
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for number, column in enumerate(columns):
        table.add_column(
            Text(column.rstrip(">")),
            justify="right" if column.endswith(">") else "left",
            overflow="fold",
            no_wrap=number not in widths,
            min_width=widths.get(number),
        )
    return table


def fold(text: str, columns: int) -> list[str]:
    """The text in lines of so many columns at most, cut between words only; at least one line."""
    wrapped = textwrap.wrap(text, max(columns, 1), break_long_words=False, break_on_hyphens=False)
    return wrapped or [""]


def print_facts(console: TextConsole, *facts: tuple[str, str | Text]) -> None:
    """Print names and values in two columns.

    On a terminal long values are folded between words: a number, an id or a path is never broken, nor is a
    command, which is there to be copied.
    """
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        is_whole = isinstance(value, Text) or value.startswith("raysweep ")
        for number, line in enumerate([value] if is_whole else fold(str(value), console.width - width - 4)):
            head = f"  {'' if number else name:<{width}}  "
            console.print(Text.assemble((head, "dim"), line), soft_wrap=True)


def print_json(document: Mapping[str, Any]) -> None:
    """Print a document as indented JSON on standard output, with the version of its schema first."""
    whole = {"schema_version": SCHEMA_VERSION, **document}
    typer.echo(orjson.dumps(whole, option=orjson.OPT_INDENT_2).decode())


def print_encoded(document: str) -> None:
    """Print a document that is JSON text already, on one line; else as `print_json`."""
    typer.echo(f'{{"schema_version":{SCHEMA_VERSION},{document.removeprefix("{")}')


def print_rows(name: str, rows: Sequence[Mapping[str, Any]], start: int = 0) -> None:
    """Print a list: `MAX_ROWS` rows from `start` on, their number, and the option that shows more."""
    end = start + MAX_ROWS
    is_truncated = end < len(rows)
    print_json(
        {
            "total": len(rows),
            "truncated": is_truncated,
            **({"next": f"--from {end}"} if is_truncated else {}),
            name: list(rows[start:end]),
        }
    )


def clean_stdout(*, is_json: bool) -> AbstractContextManager[object]:
    """With `--json`, what Ray prints of its own (that a worker died, say) goes to standard error."""
    return redirect_stdout(sys.stderr) if is_json else nullcontext()
