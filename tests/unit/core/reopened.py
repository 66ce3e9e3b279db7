"""Sweeps that have ended and are opened again."""

from __future__ import annotations

from typing import Any

from raysweep.core import SweepState, make_outcome
from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from tests.unit.core.sweep import ASHA, Sweep, running

KEEPS_ON = {"max_failures": 0, "breaker_trials": 0, "bad_node_failures": 0}


def end(sweep: Sweep) -> None:
    assert sweep.state.phase == "ending"
    sweep.send(ev.SweepEnded)


def reopen(sweep: Sweep, **fields: Any) -> list[cmd.Command]:
    generation = sweep.state.controller.generation + 1
    fields = {"generation": generation, "is_reopening": True} | fields
    return sweep.send(ev.ControllerStarted, **fields)


def open_slots(sweep: Sweep, count: int) -> list[cmd.Command]:
    sent = sweep.send(ev.CapacityChanged, slots=count)
    for command in [each for each in sent if isinstance(each, cmd.OpenSlot)]:
        sent += sweep.send(ev.SlotOpened, slot=command.slot)
    return sent


def starts(commands: list[cmd.Command]) -> dict[int, cmd.StartTrial]:
    return {each.trial: each for each in commands if isinstance(each, cmd.StartTrial)}


def failed_sweep(**fields: Any) -> Sweep:
    """Two trials: 0 has completed, 1 failed behind a checkpoint."""
    sweep = running(2, failure=KEEPS_ON, **fields)
    sweep.report(0, 0.5)
    sweep.returned(0)
    sweep.report(1, 0.4)
    sweep.saved(1, sweep.state.trials[1].results.next_checkpoint, 0)
    sweep.failed(1)
    end(sweep)
    return sweep


def outcome_of(state: SweepState) -> Any:
    return make_outcome(state, sweep_id="s", key="k", uri="mem://s", version="0")


def asha_sweep(**fields: Any) -> Sweep:
    """Three trials of four steps: 0 and 1 come to max_t, 2 is stopped before; each has a checkpoint."""
    sweep = running(3, failure=KEEPS_ON, scheduler=ASHA, **fields)
    for trial, values in enumerate([(0.3, 0.3, 0.3, 0.3), (0.2, 0.2, 0.2, 0.1), (0.9,)]):
        for value in values:
            sweep.report(trial, value)
            number = sweep.state.trials[trial].results.next_checkpoint
            if value != 0.9 or sweep.trial_state(trial) == "running":
                sweep.saved(trial, number, sweep.state.trials[trial].results.attempt_reports - 1)
        sweep.stopped(trial)
    return sweep
