"""The nightly flow: sweep, let the best config pass the gate, train it at full scale."""

from __future__ import annotations

from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import BaseModel

import raysweep as rs
from raysweep_prefect.tasks import Document, gate, sweep, train


class NightOutcome(BaseModel, frozen=True):
    """What a night gave: the sweep's outcome, and the training's where there was one."""

    sweep: rs.SweepOutcome
    train: rs.TrainOutcome | None = None
    skipped: str = ""
    """Why the training was skipped; empty where it was not."""


@flow(name="nightly-sweep", flow_run_name="nightly-sweep {key}", validate_parameters=True)
def nightly_sweep(
    spec: Document,
    train_spec: Document | None = None,
    gate_spec: dict[str, Any] | None = None,
    key: str | None = None,
    address: str | None = None,
    storage_path: str | None = None,
) -> NightOutcome:
    """Run a sweep and hand its best config to the full-scale training, in one Ray.

    Interrupted and run again with the same key it goes on where it was: trials that ended are not run
    again, a finished sweep and a finished training are returned at once.

    Args:
        spec: The sweep's spec: a mapping, or the path of a YAML or JSON file.
        train_spec: The training's spec; without one the night ends with the sweep.
        gate_spec: What the best config has to show before the training (`GateSpec`); without it, nothing.
        key: Names the night; default: the id of this flow run, which a retry of it keeps.
        address: A Ray cluster; default: one embedded Ray for both steps.
        storage_path: In place of that of the specs.
    """
    from raysweep.cluster.connection import sharing

    name = key if key is not None else str(flow_run.id)
    with sharing():
        outcome = sweep(spec, name, address=address, storage_path=storage_path)
        if gate_spec is not None:
            outcome = gate(spec, name, outcome, gate_spec, address=address, storage_path=storage_path)
        trained, skipped = None, ""
        if train_spec is not None and outcome.promoted is False:
            skipped = f"training skipped: {outcome.gate.why}" if outcome.gate else "training skipped"
            # Prefect shows the task as completed, named Skipped.
            train(
                train_spec,
                name,
                outcome=outcome,
                address=address,
                storage_path=storage_path,
                return_state=True,
            )
        elif train_spec is not None:
            trained = train(train_spec, name, outcome=outcome, address=address, storage_path=storage_path)
    return NightOutcome(sweep=outcome, train=trained, skipped=skipped)
