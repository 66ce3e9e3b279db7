"""The live table: lines where nobody watches, a table on a terminal."""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Callable
from typing import Any

import pytest

from raysweep.documents.json_numbers import Counts
from raysweep.live import LiveTable, LiveTraining, showing
from raysweep.outcome import (
    BestTrial,
    ErrorInfo,
    Holder,
    RunningTrial,
    SweepOutcome,
    SweepProgress,
    TrialOutcome,
)
from raysweep.outcome.showing.formatting import show_config, show_counts, show_duration
from raysweep.terminal import TextConsole
from raysweep.training import TrainProgress


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def progress(**fields: Any) -> SweepProgress:
    holder = Holder(host="h", pid=os.getpid(), user="me")
    given: dict[str, Any] = {"sweep_id": "night-1", "name": "night", "status": "running", "holder": holder}
    given |= {"generation": 1, "at": 10.0, "started_at": 0.0, "metric": "auc", "mode": "max"}
    return SweepProgress(**given | {"num_trials": 30} | fields)


def best(score: float) -> BestTrial:
    return BestTrial(trial_id="00007", score=score, config={"lr": 0.012345678, "net": {"depth": 4}})


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def console() -> TextConsole:
    return TextConsole(file=io.StringIO(), width=40)


def lines(console: TextConsole) -> list[str]:
    file = console.file
    assert isinstance(file, io.StringIO)
    printed = file.getvalue().splitlines()
    file.truncate(0)
    file.seek(0)
    return printed


def outcome(**fields: Any) -> SweepOutcome:
    given: dict[str, Any] = {"sweep_id": "night-1", "name": "night", "status": "completed", "metric": "auc"}
    given |= {"mode": "max", "started_at": 0.0, "ended_at": 9.0, "uri": "/my sweeps/night-1"}
    return SweepOutcome(**given | fields)


@pytest.fixture
def table(console: TextConsole, clock: Clock) -> LiveTable:
    return LiveTable(console, clock=clock)


def test_the_first_line_says_what_began(table: LiveTable, console: TextConsole) -> None:
    with table:
        assert lines(console) == []
        table(progress(status="starting"))
        table(progress())
        assert lines(console) == ["[night 0:00] started night-1, 30 trials"]


@pytest.mark.parametrize(
    ("fields", "line"),
    [
        ({"generation": 3}, "started night-1 again (controller 3), 30 trials"),
        (
            {"holder": Holder(host="h", pid=1, user="me")},
            "following night-1, 30 trials, run by process 1 of me on h",
        ),
        ({"num_trials": None}, "started night-1"),
    ],
)
def test_the_first_line_of_other_beginnings(
    table: LiveTable, console: TextConsole, fields: dict[str, Any], line: str
) -> None:
    with table:
        table(progress(**fields))
    # A sweep that is only followed has run for ten seconds already.
    assert lines(console) == [f"[night {'0:10' if 'following' in line else '0:00'}] {line}"]


def test_a_line_a_minute(table: LiveTable, console: TextConsole, clock: Clock) -> None:
    with table:
        table(progress())
        lines(console)
        for clock.now in (130.0, 159.9):
            table(progress(counts={"completed": 3}))
        assert lines(console) == []
        clock.now = 160.0
        counts = {"completed": 12, "stopped": 5, "failed": 1, "running": 1, "stopping": 1, "queued": 3}
        table(progress(counts=counts, best=best(0.7213)))
        shown = "best auc 0.7213 (trial 00007): lr=0.0123457 net.depth=4"
        assert lines(console) == [
            "[night 1:00] running: 18 of 30 trials ended: 12 completed, 5 stopped, 1 failed, 2 running; "
            + shown
        ]
        clock.now = 161.0
        table(progress(counts=counts, best=best(0.7213)))
        assert lines(console) == []


