"""Metrics of Ray Tune's that a spec names are made where a trainable does not report them."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import pytest

from raysweep.worker.filled import MADE, Filler


def filler(*names: str, **base: Any) -> Filler:
    def read() -> Mapping[str, Any]:
        return base

    return Filler(names, read)


def test_steps_and_episodes_are_added_up_beyond_a_checkpoint() -> None:
    made = filler("timesteps_total", "episodes_total", timesteps_total=100, episodes_total="damaged")
    assert made.fill({"timesteps_this_iter": 10, "episodes_this_iter": 2}) == {
        "timesteps_total": 110, "episodes_total": 2, "timesteps_this_iter": 10, "episodes_this_iter": 2,
    }  # fmt: skip
    assert made.fill({"loss": 1})["timesteps_total"] == 110


def test_reports_of_the_attempt_are_counted() -> None:
    made = filler("iterations_since_restore", iterations_since_restore=7)
    assert [made.fill({})["iterations_since_restore"] for _ in range(3)] == [1, 2, 3]


def test_time_goes_on_beyond_a_checkpoint(monkeypatch: pytest.MonkeyPatch) -> None:
    now = 50.0
    monkeypatch.setattr(time, "monotonic", lambda: now)  # a real clock would make the figures vary
    made = filler("time_total_s", "time_since_restore", "time_this_iter_s", time_total_s=30.0)
    now = 51.0
    assert made.fill({}) == {"time_total_s": 31.0, "time_since_restore": 1.0, "time_this_iter_s": 1.0}
    now = 53.0
    assert made.fill({}) == {"time_total_s": 33.0, "time_since_restore": 3.0, "time_this_iter_s": 2.0}


def test_what_is_reported_stays() -> None:
    assert filler(*MADE).fill(dict.fromkeys(MADE, -1)) == dict.fromkeys(MADE, -1)
