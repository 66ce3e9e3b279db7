"""Waits for the decision about a candidate that passed its gate. Holds no Ray."""

from __future__ import annotations

import logging
import time
from collections.abc import Callable
from typing import Final

from raysweep.documents.quoting import shell_line
from raysweep.errors import StorageUnavailableError
from raysweep.outcome import GateOutcome, SweepOutcome
from raysweep.pipeline.plan import line_of
from raysweep.runs.across_runs.approvals import decide_night
from raysweep.runs.across_runs.champions import Line
from raysweep.runs.across_runs.releases import as_it_stands
from raysweep.runs.across_runs.verdicts import read_verdict
from raysweep.specs import SweepSpec
from raysweep.specs.pipeline import GateSpec
from raysweep.storage.objects.opening import open_store

log = logging.getLogger("raysweep")
POLL_S: Final = 5.0


def await_approval(
    spec: SweepSpec,
    outcome: SweepOutcome,
    gate: GateSpec,
    verdict: GateOutcome,
    *,
    on_wait: Callable[[str], None] = log.warning,
    poll_s: float = POLL_S,
) -> GateOutcome:
    """The verdict with the decision in it; at once where none is awaited.

    Killed and run again it waits on: the time for the decision counts from the verdict.

    Args:
        spec: The sweep's spec.
        outcome: What it gave.
        gate: What its best had to show.
        verdict: What the gate gave.
        on_wait: Called once with a line that says how to decide.
        poll_s: How often the storage is asked.

    Raises: StorageError: The decision cannot be read.
    """
    if not verdict.is_waiting:
        return verdict
    storage = outcome.uri.rpartition("/")[0] or spec.storage_path
    store, line = open_store(storage), champion_line(spec, gate)
    on_wait(how_to_decide(verdict, outcome, store.url))
    while True:
        try:
            if decide_night(store, line, outcome.sweep_id, verdict.gate_id) is not None:
                decided = read_verdict(store, outcome.sweep_id, verdict.gate_id) or verdict
                return as_it_stands(store, line, outcome.sweep_id, decided)
        except StorageUnavailableError as error:
            log.warning("approval: %s; asking again", error)
        time.sleep(poll_s)


def champion_line(spec: SweepSpec, gate: GateSpec) -> Line:
    """With which champions a gate of this sweep compares, by the gate's own metric if it names one."""
    metric, mode = gate.goal(spec)
    return line_of(spec.model_copy(update={"metric": metric, "mode": mode}), gate)


def how_to_decide(verdict: GateOutcome, outcome: SweepOutcome, storage: str) -> str:
    """`... waits for approval until ...: raysweep approve flights@2026-11-25 --storage ...`."""
    assert verdict.approval is not None
    night = f"{verdict.approval.name}@{outcome.key or outcome.sweep_id}"
    return f"{verdict.why}: {approve_command(night, storage)} (or --reject)"


def approve_command(night: str, storage: str) -> str:
    """The command that approves a night's candidate, as a shell takes it."""
    return shell_line(["raysweep", "approve", night, "--storage", storage])
