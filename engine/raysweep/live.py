"""A sweep to look at while it runs: a live table on a terminal, a plain line now and then elsewhere.

with LiveTable() as table:
    run_sweep(spec, on_progress=table)
"""

from __future__ import annotations

import logging
import math
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from types import TracebackType
from typing import TYPE_CHECKING, Final, Self

from rich.console import Group, RenderableType
from rich.live import Live
from rich.progress_bar import ProgressBar
from rich.table import Table
from rich.text import Text

from raysweep.numeric.shown import show_number
from raysweep.outcome import BestTrial, RunningTrial, SweepOutcome, SweepProgress
from raysweep.outcome.ranking import is_better
from raysweep.outcome.showing.formatting import (
    is_notebook,
    show_best,
    show_conclusion,
    show_config,
    show_counts,
    show_duration,
    show_expected,
    show_progress,
)
from raysweep.terminal import TextConsole

if TYPE_CHECKING:
    from raysweep.training import TrainProgress

LINE_EVERY_S: Final = 60.0
BEST_EVERY_S: Final = 5.0
ROWS: Final = 12
BAR_COLUMNS: Final = 60
NOTES: Final = 3
_COLOURS: Final = {"completed": "green", "target": "green", "failed": "red", "cancelled": "yellow"}


# -- a sweep ------------------------------------------------------------------------------------------


