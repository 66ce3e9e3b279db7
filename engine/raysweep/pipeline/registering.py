"""Registers what a night promoted, once its model is there."""

from __future__ import annotations

import logging

from raysweep.outcome import GateOutcome, SweepOutcome, TrainOutcome
from raysweep.pipeline.approval import champion_line
from raysweep.runs.across_runs.registrations import add_model, release_id, sync
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store

log = logging.getLogger("raysweep")


def register_night(spec: PipelineSpec, outcome: SweepOutcome, trained: TrainOutcome | None) -> str:
    """Bring the registry to the champion; also what an earlier night could not. Returns a line that says how.

    Args:
        spec: The pipeline's.
        outcome: The sweep's, with the verdict of its gate.
        trained: The training, if there was one.

    Raises: StorageError. A registry that does not answer raises nothing: the next night continues with it.
    """
    if spec.registry is None or spec.gate is None:
        return ""
    storage = outcome.uri.rpartition("/")[0] or spec.sweep.storage_path
    store, line = open_store(storage), champion_line(spec.sweep, spec.gate)
    verdict = outcome.gate
    if verdict is not None and verdict.promoted:
        source = _source(spec, verdict, trained)
        if source:
            champion = release_id(line, outcome.sweep_id, _since(verdict))
            run_id = trained.run_id if trained is not None else ""
            add_model(store, line, spec.registry, champion, source, run_id)
        else:
            log.warning("registry: nothing is registered: there is no model, and no checkpoint")
    synced = sync(store, line)
    if synced is None:
        return ""
    if synced.pending:
        log.warning("%s; the next night, or `raysweep register %s`, asks again", synced, line.name)
    return str(synced)


def _source(spec: PipelineSpec, verdict: GateOutcome, trained: TrainOutcome | None) -> str:
    if spec.train is not None:
        return (trained.model_uri or trained.checkpoint_uri or "") if trained is not None else ""
    best = verdict.best
    return (best.checkpoint_uri or "") if best is not None else ""


def _since(verdict: GateOutcome) -> float:
    """When its candidate became champion."""
    decision = verdict.approval.decision if verdict.approval is not None else None
    return decision.at if decision is not None else verdict.at
