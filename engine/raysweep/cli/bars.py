"""Progress of what takes over a second: a bar on a terminal, otherwise a line now and then. On stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from raysweep.cli.consoles import make_console

LINE_EVERY_S: Final = 10.0
"""Where there is no terminal: the first line comes after so long, and the next ones as far apart."""
Advance = Callable[[str, int, int], None]
"""Told what is done, how many of it are done, and how many there are; 0: not known."""


@contextmanager
def progress_bar(
    verb: str, *, console: Console | None = None, clock: Callable[[], float] = time.monotonic
) -> Iterator[Advance]:
    """Show how far something is, for as long as it takes; what is done in no time shows nothing.

    Args:
        verb: What happens: `exporting`.
        console: Where to; default: standard error.
        clock: Seconds that only grow.
    """
    console = console or make_console(is_stderr=True)
    if not console.is_terminal:
        yield _lines(verb, console, clock)
        return
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        task = shown.add_task(verb, total=None, count="")

        def advance(what: str, done: int, total: int) -> None:
            shown.update(
                task,
                description=f"{verb} {what}",
                completed=done,
                total=total or None,
                count=_count(done, total),
            )

        yield advance


def _lines(verb: str, console: Console, clock: Callable[[], float]) -> Advance:
    last = clock()

    def advance(what: str, done: int, total: int) -> None:
        nonlocal last
        if clock() - last >= LINE_EVERY_S:
            last = clock()
            console.print(f"{verb} {what}: {_count(done, total)}", markup=False, soft_wrap=True)

    return advance


def _count(done: int, total: int) -> str:
    return f"{done:,} of {total:,}" if total else f"{done:,}"
