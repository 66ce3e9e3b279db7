"""Other sweeps beside the one of a report: how they ended, their best so far, differences of the specs."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

from raysweep.documents.json_values import leaves
from raysweep.outcome import Standing
from raysweep.outcome.showing.formatting import show_config
from raysweep.pages.columns import show_label
from raysweep.runs.folder import SweepRecord
from raysweep.runs.reading.whole_sweep import WholeSweep
from raysweep.space.parsed import is_domain

MAX_DIFFERENCES: Final = 40
Other = tuple[Standing, SweepRecord]
"""The standing of another sweep, and the record of its start."""


def compared(sweep: WholeSweep, others: Sequence[Other]) -> list[dict[str, Any]]:
    """A row for each of the other sweeps; `curve`: its best score by seconds, and by trials."""
    return [_row(sweep, status, record) for status, record in others]


def _row(sweep: WholeSweep, status: Standing, record: SweepRecord) -> dict[str, Any]:
    start = status.started_at or 0.0
    is_same = (status.metric, status.mode) == (sweep.status.metric, sweep.status.mode)
    best = status.best
    return {
        "id": status.run_id,
        "name": status.name,
        "key": record.key,
        "status": status.status,
        "ended": status.counts.ended,
        "elapsed_s": status.elapsed_s,
        "started_at": status.started_at,
        "metric": status.metric,
        "is_same_metric": is_same,
        "best": best.score if best is not None else None,
        "config": show_config(best.config) if best is not None else "",
        "curve": [[dot.at - start, dot.ended, dot.score] for dot in status.curve] if is_same else [],
        "differences": _differences(sweep.record, record),
    }


def _differences(one: SweepRecord, other: SweepRecord) -> list[list[str]]:
    """Field, its value here, its value there; of fields that only one has, the other is empty."""
    here, there = (dict(leaves(dict(record.spec), is_leaf=is_domain)) for record in (one, other))
    found = []
    for field in dict.fromkeys([*here, *there]):
        if here.get(field) != there.get(field):
            values = (show_label(each[field]) if field in each else "" for each in (here, there))
            found.append([field, *values])
    return found[:MAX_DIFFERENCES]
