"""Where output goes: results on standard output; with `--json`, everything for people on standard error."""

from __future__ import annotations

import sys
from contextlib import AbstractContextManager, nullcontext, redirect_stdout
from typing import Any

import orjson
import typer
from rich.console import Console
from rich.table import Table
from rich.text import Text

PIPE_COLUMNS = 2000


def make_console(*, is_stderr: bool = False) -> Console:
    """A console for people; when not on a terminal, lines are never cut or wrapped."""
    console = Console(stderr=is_stderr, highlight=False)
    if not console.is_terminal:
        console.width = PIPE_COLUMNS
    return console


def make_table(*columns: str) -> Table:
    """A table without lines: it can be cut and grepped. Columns that end in `>` are right-aligned."""
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0))
    for column in columns:
        is_right = column.endswith(">")
        table.add_column(column.rstrip(">"), justify="right" if is_right else "left", overflow="fold")
    return table


def print_facts(console: Console, *facts: tuple[str, str | Text]) -> None:
    """Print names and values in two columns."""
    width = max(len(name) for name, _ in facts)
    for name, value in facts:
        console.print(Text.assemble((f"  {name:<{width}}  ", "dim"), value), soft_wrap=True)


def print_json(value: Any) -> None:
    """Print plain data as indented JSON on standard output."""
    typer.echo(orjson.dumps(value, option=orjson.OPT_INDENT_2).decode())


def clean_stdout(*, is_json: bool) -> AbstractContextManager[object]:
    """With `--json`, what Ray prints of its own (that a worker died, say) goes to standard error."""
    return redirect_stdout(sys.stderr) if is_json else nullcontext()
