"""One night from sweep to training."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import Any

from raysweep.outcome import GateOutcome, PipelineOutcome, SweepOutcome, SweepProgress, TrainOutcome
from raysweep.pipeline.gate import run_gate
from raysweep.run import run_sweep, run_training
from raysweep.spec import TrainSpec
from raysweep.spec.pipeline import PipelineSpec


def run_pipeline(
    pipeline: PipelineSpec | Mapping[str, Any] | str | os.PathLike[str],
    *,
    key: str,
    address: Any = None,
    storage_path: str | None = None,
    on_progress: Callable[[SweepProgress], None] | None = None,
) -> PipelineOutcome:
    """Sweep, gate, train; with the same key, go on where it was, or return what there is.

    Args:
        pipeline: A `PipelineSpec`, a mapping, or the path of a YAML or JSON file.
        key: Names the night.
        address: As in `run_sweep`; one embedded Ray serves all steps.
        storage_path: In place of that of the specs.
        on_progress: Called during the sweeps.

    Raises:
        SweepFailedError: The sweep ended without a result that may be used.
        TrainingFailedError: The training failed.
        RaysweepError: As `run_sweep` and `run_training`.
    """
    spec = PipelineSpec.from_any(pipeline).stored_at(storage_path)
    with _one_ray(address):
        outcome = run_sweep(spec.sweep, key=key, address=address, on_progress=on_progress).raise_for_status()
        if spec.gate is not None:
            verdict = run_gate(spec.sweep, outcome, spec.gate, address=address, on_progress=on_progress)
            outcome = with_gate(outcome, verdict)
        trained = train_best(spec.train, outcome, key=key, address=address)
    return PipelineOutcome(
        sweep=outcome, gate=outcome.gate, train=trained, skipped=why_skipped(spec.train, outcome)
    )


def with_gate(outcome: SweepOutcome, gate: GateOutcome) -> SweepOutcome:
    """The sweep's outcome with the gate's verdict, and its `why` with the gate's."""
    return outcome.model_copy(
        update={"promoted": gate.promoted, "gate": gate, "why": f"{outcome.why}; {gate.why}"}
    )


def train_best(
    train: TrainSpec | None, outcome: SweepOutcome, *, key: str, address: Any = None
) -> TrainOutcome | None:
    """Train the config that the sweep hands on; None where nothing is to be trained.

    With a gate that is the best of the candidates that were run again.
    """
    if train is None or outcome.promoted is False:
        return None
    from raysweep.training.handover import train_spec_for

    return run_training(
        train_spec_for(train, handed_on(outcome)), key=key, address=address
    ).raise_for_status()


def handed_on(outcome: SweepOutcome) -> SweepOutcome:
    """The outcome with the gate's best candidate as its best trial."""
    best = outcome.gate.best if outcome.gate is not None else None
    if best is None:
        return outcome
    trial = next((trial for trial in outcome.trials if trial.trial_id == best.trial_id), None)
    return outcome if trial is None else outcome.model_copy(update={"best": trial})


def why_skipped(train: TrainSpec | None, outcome: SweepOutcome) -> str:
    """Why the training is skipped; empty where it is not."""
    if train is None or outcome.promoted is not False or outcome.gate is None:
        return ""
    return f"training skipped: {outcome.gate.why}"


def _one_ray(address: Any) -> Any:
    from raysweep.cluster.connection import sharing
    from raysweep.jobs.connection import is_jobs_address

    if is_jobs_address(address):
        from contextlib import nullcontext

        return nullcontext()
    return sharing()
