"""The consoles: results on standard output; with `--json`, messages for people on standard error."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Mapping
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any

import orjson
import typer
from rich.table import Table
from rich.text import Text

from raysweep.terminal import TextConsole

PIPE_COLUMNS = 2000


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


def print_json(value: Any) -> None:
    """Print plain data as indented JSON on standard output."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def clean_stdout(*, is_json: bool) -> AbstractContextManager[object]:
    """With `--json`, what Ray prints of its own (that a worker died, say) goes to standard error."""
    return redirect_stdout(sys.stderr) if is_json else nullcontext()
