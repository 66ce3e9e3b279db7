"""Progress of what takes over a second: a bar on a terminal, otherwise a line now and then. On stderr."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

from rich.progress import BarColumn, Progress, ProgressColumn, TaskID, TextColumn, TimeRemainingColumn

from raysweep.cli.consoles import make_console
from raysweep.outcome.showing.formatting import show_bytes
from raysweep.terminal import TextConsole

LINE_EVERY_S: Final = 10.0
"""The seconds before the first line, and between the next ones, where there is no terminal."""
Advance = Callable[[str, int, int], None]
"""Told what is done, how much of it is done, and how much there is; 0: not known. Any thread may call it."""


@contextmanager
def progress_bar(
    *,
    is_bytes: bool = False,
    console: TextConsole | None = None,
    clock: Callable[[], float] = time.monotonic,
) -> Iterator[Advance]:
    """Show how far something is, for as long as it takes. On a terminal the bar vanishes at the end.

    Args:
        is_bytes: What is counted is bytes.
        console: Where to; default: standard error.
        clock: Seconds that only grow.
    """
    console = console or make_console(is_stderr=True)
    show = _show_bytes if is_bytes else _show_count
    if not console.is_terminal:
        yield _lines(console, show, clock)
        return
    columns: tuple[ProgressColumn, ...] = (
        TextColumn("{task.description}"),
        BarColumn(),
        TextColumn("{task.fields[count]}"),
        TimeRemainingColumn(),
    )
    with Progress(*columns, console=console, transient=True) as shown:
        tasks: dict[str, TaskID] = {}

        def advance(what: str, done: int, total: int) -> None:
            if what not in tasks:
                # One at a time; each has a speed of its own.
                for each in tasks.values():
                    shown.remove_task(each)
                tasks.clear()
                tasks[what] = shown.add_task(what, total=total or None, count="")
            shown.update(tasks[what], completed=done, total=total or None, count=show(done, total))

        yield advance


def _lines(console: TextConsole, show: Callable[[int, int], str], clock: Callable[[], float]) -> Advance:
    last = clock()

    def advance(what: str, done: int, total: int) -> None:
        nonlocal last
        if clock() - last >= LINE_EVERY_S:
            last = clock()
            console.print(f"{what}: {show(done, total)}", soft_wrap=True)

    return advance


def _show_count(done: int, total: int) -> str:
    return f"{done:,} of {total:,}" if total else f"{done:,}"


def _show_bytes(done: int, total: int) -> str:
    return f"{show_bytes(done)} of {show_bytes(total)}" if total else show_bytes(done)