class LiveTable:
    """Shows the progress of one sweep; give it to `run_sweep` as `on_progress`.

    On a terminal a table that is redrawn in place and vanishes at the end. Elsewhere plain lines: one at the
    start, one a minute, one for a new best (every 5 s at most), one at the end. Any thread may call it.

    Args:
        console: Where to; default: standard output.
        name: The sweep's, for what is shown before its first progress.
        clock: Seconds that only grow.
    """

    def __init__(
        self,
        console: TextConsole | None = None,
        *,
        name: str = "",
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.console = console or TextConsole()
        self._name = name
        self._clock = clock
        self._stage = "starting"
        self._began_at = clock()
        self._lock = threading.Lock()
        self._progress: SweepProgress | None = None
        self._notes: list[str] = []
        self._line_at = self._best_at = -math.inf
        self._shown_best: BestTrial | None = None
        self._has_ended = self._has_ahead = False
        self._face = _make_face(self.console, self._draw)

    def __enter__(self) -> Self:
        self._began_at = self._clock()
        self._face.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._face.__exit__(kind, error, traceback)

    def __call__(self, progress: SweepProgress) -> None:
        """Show this from now on."""
        with self._lock:
            is_first = self._progress is None
            self._progress = progress
            if is_first and progress.holder.pid != os.getpid():
                # It is followed: what counts is how long it has run, not how long it has been looked at.
                self._began_at = self._clock() - max(0.0, progress.at - progress.started_at)
            new = [note for note in progress.notes if note not in self._notes]
            self._notes += new
            if isinstance(self._face, _Lines):
                self._print_lines(self._face, progress, is_first, new)

    def stage(self, text: str) -> None:
        """Show the work that is done before there is any progress, such as `starting Ray`."""
        with self._lock:
            self._stage = text
            if isinstance(self._face, _Lines) and self._progress is None:
                self._face.say(f"{self._head(self._name)} {text}")

    def note(self, text: str) -> None:
        """Show a line that is no part of the progress, such as a warning."""
        with self._lock:
            self._face.say(Text.assemble(("note: ", "yellow"), text))

    def conclude(self, outcome: SweepOutcome) -> None:
        """Say how the sweep ended, what failed first, and which command shows more."""
        with self._lock:
            said = show_conclusion(outcome)
            if self._has_ended:  # its first line was shown with the last progress
                said = said[1:]
            else:
                said[0] = f"{self._head(outcome.name)} {said[0]}"
            for line in said:
                self._face.say(line)

    def _head(self, name: str) -> str:
        return f"[{name} {show_duration(self._clock() - self._began_at)}]".replace("[ ", "[")

    # -- lines

    def _print_lines(self, face: _Lines, progress: SweepProgress, is_first: bool, notes: list[str]) -> None:
        now = self._clock()
        head = self._head(progress.name)
        if is_first:
            face.say(f"{head} {_begin(progress)}")
            self._line_at = now
            self._shown_best = progress.best
        for note in notes:
            face.say(f"{head} note: {note}")
        if not progress.is_at_work:
            if not self._has_ended:
                face.say(f"{head} {progress.status}: {show_progress(progress)}")
            self._has_ended = True
            return
        best = progress.best
        if now - self._line_at >= LINE_EVERY_S:
            self._line_at = now
            self._shown_best = best if _beats(progress, self._shown_best) else self._shown_best
            face.say(f"{head} {progress.status}: {show_progress(progress)}")
        elif _beats(progress, self._shown_best) and now - self._best_at >= BEST_EVERY_S:
            self._best_at, self._shown_best = now, best
            face.say(f"{head} {show_best(progress)}")
        elif progress.ahead is not None and not self._has_ahead:
            self._has_ahead = True  # once: which one is ahead changes to and fro
            face.say(f"{head} {show_best(progress)}")

    # -- screen

    def _draw(self) -> RenderableType:
        elapsed_s = self._clock() - self._began_at
        if self._progress is None:
            head = f"{self._name}  " if self._name else ""
            return _waiting(Text(f"{head}{self._stage}  {show_duration(elapsed_s)}", style="dim"))
        return draw_progress(self._progress, elapsed_s, notes=self._notes[-NOTES:])


def _waiting(text: Text) -> Group:
    """Ray tells nothing while it starts: a bar that moves, below a line that counts the seconds."""
    return Group(text, ProgressBar(total=None, width=BAR_COLUMNS, pulse=True))


def _beats(progress: SweepProgress, shown: BestTrial | None) -> bool:
    """True if there is a better best than the one shown: not where trials that had ended run again."""
    best = progress.best
    return best is not None and is_better(best.score, shown.score if shown else None, progress.mode)


def _begin(progress: SweepProgress) -> str:
    total = "" if progress.num_trials is None else f", {progress.num_trials} trials"
    if progress.holder.pid != os.getpid():
        return f"following {progress.sweep_id}{total}, run by {progress.holder}"
    again = f" again (controller {progress.generation})" if progress.generation > 1 else ""
    return f"started {progress.sweep_id}{again}{total}"


def draw_progress(
    progress: SweepProgress, elapsed_s: float, *, notes: Sequence[str] = (), now: float | None = None
) -> RenderableType:
    """A progress as a block for a terminal: counts, best, running trials, notes. `now` is in UTC seconds."""
    now = time.time() if now is None else now
    colour = _COLOURS.get(progress.status, "cyan")
    head = Text.assemble(
        (progress.sweep_id, "bold"), "  ", (progress.status, colour), "  ", show_duration(elapsed_s)
    )
    if progress.generation > 1:
        head.append(f"  controller {progress.generation}", "dim")
    if progress.estimate is not None and progress.is_at_work:
        head.append(f"  {show_expected(progress.estimate, now)}", "cyan")
    if progress.deadline is not None:
        head.append(f"  deadline in {show_duration(progress.deadline - now)}", "yellow")
    rows: list[RenderableType] = [head]
    if progress.num_trials or progress.expected_end_at is not None or progress.estimate is not None:
        rows.append(_bar(progress.share))
    rows.append(Text(show_counts(progress.counts, progress.num_trials)))
    rows.append(Text(show_best(progress), style="bold green" if progress.best else "dim"))
    if progress.opening and progress.is_at_work:
        rows.append(Text(_opening(progress), style="dim"))
    if progress.shared and progress.is_at_work:
        rows.append(Text(f"share: {progress.shared}", style="dim"))
    rows += [Text(line, style="yellow") for line in progress.slow]
    if progress.running:
        rows.append(_running_table(progress, now))
    rows += [Text.assemble(("note: ", "yellow"), note) for note in notes]
    return Group(*rows)


def _opening(progress: SweepProgress) -> str:
    workers = "1 worker starts" if progress.opening == 1 else f"{progress.opening} workers start"
    return f"{workers}: waiting for a place, then importing the trainable; {progress.slots} ready"


def _bar(share: float) -> Text:
    full = int(BAR_COLUMNS * share)
    return Text.assemble(("━" * full, "green"), ("━" * (BAR_COLUMNS - full), "grey35"))


def _running_table(progress: SweepProgress, now: float) -> Table:
    table = Table(box=None, pad_edge=False, header_style="dim")
    table.add_column("trial", no_wrap=True)
    for name in ("reports", progress.metric, "time"):
        table.add_column(name, justify="right", no_wrap=True)
    # The one column that may shrink; its cells are cut, not wrapped.
    table.add_column("config")
    for trial in progress.running[:ROWS]:
        table.add_row(*_running_row(trial, now))
    if len(progress.running) > ROWS:
        table.add_row("…", "", "", "", f"and {len(progress.running) - ROWS} more")
    return table


def _running_row(trial: RunningTrial, now: float) -> tuple[str | Text, ...]:
    return (
        trial.trial_id,
        str(trial.iteration or ""),
        "" if trial.score is None else show_number(trial.score),
        "" if trial.started_at is None else show_duration(now - trial.started_at),
        Text(show_config(trial.config), no_wrap=True, overflow="ellipsis"),
    )


# -- a training run -----------------------------------------------------------------------------------


class LiveTraining:
    """Shows the progress of one training run; give it to `run_training` as `on_progress`.

    On a terminal one line that changes; elsewhere a plain line for the first report and one a minute.
    """

    def __init__(
        self, name: str, console: TextConsole | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self.name = name
        self.console = console or TextConsole()
        self._clock = clock
        self._began_at = clock()
        self._line_at = -math.inf
        self._progress: TrainProgress | None = None
        self._face = _make_face(self.console, self._draw)

    def __enter__(self) -> Self:
        self._began_at = self._clock()
        self._face.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._face.__exit__(kind, error, traceback)

    def __call__(self, progress: TrainProgress) -> None:
        """Show this from now on."""
        self._progress = progress
        now = self._clock()
        if isinstance(self._face, _Lines) and now - self._line_at >= LINE_EVERY_S:
            self._line_at = now
            self._face.say(self._text())

    def note(self, text: str) -> None:
        """Show a line that is no part of the progress, such as a warning."""
        self._face.say(Text.assemble(("note: ", "yellow"), text))

    def _text(self) -> str:
        head = f"[{self.name} {show_duration(self._clock() - self._began_at)}]"
        if self._progress is None:
            return f"{head} starting Ray Train"
        reports = self._progress.reports
        noun = "report" if reports == 1 else "reports"
        return f"{head} {reports} {noun}; {show_config(self._progress.metrics)}"

    def _draw(self) -> RenderableType:
        text = Text(self._text(), no_wrap=True, overflow="ellipsis")
        return _waiting(text) if self._progress is None else text


# -- by default ---------------------------------------------------------------------------------------

_showing = threading.Lock()


@contextmanager
def showing(name: str, progress: bool | None) -> Iterator[LiveTable | None]:
    """The display of `run_sweep`: a table on a terminal, plain lines in a notebook.

    Elsewhere (a file, a pipe, a job of an orchestrator) plain lines where `progress` is True, else nothing.
    One sweep at a time redraws a terminal; others beside it, on other threads, print lines.
    """
    in_notebook = is_notebook()
    # A notebook's output says that it is a terminal, and cannot move its cursor up.
    console = TextConsole(force_jupyter=False, force_terminal=False if in_notebook else None)
    if progress is False or (progress is None and not (console.is_terminal or in_notebook)):
        yield None
        return
    is_alone = _showing.acquire(blocking=False)
    try:
        if not is_alone or not console.is_terminal:
            console = TextConsole(force_jupyter=False, force_terminal=False, no_color=True)
        # Where a program has a place for its log, warnings go there and nowhere else.
        has_log = logging.getLogger().hasHandlers()
        table = LiveTable(console, name=name)
        with table, nullcontext() if has_log else logged_to(table.note):
            yield table
    finally:
        if is_alone:
            _showing.release()


@contextmanager
def logged_to(say: Callable[[str], None]) -> Iterator[None]:
    """Pass warnings of raysweep's own logger to `say`, one line each."""
    handler = _Handler(say)
    logger = logging.getLogger("raysweep")
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


class _Handler(logging.Handler):
    def __init__(self, say: Callable[[str], None]) -> None:
        super().__init__(logging.WARNING)
        self._tell = say

    def emit(self, record: logging.LogRecord) -> None:
        self._tell(" ".join(record.getMessage().split()))


# -- the two faces ------------------------------------------------------------------------------------


class _Screen(AbstractContextManager["_Screen"]):
    """Redraws in place, from a thread of its own, so that the clock continues between two progresses."""

    def __init__(self, console: TextConsole, draw: Callable[[], RenderableType]) -> None:
        self._live = Live(
            console=console, get_renderable=draw, refresh_per_second=4, transient=True, redirect_stdout=False
        )

    def __enter__(self) -> _Screen:
        self._live.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._live.__exit__(kind, error, traceback)

    def say(self, line: str | Text) -> None:
        """Print above what is redrawn."""
        self._live.console.print(line, soft_wrap=True)


class _Lines(AbstractContextManager["_Lines"]):
    """Prints whole lines, never wrapped."""

    def __init__(self, console: TextConsole) -> None:
        self._console = console

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        return None

    def say(self, line: str | Text) -> None:
        """Print a line."""
        self._console.print(line, soft_wrap=True)


def _make_face(console: TextConsole, draw: Callable[[], RenderableType]) -> _Screen | _Lines:
    return _Screen(console, draw) if console.is_terminal else _Lines(console)
