"""An event costs the same however many slots there are, with every timeout on.

What is counted are the interpreter's instructions within `step`: they are the same on every machine, however
busy it is. `python -m benchmarks core-scale` measures the time.
"""

from __future__ import annotations

import sys
from types import FrameType
from typing import Any

import pytest

from benchmarks import core_slots
from raysweep.core import SweepState
from raysweep.core import step as real_step
from raysweep.core.state.index import Heap, Line
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.sweep import Sweep, running

FEW, MANY = 8, 128


class Counter:
    """Counts the instructions of `step`."""

    def __init__(self) -> None:
        self.instructions = self.events = 0

    def step(self, state: SweepState, event: ev.Event) -> Any:
        self.events += 1
        before = sys.gettrace()
        sys.settrace(self._trace)
        try:
            return real_step(state, event)
        finally:
            sys.settrace(before)

    def _trace(self, frame: FrameType, what: str, argument: object) -> Any:
        frame.f_trace_opcodes, frame.f_trace_lines = True, False
        self.instructions += what == "opcode"
        return self._trace


def cost(drive: core_slots.Drive, slots: int, patch: pytest.MonkeyPatch) -> float:
    """Instructions an event."""
    counter = Counter()
    patch.setattr(core_slots, "step", counter.step)
    while counter.events < 4 * MANY:
        drive(slots, 6 * MANY)
    return counter.instructions / counter.events


@pytest.mark.parametrize("phase", core_slots.PHASES)
def test_an_event_costs_the_same_with_many_slots(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    drive = core_slots.PHASES[phase]
    few, many = cost(drive, FEW, monkeypatch), cost(drive, MANY, monkeypatch)
    assert many <= 1.3 * few, f"{phase}: {many:.0f} instructions an event, {few:.0f} with few slots"


def test_an_event_costs_the_same_while_a_large_trial_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As after a trial that ran out of memory: its slot is another one for the rest of the sweep."""
    costs = []
    for slots in (FEW, MANY):
        sweep = _with_a_large_trial(slots)
        counter = Counter()
        for turn in range(64):
            trial = 1 + turn % (FEW - 2)
            row: list[Any] = [1.0]
            first = sweep.state.trials[trial].results.attempt_reports
            counter.step(
                sweep.state,
                ev.TrialReported(at=200.0, trial=trial, attempt=1, first=first, keys=("loss",), rows=(row,)),
            )
        costs.append(counter.instructions / counter.events)
    assert costs[1] <= 1.3 * costs[0]


def _with_a_large_trial(slots: int) -> Sweep:

    sweep = running(slots, trials=2 * slots, failure={"report_timeout_s": 300.0})
    sweep.send(ev.CapacityChanged, slots=slots, memory_bytes=2**34)
    sweep.failed(0, Failure(origin="memory", type="OutOfMemoryError", memory_bytes=2**30))
    sweep.timer(150.0)
    sweep.report(slots - 1, 1.0)
    sweep.returned(slots - 1)
    large = next(slot for slot in sweep.state.slots.values() if slot.needs.memory_bytes is not None)
    sweep.send(ev.SlotOpened, slot=large.number, node="node0")
    assert sweep.trial_state(0) == "queued"
    return sweep


def test_a_line_keeps_its_order_whatever_is_taken_out_of_it() -> None:
    line = Line([3, 1, 2])
    line.appendleft(9)
    line.append(4)
    line.remove(1)
    assert (list(line), len(line), 2 in line, 1 in line) == ([9, 3, 2, 4], 4, True, False)
    assert line.sorted([4, 9, 2]) == [9, 2, 4]
    assert (line.popleft(), list(line)) == (9, [3, 2, 4])
    line.clear()
    assert not line


def test_a_heap_forgets_what_was_replaced() -> None:
    heap = Heap()
    for key in range(10_000):
        heap.put(key % 3, float(key))
    assert heap.first() == (9_997.0, 1)
    assert len(heap._entries) < 100
    heap.drop(1)
    assert heap.first() == (9_998.0, 2)
    heap.put(5, 9_998.0)
    assert heap.first() == (9_998.0, 2)
