"""The sweeps of one name beside each other: how each ended, what it cost, and its best so far."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final

from raysweep.errors import RaysweepError
from raysweep.outcome import Standing
from raysweep.pages.failures import config_pairs
from raysweep.runs.reading.reader import SweepReader
from raysweep.storage.objects.store import Store

MAX_NIGHTS: Final = 30
"""The newest of a name; older ones are counted."""
_KEPT: Final = 90
MAX_POINTS: Final = 400


class NightReader:
    """Keeps the readers of the sweeps that were looked at: one that has ended is read once."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._readers: OrderedDict[str, SweepReader] = OrderedDict()

    def read(self, name: str, sweep_ids: Sequence[str]) -> dict[str, Any]:
        """The content of a name's page.

        Args:
            name: The name.
            sweep_ids: Its sweeps, the newest first.
        """
        return {
            "name": name,
            "of": len(sweep_ids),
            "nights": [self._night(sweep_id) for sweep_id in sweep_ids[:MAX_NIGHTS]],
        }

    def _night(self, sweep_id: str) -> dict[str, Any]:
        try:
            status = self._reader(sweep_id).read()
        except RaysweepError as error:
            status = Standing(run_id=sweep_id, status="damaged", problem=str(error))
        return _row(status or Standing(run_id=sweep_id, status="damaged", problem="it is gone"))

    def _reader(self, sweep_id: str) -> SweepReader:
        reader = self._readers.pop(sweep_id, None) or SweepReader(self._store.url, sweep_id)
        self._readers[sweep_id] = reader
        while len(self._readers) > _KEPT:
            self._readers.popitem(last=False)
        return reader


def _row(status: Standing) -> dict[str, Any]:
    best, usage, start = status.best, status.usage, status.started_at or 0.0
    return {
        "id": status.run_id,
        "status": status.status,
        "is_running": status.is_running,
        "started_at": status.started_at,
        "elapsed_s": status.elapsed_s,
        "ended": status.counts.ended,
        "num_trials": status.num_trials,
        "failed": status.counts.failed,
        "metric": status.metric,
        "mode": status.mode,
        "best": best.score if best is not None else None,
        "config": config_pairs(best.config) if best is not None else [],
        "cpu_hours": usage.cpu_hours if usage is not None else None,
        "gpu_hours": usage.gpu_hours if usage is not None else None,
        "cost": usage.cost if usage is not None else None,
        "promoted": status.gate.promoted if status.gate is not None else None,
        "problem": status.problem or (status.error.line if status.error is not None else ""),
        "curve": [[dot.at - start, dot.ended, dot.score] for dot in status.curve[-MAX_POINTS:]],
    }
