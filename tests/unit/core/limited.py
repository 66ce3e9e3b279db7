"""Sweeps with limits, at chosen times."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import Commands, Sweep


def planned(slots: int, trials: int, **fields: Any) -> Sweep:
    """A sweep from second 100 on, whose first trials run, one on each slot."""
    sweep = Sweep(num_samples=trials, **fields)
    sweep.send(ev.ControllerStarted, generation=1)
    sweep.send(ev.CapacityChanged, slots=slots)
    sweep.suggest(trials)
    for slot in range(slots):
        sweep.send(ev.SlotOpened, slot=slot, node=f"node{slot}")
    for trial in range(min(slots, trials)):
        sweep.began(trial)
    return sweep


def until(at: float) -> dict[str, Any]:
    return {"deadline": datetime.fromtimestamp(at, UTC)}


def stops(commands: Commands) -> list[tuple[int, float]]:
    """Which trials are asked to end, and how long they may take."""
    return [(c.trial, c.grace_s) for c in commands if isinstance(c, cmd.StopTrial)]


def step_to(sweep: Sweep, at: float, trial: int, number: int, *, saves: bool = True) -> Commands:
    """A report at `at`, and its checkpoint right after it."""
    sweep.at = at
    commands = sweep.report(trial, 1.0 / (number + 1))
    return commands + (sweep.saved(trial, number, report=number) if saves else [])
