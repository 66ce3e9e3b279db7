"""Measures the resources that a training uses: its workers from start to end, in all attempts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from raysweep.outcome import Usage

_HOUR_S: Final = 3600.0


class Meter:
    """Counts workers by time.

    Args:
        bundle: What each worker takes, in Ray's keys.
        clock: Gives seconds that only grow.
    """

    def __init__(self, bundle: Mapping[str, float], clock: Callable[[], float]) -> None:
        self._bundle = dict(bundle)
        self._clock = clock
        self._before = Usage()
        self._began_at = self._at = clock()
        self._worker_s = 0.0
        self.workers = 0
        """The number that are at work now."""

    def resume(self, before: Usage | None) -> None:
        """Add what earlier attempts used."""
        self._before = before or Usage()

    def set_workers(self, number: int) -> None:
        """From now on so many are at work."""
        self._advance()
        self.workers = number

    def read(self) -> Usage:
        """The use of the run up to now."""
        self._advance()
        hours, before = self._worker_s / _HOUR_S, self._before
        return Usage(
            cpu_hours=before.cpu_hours + hours * self._bundle.get("CPU", 0.0),
            gpu_hours=before.gpu_hours + hours * self._bundle.get("GPU", 0.0),
            active_s=before.active_s + self._at - self._began_at,
        )

    def _advance(self) -> None:
        now = self._clock()
        self._worker_s += self.workers * (now - self._at)
        self._at = now
