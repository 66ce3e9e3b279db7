"""`raysweep top`: all sweeps of a storage path, live."""

from __future__ import annotations

import os
import select
import sys
import termios
import time
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final

from rich.console import Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from raysweep.cli.consoles import make_console, print_rows
from raysweep.cli.error_documents import print_document
from raysweep.cli.exit_codes import DONE, FAILED, say_error
from raysweep.cli.lookup import DEFAULT_STORAGE
from raysweep.cli.tables import Listing
from raysweep.numeric.shown import show_number
from raysweep.outcome import Standing
from raysweep.outcome.showing.formatting import show_age, show_duration
from raysweep.runs.reading.watch import StorageWatch, event_of
from raysweep.storage.objects.opening import open_store
from raysweep.terminal import TextConsole

EVERY_S: Final = 1.0
_ROOM: Final = 5
"""Lines of the terminal that are no rows: title, header, footer."""
_COLUMNS: Final = (
    "sweep", "status", "ended>", "running>", "failed>", "best>", "per minute>", "ends",
)  # fmt: skip
_COLOURS: Final = {
    "running": "cyan", "starting": "cyan", "failed": "red", "damaged": "red", "cancelled": "yellow",
    "interrupted": "yellow",
}  # fmt: skip


def show_top(storage: str | None, is_json: bool, *, once: bool) -> int:
    """Show the sweeps until `q` or Ctrl-C; once, where there is no terminal or it is asked for."""
    watch = StorageWatch(open_store(storage or DEFAULT_STORAGE))
    console = make_console()
    if is_json or once or not console.is_terminal:
        return _show_once(watch, console, is_json)
    with suppress(KeyboardInterrupt):
        _show_live(watch, console)
    return DONE


def _show_once(watch: StorageWatch, console: TextConsole, is_json: bool) -> int:
    rows = watch.look()
    if watch.problem:
        if is_json:
            print_document("storage", watch.problem, FAILED)
        return say_error(watch.problem, FAILED)
    if is_json:
        print_rows("runs", [_as_json(row) for row in rows])
        return DONE
    listing, now = Listing(_COLUMNS, ("last event",)), time.time()
    for row in rows:
        listing.add(*_cells(row, now), Text(event_of(row)))
    listing.show(console)
    return DONE


def _show_live(watch: StorageWatch, console: TextConsole) -> None:
    with _keys() as is_key, Live(console=console, screen=True, auto_refresh=False) as live:
        while True:
            live.update(draw(watch.look(), console.height, watch.problem), refresh=True)
            until = time.monotonic() + EVERY_S
            while (left_s := until - time.monotonic()) > 0:
                if is_key(left_s) == "q":
                    return


def draw(rows: Sequence[Standing], height: int, problem: str = "") -> RenderableType:
    """The table, as many rows of it as there are lines; what runs comes first."""
    now, shown = time.time(), rows[: max(1, height - _ROOM)]
    running = sum(row.is_running for row in rows)
    table = Table(box=None, pad_edge=False, header_style="bold", padding=(0, 2, 0, 0), expand=True)
    for column in _COLUMNS:
        table.add_column(
            column.rstrip(">"), justify="right" if column.endswith(">") else "left", no_wrap=True
        )
    table.add_column("last event", no_wrap=True, overflow="ellipsis", ratio=1)
    for row in shown:
        table.add_row(*_cells(row, now), Text(event_of(row)))
    more = f", {len(rows) - len(shown)} more" if len(rows) > len(shown) else ""
    head = Text(f"{len(rows)} sweeps, {running} running{more}", style="bold")
    return Group(head, table, Text(f"cannot be listed: {problem}" if problem else "q: quit", style="dim"))


def _as_json(row: Standing) -> dict[str, Any]:
    same = (
        "name",
        "status",
        "is_running",
        "metric",
        "score",
        "trial_id",
        "counts",
        "num_trials",
        "started_at",
    )
    return {
        "sweep_id": row.run_id,
        **{name: getattr(row, name) for name in same},
        "ended_at": row.ended_at,
        "ends_at": _ends_at(row),
        "per_minute": row.per_minute,
        "event": event_of(row),
        "ended": row.counts.ended,
    }


def _ends_at(row: Standing) -> float | None:
    """The time at which a limit will end one that runs: as expected, or its deadline; None: not known."""
    return row.expected_end_at if row.expected_end_at is not None else row.deadline


def _cells(row: Standing, now: float) -> tuple[str | Text, ...]:
    total = "" if row.num_trials is None else f"/{row.num_trials}"
    best = "" if row.score is None else f"{row.metric} {show_number(row.score)}"
    return (
        row.run_id,
        Text(row.status, style=_COLOURS.get(row.status, "green")),
        f"{row.counts.ended}{total}",
        str(row.counts.shown.get("running", 0)),
        str(row.counts.failed),
        best,
        "" if row.per_minute is None else f"{row.per_minute:.1f}",
        _end(row, now),
    )


def _end(row: Standing, now: float) -> str:
    if row.ended_at is not None:
        return f"{show_age(now - row.ended_at)} ago"
    if not row.is_running:
        return ""
    ends_at = _ends_at(row)
    if ends_at is not None:
        return f"in {show_duration(ends_at - now)}"
    left = None if row.num_trials is None else row.num_trials - row.counts.ended
    if left and row.per_minute:
        return f"about {show_duration(60.0 * left / row.per_minute)}"
    return ""


@contextmanager
def _keys() -> Iterator[_Keys]:
    """Reads single keys while this is open; the terminal's settings are put back."""
    try:
        descriptor = sys.stdin.fileno()
        before = termios.tcgetattr(descriptor)
    except (OSError, ValueError, termios.error):
        yield _Keys(None)
        return
    try:
        tty.setcbreak(descriptor)
        yield _Keys(descriptor)
    finally:
        termios.tcsetattr(descriptor, termios.TCSADRAIN, before)


class _Keys:
    """Waits for a key, of standard input where that is a terminal."""

    def __init__(self, descriptor: int | None) -> None:
        self._descriptor = descriptor

    def __call__(self, most_s: float) -> str:
        """The key that was pressed within so many seconds; empty: none."""
        if self._descriptor is None:
            time.sleep(most_s)
            return ""
        ready, _, _ = select.select([self._descriptor], [], [], most_s)
        if not ready:
            return ""
        data = os.read(self._descriptor, 16)
        if not data:  # closed
            self._descriptor = None
        return data[:1].decode("ascii", "ignore")
