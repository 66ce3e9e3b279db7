"""Attempts on slots as columns: which trial ran where, from when to when, and how that ended."""

from __future__ import annotations

import heapq
from array import array
from collections.abc import Sequence
from typing import Any, Final

from raysweep.pages.columns import encode, whole
from raysweep.runs.reading.whole_sweep import SlotRun

MAX_RUNS: Final = 15_000
"""Of more attempts, the longest are shown: others are narrower than a line."""
MAX_LANES: Final = 2000


def timeline_columns(runs: Sequence[SlotRun], start: float | None, now: float) -> dict[str, Any]:
    """The attempts, with the lane that each is drawn in. Times are seconds since `start`.

    A lane is a slot; where slots are not known, lanes are as many as trials ran at once.
    """
    begin = start if start is not None else min((run.started_at for run in runs), default=now)
    shown = list(runs)
    if len(shown) > MAX_RUNS:
        shown = sorted(shown, key=lambda run: -_length(run, now))[:MAX_RUNS]
    shown.sort(key=lambda run: run.started_at)
    has_slots = all(run.slot is not None for run in shown)
    lanes = [run.slot or 0 for run in shown] if has_slots else _pack(shown, now)
    known = sorted(set(lanes))[:MAX_LANES]
    place = {lane: number for number, lane in enumerate(known)}
    kept = [(run, place[lane]) for run, lane in zip(shown, lanes, strict=True) if lane in place]
    nodes: dict[int, str] = {}
    for run, lane in kept:
        nodes[lane] = run.node or nodes.get(lane, "")
    ends = list(dict.fromkeys(run.end for run, _ in kept))
    end_of = {end: number for number, end in enumerate(ends)}
    return {
        "of": len(runs),
        "lanes": [
            {
                "name": f"slot {known[number]}" if has_slots else f"lane {number + 1}",
                "node": nodes.get(number, ""),
            }
            for number in range(len(known))
        ],
        "ends": ends,
        "trial": whole((run.trial for run, _ in kept), max((run.trial for run, _ in kept), default=0)),
        "attempt": whole((run.attempt for run, _ in kept), max((run.attempt for run, _ in kept), default=0)),
        "lane": whole((lane for _, lane in kept), len(known)),
        "start": encode(array("f", [run.started_at - begin for run, _ in kept])),
        "length": encode(array("f", [_length(run, now) for run, _ in kept])),
        "end": whole((end_of[run.end] for run, _ in kept), len(ends)),
    }


def _length(run: SlotRun, now: float) -> float:
    return max(0.0, (run.ended_at if run.ended_at is not None else now) - run.started_at)


def _pack(runs: Sequence[SlotRun], now: float) -> list[int]:
    """A lane for each run, in the order of their starts; a lane is taken again once it is free."""
    free: list[int] = []
    busy: list[tuple[float, int]] = []
    found, count = [], 0
    for run in runs:
        while busy and busy[0][0] <= run.started_at:
            heapq.heappush(free, heapq.heappop(busy)[1])
        if free:
            lane = heapq.heappop(free)
        else:
            lane, count = count, count + 1
        heapq.heappush(busy, (run.started_at + _length(run, now), lane))
        found.append(lane)
    return found
