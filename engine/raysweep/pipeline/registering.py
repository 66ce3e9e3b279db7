"""Registers what a night promoted, once its model is there; and how well its training was predicted."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from typing import Any

from raysweep.errors import SpecError, StorageError
from raysweep.hooks.model_registry import RegistrySpec
from raysweep.outcome import GateOutcome, SweepOutcome, TrainOutcome
from raysweep.pipeline.approval import champion_line
from raysweep.runs.across_runs.champions import ChampionRecord, Line, read_champion, read_records
from raysweep.runs.across_runs.events import Event, Trained
from raysweep.runs.across_runs.line_journal import LineJournal, change_line
from raysweep.runs.across_runs.records import release_id
from raysweep.runs.across_runs.registrations import add_model, sync
from raysweep.runs.across_runs.releases import this_user
from raysweep.runs.across_runs.verdicts import read_verdict
from raysweep.specs.pipeline import PipelineSpec
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

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
    source = model_source(verdict, trained, is_trained=spec.train is not None) if verdict is not None else ""
    return _register(store, line, spec.registry, outcome.sweep_id, verdict, source, trained)


def register_step(
    registry: RegistrySpec, given: Mapping[str, Any], trained: TrainOutcome | None = None
) -> str:
    """`register_night` for a step of a DAG, which has the brief of the sweep's outcome and no pipeline.

    Args:
        registry: The registry.
        given: The brief, with the verdict of the gate, or an entry of its `top_k`: another trial than the
            promoted one is not registered.
        trained: The training; None: the model is the candidate's checkpoint.

    Raises:
        SpecError: It is not what a gate handed on.
        StorageError.
    """
    gate = given.get("gate")
    if not isinstance(gate, Mapping) or not gate.get("gate_id") or not given.get("uri"):
        fix = "give what a gate handed on: outcome=gate.output, or leave registry out"
        raise SpecError("registry", "requires the verdict of a gate", fix)
    storage, _, sweep_id = str(given["uri"]).rpartition("/")
    store, gate_id = open_store(storage), str(gate["gate_id"])
    verdict = read_verdict(store, sweep_id, gate_id)
    line = find_line(store, str(given.get("name", "")), sweep_id, gate_id)
    if line is None or verdict is None or not _is_of_best(given, sweep_id, verdict):
        return ""
    source = model_source(verdict, trained, is_trained=trained is not None)
    return _register(store, line, registry, sweep_id, verdict, source, trained)


def record_training(given: SweepOutcome | Mapping[str, Any] | None, trained: TrainOutcome) -> None:
    """Add the score of a night's training, and what a law predicted, to the line of its gate; once.

    Nothing where no law predicted a score, or no gate decided.

    Args:
        given: The sweep's outcome with the verdict of its gate, or the brief of it.
        trained: The training.

    Raises: StorageError.
    """
    if trained.predicted is None or given is None:
        return
    kept = {"name", "uri", "gate"}
    fields = given.model_dump(mode="json", include=kept) if isinstance(given, SweepOutcome) else given
    gate, uri = fields.get("gate"), str(fields.get("uri") or "")
    if not isinstance(gate, Mapping) or not gate.get("gate_id") or not uri:
        return
    storage, _, sweep_id = uri.rpartition("/")
    where = {"sweep_id": sweep_id, "gate": str(gate["gate_id"])}
    record = find_record(open_store(storage), str(fields.get("name", "")), *where.values())
    if record is None or record.line is None:
        return
    told = {"run_id": trained.run_id, "predicted": trained.predicted}

    def add(_: LineJournal, record: ChampionRecord) -> Event | None:
        night = record.night(*where.values())
        if night is None or (night.trained, night.predicted) == (trained.run_id, trained.predicted):
            return None
        return Trained.model_validate({"by": this_user(), "at": time.time(), **where, **told})

    change_line(open_store(storage), record.line, add)


def _is_of_best(given: Mapping[str, Any], sweep_id: str, verdict: GateOutcome) -> bool:
    """True if the step has the candidate, and not another one of the best trials."""
    trial = given.get("best") or given
    best = verdict.best
    return not verdict.promoted or (best is not None and trial.get("trial_id") == best.trial_in(sweep_id))


def find_line(store: Store, name: str, sweep_id: str, gate_id: str) -> Line | None:
    """The line of champions that a gate decided in; None where there is no champion.

    Args:
        store: Where the sweeps are.
        name: The sweep's, where it is known; its gate may have named another champion.
        sweep_id, gate_id: The gate.

    Raises: StorageError: No line that can be read has it, and one is damaged.
    """
    record = find_record(store, name, sweep_id, gate_id)
    return record.line if record is not None and record.champion is not None else None


def find_record(store: Store, name: str, sweep_id: str, gate_id: str) -> ChampionRecord | None:
    """The state of the line of champions that a gate decided in; arguments and errors as `find_line`."""
    damaged: tuple[StorageError, ...] = ()
    for which in (name, None) if name else (None,):
        records, damaged = read_records(store, which)
        for record in records:
            if record.night(sweep_id, gate_id) is not None:
                return record
    if damaged:
        raise damaged[0]
    return None


def _register(
    store: Store,
    line: Line,
    registry: RegistrySpec,
    sweep_id: str,
    verdict: GateOutcome | None,
    source: str,
    trained: TrainOutcome | None,
) -> str:
    if verdict is not None and verdict.promoted and not _is_judged(store, line, sweep_id, verdict):
        if source:
            champion = release_id(line, sweep_id, _since(verdict))
            add_model(store, line, champion, source, trained=trained)
        else:
            why = (
                "the training fell below its prediction"
                if _fell(trained)
                else "there is no model, and no checkpoint"
            )
            log.warning("registry: nothing is registered: %s", why)
    synced = sync(store, line, registry)
    if synced is None:
        return ""
    if synced.pending:
        log.warning("%s; the next night, or `raysweep register`, asks again", synced)
    return str(synced)


def _fell(trained: TrainOutcome | None) -> bool:
    return trained is not None and trained.ended_by == "below_prediction"


def _is_judged(store: Store, line: Line, sweep_id: str, verdict: GateOutcome) -> bool:
    """True if its model is released by a judgement, which names it."""
    night = read_champion(store, line).night(sweep_id, verdict.gate_id)
    return night is not None and night.to_judge is not None


def model_source(verdict: GateOutcome, trained: TrainOutcome | None, *, is_trained: bool) -> str:
    """The address of the model that a night registers; empty: there is none, or it is not good enough."""
    if is_trained:
        if trained is None or _fell(trained):
            return ""
        return trained.model_uri or trained.checkpoint_uri or ""
    best = verdict.best
    return (best.checkpoint_uri or "") if best is not None else ""


def _since(verdict: GateOutcome) -> float:
    """The time at which its candidate became champion."""
    decision = verdict.approval.decision if verdict.approval is not None else None
    return decision.at if decision is not None else verdict.at
