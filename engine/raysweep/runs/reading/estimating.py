"""Estimates for readers of a sweep: made at most once a minute, or taken from its heartbeat."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from raysweep.core.state.sweep import SweepState
from raysweep.errors import RaysweepError
from raysweep.estimates import Past, estimate_rest, samples_of, slow_trials
from raysweep.estimates.estimate import ENOUGH
from raysweep.outcome import SweepProgress
from raysweep.outcome.estimate import NOTHING, Expected

EVERY_S: Final = 60.0
BUSY_SHARE: Final = 30.0
"""One that took a second of CPU time is made again after this many at the earliest."""
CPU_S: Final = 0.5
FRESH_S: Final = 150.0
"""A heartbeat's estimate counts for as long as this."""


log = logging.getLogger("raysweep")


class Estimating:
    """Keeps the estimate of one sweep. `past` gives earlier nights of its name; it is called once."""

    def __init__(self, past: Callable[[], Sequence[Past]], *, cpu_s: float = CPU_S) -> None:
        self._read_past = past
        self._past: Sequence[Past] | None = None
        self._cpu_s = cpu_s
        self._made_at = -EVERY_S
        self._wait_s = EVERY_S
        self._ended = -1
        self._made = NOTHING

    def of(
        self,
        state: SweepState,
        heartbeat: SweepProgress | None,
        curves: Mapping[int, Sequence[float]],
        now: float,
    ) -> Expected:
        """The estimate of a sweep that runs; `now` in UTC seconds."""
        if heartbeat is None or not heartbeat.is_at_work:
            return NOTHING
        there = heartbeat.estimate
        if there is not None and now - there.made_at < FRESH_S:
            return Expected(estimate=there, slow=heartbeat.slow)
        elapsed_s = time.monotonic() - self._made_at
        is_first = self._made.estimate is None and elapsed_s >= self._wait_s / 10
        if elapsed_s < self._wait_s and not is_first:
            return self._made
        begun = time.thread_time()
        self._made = self._make(state, heartbeat, curves, now)
        self._made_at = time.monotonic()
        self._wait_s = max(EVERY_S, BUSY_SHARE * (time.thread_time() - begun))
        return self._made

    def _make(
        self,
        state: SweepState,
        heartbeat: SweepProgress,
        curves: Mapping[int, Sequence[float]],
        now: float,
    ) -> Expected:
        # An estimate is an extra: whatever is wrong with it, the status is shown.
        try:
            samples = samples_of(state)
            estimate = estimate_rest(
                state,
                now=now,
                total=heartbeat.num_trials,
                curves=curves,
                past=self._nights() if samples.known < ENOUGH else (),
                samples=samples,
                cpu_s=self._cpu_s,
            )
            return Expected(estimate=estimate, slow=slow_trials(state, samples, now - state.clock.ahead_s))
        except Exception:
            log.info("no estimate of the sweep could be made", exc_info=True)
        return NOTHING

    def _nights(self) -> Sequence[Past]:
        if self._past is None:
            try:
                self._past = self._read_past()
            except RaysweepError:
                self._past = ()
        return self._past
