"""A wall clock that is set while a sweep runs, and hooks that raise what is no `Exception`, on a real Ray."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import pytest

import raysweep as rs
from raysweep.outcome import SweepProgress
from tests.engine.policies import Quits
from tests.sampling import first_of

pytestmark = [pytest.mark.ray, pytest.mark.timeout(300)]
Run = Callable[..., rs.SweepOutcome]


@pytest.fixture
def set_clock(monkeypatch: pytest.MonkeyPatch) -> Callable[[float], None]:
    """Sets the wall clock of this process, where the controller runs."""
    by_s, real = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: real() + by_s[0])
    return lambda by: by_s.__setitem__(0, by)


@pytest.mark.parametrize("by_s", first_of([-3600.0, 3600.0]))
def test_a_wall_clock_that_is_set_neither_holds_nor_hurries_a_timer(
    run: Run, set_clock: Callable[[float], None], by_s: float
) -> None:
    """It is set as soon as a trial runs; they hear nothing, and end by `trial_time_s`."""
    began = time.monotonic()

    def look(progress: SweepProgress) -> None:
        if progress.running:
            set_clock(by_s)

    stop = {"trial_time_s": 4.0, "grace_s": 0.5, "time_budget_s": 300.0}
    outcome = run("sleeper", {"sleepers": {"const": [0, 1]}}, num_samples=2, stop=stop, on_progress=look)
    assert outcome.status == "completed"
    assert time.monotonic() - began < 200
    assert outcome.usage is not None
    assert 3.0 < outcome.usage.active_s < 200
    how = "back" if by_s < 0 else "forward"
    assert any(f"clock of the controller's machine moved {how} by 3600 s" in note for note in outcome.notes)


@pytest.mark.parametrize("hook", first_of(["tell", "ask"]))
def test_a_searcher_that_exits_ends_clearly(run: Run, hook: str) -> None:
    fields: dict[str, Any] = {"search": {Quits: {"at": hook}}, "num_samples": 4, "max_concurrent_trials": 1}
    if hook == "ask":
        outcome = run("noop", **fields)
        assert outcome.counts == {"completed": 3, "failed": 1}
        assert outcome.first_failure is not None
        assert outcome.first_failure.error is not None
        assert outcome.first_failure.error.type == "SystemExit"
        return
    with pytest.raises(rs.SpecError, match=r"Quits' failed in tell: SystemExit: 0; fix the class"):
        run("noop", **fields)
