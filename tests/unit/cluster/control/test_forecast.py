"""The process beside the controller that estimates a sweep's end: how often it is started."""

from __future__ import annotations

import sys
import time
from pathlib import Path

import pytest

from raysweep.cluster.control import forecast
from raysweep.cluster.control.forecast import Forecast
from raysweep.outcome.estimate import NOTHING


def started(path: Path) -> int:
    return len(path.read_text().splitlines()) if path.exists() else 0


def looked(made: Forecast, seconds: float) -> None:
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        made.look()
        time.sleep(0.02)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "log"


def making(log: Path, rest: str) -> Forecast:
    made = Forecast("/nowhere", "s", every_s=0.0)
    made._command = [sys.executable, "-S", "-c", f"open({str(log)!r}, 'a').write('x\\n'); {rest}"]
    return made


def test_one_that_hangs_is_killed_and_the_next_comes_much_later(
    log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(forecast, "TIMEOUT_S", 0.5)
    made = making(log, "import time; time.sleep(600)")
    looked(made, 3.0)
    assert made._process is None, "it was killed"
    assert started(log) == 1
    made.close()


@pytest.mark.slow
def test_where_one_took_long_the_next_comes_later(log: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = making(log, "import time; time.sleep(0.3)")
    looked(made, 3.0)
    assert started(log) == 1
    monkeypatch.setattr(forecast, "BUSY_SHARE", 0.1)
    made._due_at = 0.0
    looked(made, 3.0)
    assert started(log) >= 3
    made.close()


def test_one_that_fails_says_nothing(log: Path) -> None:
    made = making(log, "raise SystemExit(1)")
    looked(made, 1.0)
    assert started(log) >= 1
    assert made.newest == NOTHING
    made.close()
