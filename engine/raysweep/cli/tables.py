"""Tables that fit the terminal: ids and numbers stay whole, configs and errors are folded."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from rich.cells import cell_len
from rich.text import Text

from raysweep.cli.consoles import fold, make_table
from raysweep.terminal import TextConsole

GAP: Final = 2
MIN_LONG: Final = 24
"""A column of long texts gets at least this many cells, or a line of its own below each row."""
_INDENT: Final = 4

Cell = str | Text


class Listing:
    """Rows of a table without lines: it can be cut and grepped.

    What does not fit beside the rest goes below its row, indented and named: first the long columns, then
    short ones from the right. The first column always stays where it is.

    Args:
        short: Columns of ids, states and numbers, never broken; those that end in `>` are right-aligned.
        long: Columns of texts, folded where they are too wide.
    """

    def __init__(self, short: Sequence[str], long: Sequence[str] = ()) -> None:
        self._short = tuple(short)
        self._long = tuple(long)
        self._rows: list[tuple[Cell, ...]] = []

    def add(self, *cells: Cell) -> None:
        """Add a row: a cell for each short column, then one for each long column."""
        assert len(cells) == len(self._short) + len(self._long)
        self._rows.append(cells)

    def show(self, console: TextConsole) -> None:
        """Print it."""
        widths = [self._width(column) for column in range(len(self._short))]
        room = console.width
        wanted = {column: self._wanted(column) for column in self._long_columns()}
        if sum(widths) + sum(wanted.values()) + GAP * (len(widths) + len(wanted) - 1) <= room:
            self._print_table(console, wanted)
            return
        fitting = _fitting(widths, room)
        self._print_with_details(console, widths[:fitting], fitting)

    def _long_columns(self) -> range:
        return range(len(self._short), len(self._short) + len(self._long))

    def _width(self, column: int) -> int:
        names = (*self._short, *self._long)
        cells = (cell_len(str(row[column])) for row in self._rows)
        return max(cell_len(names[column].rstrip(">")), *cells, 0)

    def _wanted(self, column: int) -> int:
        """The least width of a long column to stand beside the others: its longest word is not broken."""
        words = (cell_len(word) for row in self._rows for word in str(row[column]).split())
        return max(min(self._width(column), MIN_LONG), *words, 0)

    def _print_table(self, console: TextConsole, wanted: Mapping[int, int]) -> None:
        table = make_table(*self._short, *self._long, widths=wanted)
        for row in self._rows:
            table.add_row(*row)
        console.print(table)

    def _print_with_details(self, console: TextConsole, widths: Sequence[int], fitting: int) -> None:
        names = (*self._short, *self._long)
        console.print(self._line([Text(name.rstrip(">")) for name in names[:fitting]], widths), style="bold")
        for row in self._rows:
            console.print(self._line([_text(cell) for cell in row[:fitting]], widths), soft_wrap=True)
            for name, cell in zip(names[fitting:], row[fitting:], strict=True):
                _print_detail(console, name.rstrip(">"), _text(cell))

    def _line(self, cells: Sequence[Text], widths: Sequence[int]) -> Text:
        line = Text()
        for number, (cell, width) in enumerate(zip(cells, widths, strict=True)):
            padding = " " * max(0, width - cell.cell_len)
            is_right = self._short[number].endswith(">")
            is_last = number == len(cells) - 1
            line.append_text(Text.assemble(padding, cell) if is_right else Text.assemble(cell, padding))
            line.append("" if is_last else " " * GAP)
        line.rstrip()
        return line


def _fitting(widths: Sequence[int], room: int) -> int:
    """The number of columns from the left that fit in the room; the first in any case."""
    taken = 0
    for count, width in enumerate(widths):
        taken += width + (GAP if count else 0)
        if taken > room:
            return max(1, count)
    return len(widths)


def _text(cell: Cell) -> Text:
    return cell if isinstance(cell, Text) else Text(cell)


def _print_detail(console: TextConsole, name: str, cell: Text) -> None:
    if not cell.plain:
        return
    head = f"{'':<{_INDENT}}{name}  "
    for number, line in enumerate(fold(cell.plain, console.width - len(head))):
        shown = Text.assemble((" " * len(head) if number else head, "dim"), (line, cell.style))
        console.print(shown, soft_wrap=True)
