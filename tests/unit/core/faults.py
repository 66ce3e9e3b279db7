"""What the tests of a misbehaving cluster share."""

from __future__ import annotations

from typing import Any

from raysweep.core.vocabulary import commands as cmd
from raysweep.core.vocabulary import events as ev
from raysweep.core.vocabulary.failures import Failure
from tests.unit.core.sweep import Sweep, running

GIB = 2**30
OOM = Failure(origin="process", type="OutOfMemoryError", bases=("OutOfMemoryError", "RayError"))
NO_WAIT = {"backoff_initial_s": 0.0, "backoff_max_s": 0.0}


def stop_commands(commands: list[cmd.Command]) -> list[cmd.StopTrial]:
    return [command for command in commands if isinstance(command, cmd.StopTrial)]


def kinds(sweep: Sweep, trial: int) -> list[tuple[str, str | None]]:
    return [(attempt.end, attempt.kind) for attempt in sweep.state.trials[trial].attempts]


def out_of_memory(largest: int = 16 * GIB, **fields: Any) -> Sweep:
    fields.setdefault("failure", NO_WAIT)
    sweep = running(2, trials=3, resources={"cpu": 1, "memory": 2 * GIB}, **fields)
    sweep.send(ev.CapacityChanged, slots=2, memory_bytes=largest)
    return sweep