def test_a_line_for_a_new_best_but_not_for_each_of_a_flood(
    table: LiveTable, console: TextConsole, clock: Clock
) -> None:
    with table:
        table(progress())
        lines(console)
        for score in (0.1, 0.2, 0.3):
            clock.now += 1
            table(progress(best=best(score)))
        assert lines(console) == ["[night 0:01] best auc 0.1 (trial 00007): lr=0.0123457 net.depth=4"]
        clock.now += 5
        table(progress(best=best(0.3)))
        assert lines(console) == ["[night 0:08] best auc 0.3 (trial 00007): lr=0.0123457 net.depth=4"]


def test_one_line_at_the_end(table: LiveTable, console: TextConsole, clock: Clock) -> None:
    with table:
        table(progress())
        clock.now += 3725
        for _ in range(2):
            table(progress(status="target", counts={"completed": 2, "cancelled": 1}))
    assert lines(console)[1:] == [
        "[night 1:02:05] target: 3 of 30 trials ended: 2 completed, 1 cancelled; no auc yet"
    ]


def test_each_note_once(table: LiveTable, console: TextConsole) -> None:
    with table:
        table(progress(notes=("one",)))
        table(progress(notes=("one", "two")))
        table(progress(notes=("two", "three")))
        table.note("[not markup] from the log")
    assert lines(console)[1:] == [
        "[night 0:00] note: one",
        "[night 0:00] note: two",
        "[night 0:00] note: three",
        "note: [not markup] from the log",
    ]


def test_the_table_on_a_terminal(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TTY_COMPATIBLE", raising=False)
    file = io.StringIO()
    console = TextConsole(
        file=file, width=100, height=40, force_terminal=True, color_system=None, _environ={}
    )
    running = tuple(
        RunningTrial(
            trial_id=f"{number:05d}",
            number=number,
            iteration=number,
            score=number / 10,
            config={"lr": 0.5, "text": "[bold]" + "x" * 200},
        )
        for number in range(14)
    )
    with LiveTable(console, clock=clock) as table:
        table(progress(running=running, counts={"running": 14}, best=best(0.9), notes=("a note",)))
        clock.now += 34
        table._face._live.refresh()  # type: ignore[union-attr]
        shown = file.getvalue()
    for part in (
        "night-1  running  0:34",
        "0 of 30 trials ended: 0 completed, 14 running",
        "best auc 0.9 (trial 00007): lr=0.0123457 net.depth=4",
        "00011",
        "1.1",
        "lr=0.5 text=[bold]xxx",
        "and 2 more",
        "note: a note",
    ):
        assert part in shown
    assert "00012" not in shown
    assert max(len(line) for line in shown.splitlines()) < 300


def test_training_lines(console: TextConsole, clock: Clock) -> None:
    with LiveTraining("full", console, clock=clock) as line:
        for reports in range(1, 6):
            metrics = {"auc": reports / 10}
            line(TrainProgress(run_id="r", reports=reports, metrics=metrics, checkpoint=None, elapsed_s=1.0))
            clock.now += 30
        line.note("hear")
    assert lines(console) == [
        "[full 0:00] 1 report; auc=0.1",
        "[full 1:00] 3 reports; auc=0.3",
        "[full 2:00] 5 reports; auc=0.5",
        "note: hear",
    ]


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (725, "12:05"), (11045, "3:04:05"), (-3, "0:00")]
)
def test_durations(seconds: float, text: str) -> None:
    assert show_duration(seconds) == text


def test_configs_and_counts() -> None:
    assert show_config({}) == ""
    assert show_config({"a": {"b": 1e-7, "c": {}}, "d": [1, 2]}) == "a.b=1e-07 a.c={} d=[1, 2]"
    assert show_counts(Counts()) == "0 completed"
    assert show_counts(Counts({"completed": 1, "waiting": 2}), 5) == (
        "1 of 5 trials ended: 1 completed, 2 waiting for a retry"
    )


def test_what_is_done_before_the_first_progress_is_said(console: TextConsole, clock: Clock) -> None:
    with LiveTable(console, name="night", clock=clock) as table:
        table.stage("starting Ray")
        clock.now += 12
        table.stage("claiming the sweep")
        assert lines(console) == ["[night 0:00] starting Ray", "[night 0:12] claiming the sweep"]
        table(progress())
        lines(console)
        table.stage("too late")
        assert lines(console) == []


