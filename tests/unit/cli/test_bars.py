"""Progress on standard error: a bar on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import io
import re
from pathlib import Path

import pytest

from raysweep.cli.bars import LINE_EVERY_S, progress_bar
from raysweep.jobs.code.packaging import pack_working_dir
from raysweep.pages import write_report
from raysweep.runs.reading import whole_sweep
from raysweep.terminal import TextConsole
from raysweep.verify import verify_sweep
from tests.unit.pages.sweeps import store


class Clock:
    now = 0.0

    def __call__(self) -> float:
        return self.now


def test_a_bar_on_a_terminal_that_vanishes_at_the_end() -> None:
    out = io.StringIO()
    console = TextConsole(file=out, force_terminal=True, width=100)
    with progress_bar(is_bytes=True, console=console) as advance:
        advance("restoring", 1024, 4096)
        advance("uploading", 2**20, 0)
    text = re.sub(r"\x1b\[[\d;]*m", "", out.getvalue())
    assert "uploading" in text
    assert "1.0 MiB" in text
    assert text.rstrip().endswith("\x1b[2K"), "the line is erased"


def test_what_tells_nothing_shows_nothing() -> None:
    out = io.StringIO()
    with progress_bar(console=TextConsole(file=out, force_terminal=True, width=100)):
        pass
    assert "━" not in out.getvalue()


def test_lines_now_and_then_without_a_terminal() -> None:
    out, clock = io.StringIO(), Clock()
    with progress_bar(console=TextConsole(file=out, width=200), clock=clock) as advance:
        for second in range(int(3.5 * LINE_EVERY_S)):
            clock.now = float(second)
            advance("exporting reports", 1000 * second, 100_000)
    assert out.getvalue().splitlines() == [
        "exporting reports: 10,000 of 100,000",
        "exporting reports: 20,000 of 100,000",
        "exporting reports: 30,000 of 100,000",
    ]


def test_a_report_tells_how_far_it_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(whole_sweep, "TOLD_EVERY", 10)
    folder, _ = store(tmp_path / "store")
    told: list[tuple[str, int, int]] = []
    write_report(folder.uri, tmp_path, on_progress=lambda *each: told.append(each))
    assert told[:2] == [("reading the journal", 10, 0), ("reading the journal", 20, 0)]
    assert told[-1] == ("writing the report", 0, 0)


@pytest.mark.parametrize("is_quick", [False, True])
def test_verify_tells_how_far_it_is(tmp_path: Path, is_quick: bool) -> None:
    folder, _ = store(tmp_path / "store")
    told: list[tuple[str, int, int]] = []
    report = verify_sweep(folder, is_quick=is_quick, on_read=lambda *each: told.append(each))
    assert told[0] == ("checking the journal", 0, 0)
    hashed = [each for each in told if each[0] == "checking checkpoints"]
    assert [done for _, done, _ in hashed] == sorted(done for _, done, _ in hashed)
    assert (hashed[-1][1] if hashed else 0) == report.checked.hashed_bytes
    assert all(done <= total for _, done, total in hashed)


def test_packing_tells_how_far_it_is(tmp_path: Path) -> None:
    (tmp_path / "a.py").write_bytes(b"x" * 3_000_000)
    (tmp_path / "b.py").write_bytes(b"y" * 10)
    package, told = pack_working_dir(tmp_path), []
    assert package.to_zip(told.append) == package.to_zip()
    assert told == sorted(told)
    assert told[-1] == package.size_bytes == 3_000_010
