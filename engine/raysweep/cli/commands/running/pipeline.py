"""`raysweep pipeline`."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from raysweep.cli.commands.running.sweep import How
from raysweep.cli.consoles import clean_stdout, make_console, print_encoded
from raysweep.cli.exit_codes import DONE
from raysweep.cli.job_messages import JobHow, has_jobs_api
from raysweep.cli.spec_files import read_pipeline
from raysweep.cli.sweep_summary import print_night
from raysweep.live import LiveTable, logged_to
from raysweep.outcome import PipelineOutcome, SweepOutcome, TrainOutcome
from raysweep.provision.lifetime import Night
from raysweep.specs import RunRequest
from raysweep.specs.pipeline import PipelineSpec


@dataclass(frozen=True, slots=True, kw_only=True)
class Asked:
    """The pipeline, and the night of it."""

    path: str
    key: str | None
    storage: str | None
    settings: Sequence[str]


def run(asked: Asked, how: How, job: JobHow) -> int:
    """Run the pipeline that a file describes; returns the exit code. Default key: the sweep's spec.

    Raises:
        SpecError: The file, a setting or an option cannot be used.
    """
    spec = read_pipeline(asked.path, settings=asked.settings, storage=asked.storage)
    request = RunRequest.of(spec.sweep, asked.key)
    is_job = has_jobs_api(how.address, job)
    console = make_console(is_stderr=True)
    rule = "" if asked.key is not None else ' (the spec itself; --key "$(date +%F)" names a night)'
    console.print(f"key {request.run.key}{rule}", soft_wrap=True)
    if is_job and job.detach:
        night = _advance(spec, request.run.key, how, job)
        if night is None:
            text = f"run this again to continue with what follows, with --key {request.run.key}"
            console.print(text, soft_wrap=True)
            return DONE
    else:
        night = _run(spec, request.run.key, how, job, is_job=is_job)
    told = make_console(is_stderr=how.is_json)
    print_night(told, night.sweep, night.train, skipped=night.skipped)
    if night.judgement is not None:
        told.print(f"model {night.judgement.why}", soft_wrap=True)
    if night.registered:
        told.print(night.registered, soft_wrap=True)
    if how.is_json:
        print_encoded(night.to_json())
    return DONE


def _run(spec: PipelineSpec, key: str, how: How, job: JobHow, *, is_job: bool) -> PipelineOutcome:
    from raysweep.pipeline import run_pipeline

    with (
        LiveTable(make_console(is_stderr=how.is_json)) as table,
        logged_to(table.note),
        clean_stdout(is_json=how.is_json),
    ):
        return run_pipeline(
            spec,
            key=key,
            address=how.address,
            on_progress=table,
            num_cpus=how.num_cpus,
            job=job.options if is_job else None,
        )


def _advance(spec: PipelineSpec, key: str, how: How, job: JobHow) -> PipelineOutcome | None:
    """Submit the first step that has not ended, and do not wait; the whole night once all have."""
    from raysweep.hooks.model_registry import check_registry
    from raysweep.pipeline import is_released, prepare_gate, prepare_judge, training_request, with_gate
    from raysweep.pipeline.approval import how_to_decide
    from raysweep.pipeline.night_end import ending_by, night_end, why_not_begun
    from raysweep.pipeline.registering import record_training, register_night
    from raysweep.step import why_not_trained

    if spec.registry is not None:
        check_registry(spec.registry)
    sweep = RunRequest.of(spec.sweep, key)
    night = Night.of(how.address)
    where = how.address or ""
    # One cluster for all steps; as none of these calls waits, its keeper ends it.
    there = where if night is None else Night(cluster=night.cluster, run_id=sweep.run.id, is_shared=True)
    outcome: Any = _submitted(sweep, there, how, job)
    if not isinstance(outcome, SweepOutcome):
        return None
    outcome.raise_for_status()
    ends_at = night_end(spec.deadline, outcome)
    if spec.gate is not None:
        gate = prepare_gate(
            spec.sweep,
            outcome,
            spec.gate,
            spec.approval,
            ends_at,
            is_judged=spec.judge is not None,
        )
        verdict = gate.verdict
        if verdict is None:
            again = _submitted(gate.request, there, how, job)
            if not isinstance(again, SweepOutcome):
                return None
            verdict = gate.settle(again)
        if verdict.is_waiting:
            storage = outcome.uri.rpartition("/")[0]
            text = how_to_decide(verdict, outcome, storage)
            make_console(is_stderr=True).print(text, soft_wrap=True)
            return None
        outcome = with_gate(outcome, verdict)
    skipped = why_not_trained(outcome) if spec.train is not None else ""
    trained: TrainOutcome | None = None
    if spec.train is not None and not skipped:
        asked = training_request(ending_by(spec.train, ends_at, outcome), outcome, key)
        skipped = why_not_begun(asked, ends_at)
        ended = None if skipped else _submitted(asked, there, how, job)
        if not skipped and not isinstance(ended, TrainOutcome):
            return None
        trained = ended.raise_for_status() if isinstance(ended, TrainOutcome) else None
        if trained is not None:
            record_training(outcome, trained)
    judgement, released = None, None
    if spec.judge is not None and trained is not None:
        judge = prepare_judge(
            spec.judge,
            outcome,
            trained,
            approval=spec.judge_approval,
            ends_at=ends_at,
            sweep=spec.sweep,
        )
        judgement = judge.verdict
        if judgement is None:
            again = _submitted(judge.request, there, how, job)
            if not isinstance(again, SweepOutcome):
                return None
            judgement = judge.settle(again)
        released = is_released(outcome)
    return PipelineOutcome(
        sweep=outcome,
        gate=outcome.gate,
        train=trained,
        skipped=skipped,
        judgement=judgement,
        released=released,
        registered=register_night(spec, outcome, trained),
    )


def _submitted(request: Any, there: str | Night, how: How, job: JobHow) -> SweepOutcome | TrainOutcome | None:
    from raysweep.cli import remote

    return remote.run(request, there, job, is_json=how.is_json)