def test_a_terminal_says_that_ray_is_starting() -> None:
    file = io.StringIO()
    console = TextConsole(file=file, width=80, force_terminal=True)
    with LiveTable(console, name="night") as table:
        table.stage("starting Ray")
        table._face._live.refresh()  # type: ignore[union-attr]  # as its thread does, four times a second
    assert "night  starting Ray" in file.getvalue()
    assert "…" not in file.getvalue()


@pytest.mark.parametrize(
    "make", [lambda console: LiveTable(console, name="night"), lambda console: LiveTraining("night", console)]
)
def test_a_bar_moves_while_ray_starts_and_nothing_can_be_counted(
    make: Callable[[TextConsole], LiveTable | LiveTraining], monkeypatch: pytest.MonkeyPatch
) -> None:
    file = io.StringIO()
    console = TextConsole(file=file, width=80, force_terminal=True, color_system="truecolor")
    drawn = []
    with make(console) as shown:
        for at in (0.0, 0.3):
            monkeypatch.setattr("rich.progress_bar.monotonic", lambda at=at: at)
            file.truncate(file.seek(0))
            shown._face._live.refresh()  # type: ignore[union-attr]  # as its thread does, four times a second
            drawn.append(file.getvalue())
    assert all("━" in text for text in drawn)
    assert drawn[0] != drawn[1]


def test_the_end_says_what_failed_first_and_which_command_shows_more(
    table: LiveTable, console: TextConsole
) -> None:
    traceback = (
        'Traceback (most recent call last):\n  File "/me/train.py", line 7, in fit\n    x\nValueError: bad\n'
    )
    error = ErrorInfo(kind="user_error", type="ValueError", message="bad rate\nx", traceback=traceback)
    good = TrialOutcome(trial_id="00000", number=0, state="completed", score=0.5, config={"lr": 0.1})
    bad = TrialOutcome(trial_id="00001", number=1, state="failed", error=error)
    counts = {"completed": 1, "failed": 1}
    table.conclude(outcome(trials=(good, bad), best=good, counts=counts))
    counted = "2 of 2 trials ended: 1 completed, 1 failed"
    assert lines(console) == [
        f"[night 0:00] completed night-1: {counted}; best auc 0.5 (trial 00000): lr=0.1",
        "  trial 00001: ValueError: bad rate",
        "  at /me/train.py:7 in fit",
        "  all failures: raysweep trials night-1 --attempts --storage '/my sweeps'",
    ]


def test_the_end_is_not_said_twice(table: LiveTable, console: TextConsole) -> None:
    table(progress(status="completed"))
    assert len(lines(console)) == 2
    table.conclude(outcome())
    assert lines(console) == []


@pytest.mark.parametrize(
    ("progress", "is_terminal", "is_notebook", "expected"),
    [
        (None, False, False, False),
        (None, True, False, True),
        (None, False, True, True),
        (None, True, True, True),
        (False, True, False, False),
        (False, False, True, False),
        (True, False, False, True),
    ],
)
def test_where_a_sweep_shows_itself(
    progress: bool | None,
    is_terminal: bool,
    is_notebook: bool,
    expected: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("TTY_COMPATIBLE", "1" if is_terminal else "0")  # how rich is told
    if is_notebook:  # tests/users/test_notebook.py has a real one
        monkeypatch.setattr(type(sys.stdout), "__module__", "ipykernel.iostream")
    with showing("night", progress) as table:
        assert (table is not None) == expected
        if table is not None:
            assert table.console.is_terminal == (is_terminal and not is_notebook)
            table.stage("starting Ray")
            with showing("beside", True) as beside:
                assert beside is not None
                assert not beside.console.is_terminal
                beside.stage("starting Ray")
    said = capsys.readouterr().out
    assert ("starting Ray" in said) == expected
    assert ("[beside 0:00] starting Ray" in said) == expected
