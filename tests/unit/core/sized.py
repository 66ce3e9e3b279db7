"""Sweeps whose trials need what their config says, and how they run."""

from __future__ import annotations

from typing import Any

from raysweep.core.state.invariants import check
from raysweep.core.vocabulary import events as ev
from tests.unit.core.faults import GIB, NO_WAIT
from tests.unit.core.sweep import Commands, Sweep

BY_X = {"cpu": 1, "memory": GIB, "by_config": {"memory": f"{GIB} * x"}}
BY_N = {"cpu": 1, "by_config": {"cpu": "x"}}


def sweep_of(*needs: float, slots: int = 2, largest: int = 16 * GIB, **fields: Any) -> Sweep:
    """A sweep whose trials need so many GiB; its first slots are open."""
    fields = {"resources": BY_X, "failure": NO_WAIT, **fields}
    sweep = Sweep(num_samples=len(needs), **fields)
    sweep.start()
    sweep.send(ev.CapacityChanged, slots=slots, memory_bytes=largest)
    configs = tuple({"x": need} for need in needs)
    sweep.send(ev.ConfigsSuggested, first=0, configs=configs, is_exhausted=True)
    return sweep


def open_all(sweep: Sweep) -> Commands:
    """Whatever opens, opens, until nothing more does."""
    commands: Commands = []
    while opening := [slot.number for slot in sweep.state.slots.values() if not slot.is_open]:
        commands += sweep.send(ev.SlotOpened, slot=opening[0], node="node0")
    return commands


def run_all(sweep: Sweep) -> list[tuple[int, int | None]]:
    """Run trials, the oldest start first, until nothing more runs: (trial, what its slot had) by begin."""
    return [(number, memory_bytes) for number, memory_bytes, _ in _run(sweep)]


def run_sized(sweep: Sweep) -> list[tuple[int, str]]:
    """The same with the size of the slot."""
    return [(number, size) for number, _, size in _run(sweep)]


def _run(sweep: Sweep, most: int = 300) -> list[tuple[int, int | None, str]]:
    ran: list[tuple[int, int | None, str]] = []
    for _ in range(most):
        open_all(sweep)
        heads = [slot.queue[0] for slot in sweep.state.slots.values() if slot.queue]
        if not heads:
            return ran
        trial = sweep.state.trials[min(heads)]
        assert trial.slot is not None
        slot = sweep.state.slots[trial.slot]
        ran.append((trial.number, slot.needs.memory_bytes, slot.needs.size))
        sweep.began(trial.number, trial.attempt)
        sweep.report(trial.number, 0.5, attempt=trial.attempt)
        sweep.returned(trial.number, trial.attempt)
        check(sweep.state)
    raise AssertionError("it continues for ever")
