"""Metrics that Ray Tune adds to each report, made where a spec names one that the trainable leaves out."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any, Final

_SUMS: Final = {"timesteps_total": "timesteps_this_iter", "episodes_total": "episodes_this_iter"}
_TIME: Final = "time_total_s"
_SINCE: Final = "time_since_restore"
_STEP: Final = "time_this_iter_s"
_COUNT: Final = "iterations_since_restore"
MADE: Final = frozenset({*_SUMS, _TIME, _SINCE, _STEP, _COUNT})
"""The names of all that are made."""


class Filler:
    """Adds these metrics to the reports of one attempt.

    `names`: of `MADE`. `read_base`: the metrics of the checkpoint that the attempt begins from, whose totals
    continue.
    """

    def __init__(self, names: tuple[str, ...], read_base: Callable[[], Mapping[str, Any]]) -> None:
        self._names = names
        self._read_base = read_base
        self._base: Mapping[str, Any] | None = None
        self._begun_at = self._reported_at = time.monotonic()
        self._reports = 0
        self._sums = dict.fromkeys(_SUMS, 0.0)

    def fill(self, metrics: Mapping[str, Any]) -> dict[str, Any]:
        """A report with those that it lacks."""
        if self._base is None:
            self._base = self._read_base()
        self._reports += 1
        for total, part in _SUMS.items():
            self._sums[total] += _number(metrics.get(part))
        now = time.monotonic()
        made = {name: self._make(name, now) for name in self._names}
        self._reported_at = now
        return {**{name: value for name, value in made.items() if name not in metrics}, **metrics}

    def _make(self, name: str, now: float) -> float:
        if name == _COUNT:
            return self._reports
        if name == _SINCE:
            return now - self._begun_at
        if name == _STEP:
            return now - self._reported_at
        before = _number((self._base or {}).get(name))
        return before + (now - self._begun_at if name == _TIME else self._sums[name])


def _number(value: Any) -> float:
    is_number = isinstance(value, int | float) and not isinstance(value, bool)
    return value if is_number else 0
