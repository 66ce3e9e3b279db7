"""A sweep, its gate and a training as tasks: retried where that can help, resumed where they stopped."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from pathlib import PurePath
from typing import Any, Final, TypeVar

from prefect import Task, task
from prefect.cache_policies import NO_CACHE
from prefect.client.schemas.objects import State, TaskRun
from prefect.runtime import flow_run, task_run
from prefect.states import Completed
from pydantic import BaseModel

import raysweep as rs
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.options import JobOptions
from raysweep.specs import RunRequest
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.continuing import Retry
from raysweep.step import Step, why_not_trained
from raysweep_prefect.blocks import RayCluster
from raysweep_prefect.clusters import find_target
from raysweep_prefect.following import show_report
from raysweep_prefect.identity import cache_key, default_key
from raysweep_prefect.parameters import GateDocument, JobSettings, SweepDocument, TrainDocument
from raysweep_prefect.signals import source_of, tell_verdict
from raysweep_prefect.steps import run_logger, run_step

SpecT = TypeVar("SpecT", rs.SweepSpec, rs.TrainSpec)
ClusterLike = RayCluster | ClusterConnection | dict[str, Any] | str | None
"""A block, a block's name, a connection, an address, `{rayjob: …}`; None: an embedded Ray."""

KEPT_TRIALS: Final = 20
"""The number of the best trials that a task's result keeps; all are in the storage."""


def is_retryable(task: Task[..., Any], task_run: TaskRun, state: State[Any]) -> bool:
    """True if another try may help: for lost clusters and storage yes, for bad specs and user code no."""
    try:
        state.result()
    except rs.RaysweepError as error:
        return error.retryable
    except Exception:  # noqa: BLE001  not ours: whatever it was, the same call would end the same way
        return False
    return False


def run_name(kind: str) -> str:
    """Prefect's name for the run of a task: its kind and its key; without a key the name of what it runs."""
    given = task_run.parameters
    return f"{kind} {given.get('key') or _spec_name(given.get('spec', given.get('program')))}".rstrip()


def _spec_name(spec: Any) -> str:
    """Of a spec, a mapping, or the path of a file."""
    if isinstance(spec, Mapping):
        return str(spec.get("name", ""))
    return str(getattr(spec, "name", "") if isinstance(spec, BaseModel) else PurePath(str(spec)).stem)


RESUMABLE: Final[dict[str, Any]] = {
    "retries": 2,
    "retry_delay_seconds": [10, 60],
    "retry_condition_fn": is_retryable,
    "persist_result": True,
    "result_serializer": "json",
    "cache_key_fn": cache_key,
}
AGAIN: Final[dict[str, Any]] = {
    "retries": 2,
    "retry_delay_seconds": [10, 60],
    "retry_condition_fn": is_retryable,
    "cache_policy": NO_CACHE,
}
"""For tasks that see by themselves what is done: called again they do the rest."""


@task(name="sweep", task_run_name=partial(run_name, "sweep"), **RESUMABLE)
def sweep(
    spec: SweepDocument,
    key: str | None = None,
    cluster: ClusterLike = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
    accept_partial: bool = True,
    resume_cancelled: bool = False,
    retry: Retry | None = None,
    extend: dict[str, Any] | None = None,
    restart: bool = False,
) -> rs.SweepOutcome:
    """Run a sweep, or continue with it where an earlier run with this key stopped.

    Args:
        spec: The sweep's spec: the model, a mapping, or the path of a YAML or JSON file.
        key: Names the run: the same key is the same sweep. Default: the flow run, retries of it included, and
            the task's name.
        cluster: A RayCluster block or its name, a connection or an address; `rayjob:night.yaml` is a cluster
            that is brought up for the task. Default: an embedded Ray.
        storage_path: In place of the spec's own.
        job: What the job brings along, where it is one.
        accept_partial: Whether a search that a deadline or a budget cut short counts, with the best so far.
        resume_cancelled: Continue with a sweep that was cancelled.
        retry: Retry failed trials of an ended sweep: all of them (`failed`), or these numbers.
        extend: Once it has completed, let the best go further: `{"top": 3, "max_t": 81}`.
        restart: Put what an earlier flow run stored under this key aside, and begin anew.

    Returns:
        The outcome; of the trials the best 20. All are at `outcome.uri`.

    Raises:
        SweepFailedError: The sweep ended without a result that may be used.
        RaysweepError: As `raysweep.run_sweep`.
    """
    asked = placed(rs.SweepSpec.from_any(spec), storage_path)
    options = JobOptions.of(job or JobSettings())
    wanted = {"resume_cancelled": resume_cancelled or None, "retry": retry, "extend": extend}
    step = Step(
        request=RunRequest.of(asked, key if key is not None else default_key("sweep")),
        place=find_target(cluster),
        options=options.replace(**{name: each for name, each in wanted.items() if each is not None}),
        accept_partial=accept_partial,
    )
    if restart:
        # What this flow run has begun itself, before a retry or a crash of it, continues.
        step.put_aside(before=flow_run.scheduled_start_time.timestamp())
    outcome = run_step(step)
    assert isinstance(outcome, rs.SweepOutcome)
    return small(outcome)


@task(name="gate", task_run_name=partial(run_name, "gate"), **RESUMABLE)
def gate(
    spec: SweepDocument,
    key: str | None,
    outcome: rs.SweepOutcome,
    gate_spec: GateDocument,
    cluster: ClusterLike = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
    deadline: str | None = None,
    is_judged: bool = False,
) -> rs.SweepOutcome:
    """Run the best configs again beside the champion; returns the sweep's outcome with the verdict in it.

    Args:
        spec: The sweep's spec.
        key: Names the night; the sweep's own key is in its outcome.
        outcome: What the sweep gave.
        gate_spec: What its best has to show: the fields of a `GateSpec`.
        cluster: As in `sweep`.
        storage_path: As in `sweep`.
        job: As in `sweep`.
        deadline: When the night ends, as a pipeline has it: a gate that still runs then decides nothing.
        is_judged: What passes is champion only once `judge` has released its model.

    Raises:
        RaysweepError: As `raysweep.pipeline.run_gate`.
    """
    where = cluster, storage_path, job
    return _gated(spec, outcome, gate_spec, *where, deadline, is_judged=is_judged)


@task(name="gate", task_run_name=partial(run_name, "gate"), **RESUMABLE)
def told_gate(
    spec: SweepDocument,
    key: str | None,
    outcome: rs.SweepOutcome,
    gate_spec: GateDocument,
    cluster: ClusterLike = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
    approval: ApprovalSpec | None = None,
    deadline: str | None = None,
    is_judged: bool = False,
) -> Any:
    """`gate` for a flow that takes the state of the task: the verdict is the state's message."""
    where = cluster, storage_path, job
    gated = _gated(spec, outcome, gate_spec, *where, deadline, approval, is_judged=is_judged)
    return Completed(message=gated.gate.why if gated.gate is not None else None, data=gated)


def _gated(
    spec: SweepDocument,
    outcome: rs.SweepOutcome,
    gate_spec: GateDocument,
    cluster: ClusterLike,
    storage_path: str | None,
    job: JobSettings | None,
    deadline: str | None,
    approval: ApprovalSpec | None = None,
    *,
    is_judged: bool = False,
) -> rs.SweepOutcome:
    from raysweep.pipeline import prepare_gate, with_gate
    from raysweep.pipeline.night_end import night_end, read_deadline

    asked = placed(rs.SweepSpec.from_any(spec), storage_path)
    ends_at = night_end(read_deadline(deadline), outcome)
    prepared = prepare_gate(asked, outcome, gate_spec, approval, ends_at, is_judged=is_judged)
    verdict = prepared.verdict
    if verdict is None:
        options = JobOptions.of(job or JobSettings())
        again = run_step(Step(request=prepared.request, place=find_target(cluster), options=options))
        assert isinstance(again, rs.SweepOutcome)
        verdict = prepared.settle(again)
    run_logger().info("gate: %s", verdict.why)
    # The sweep's own report was written before there was a verdict.
    show_report(prepared.outcome.model_copy(update={"promoted": verdict.promoted, "gate": verdict}))
    gated = with_gate(outcome, verdict)
    tell_verdict(asked, gated, prepared.gate, is_judged=is_judged)
    return gated


@task(name="train", task_run_name=partial(run_name, "train"), **RESUMABLE)
def train(
    spec: TrainDocument,
    key: str | None = None,
    outcome: rs.SweepOutcome | Mapping[str, Any] | None = None,
    cluster: ClusterLike = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
    resume_cancelled: bool = False,
    deadline: str | None = None,
) -> Any:
    """Train at full scale, with the best config of `outcome` under the spec's own `config`.

    With a key and a config that were trained before it returns that run's outcome, or continues from its
    newest checkpoint; another config of the same night is another run.
    What the gate did not promote is not trained, and neither is what would not end by the deadline: the task
    is completed, named Skipped, and says why.

    Args:
        spec: The training's spec: the model, a mapping, or the path of a YAML or JSON file.
        key: Names the run. Default: the flow run, retries of it included.
        outcome: What the sweep gave, or its brief, as events carry it.
        cluster: As in `sweep`.
        storage_path: As in `sweep`.
        job: As in `sweep`.
        resume_cancelled: Resume a training that was cancelled, from its newest checkpoint.
        deadline: When the night ends, as a pipeline has it. The training ends by then; one that would not,
            by how long earlier ones took, is not begun.

    Raises:
        TrainingFailedError: The training failed.
        SweepFailedError: `outcome` has no best trial.
        RaysweepError: As `raysweep.run_training`.
    """
    from raysweep.pipeline import training_request
    from raysweep.pipeline.night_end import ending_by, night_end, read_deadline, why_not_begun
    from raysweep.pipeline.registering import record_training
    from raysweep.pipeline.rollback import why_undone

    asked = placed(rs.TrainSpec.from_any(spec), storage_path)
    skipped = why_not_trained(outcome)
    if skipped:
        return Completed(name="Skipped", message=skipped)  # Prefect takes a state that a task returns
    ends_at = night_end(read_deadline(deadline), outcome)
    name = key if key is not None else default_key("train")
    request = training_request(ending_by(asked, ends_at, outcome), outcome, name)
    skipped = why_undone(request, outcome) or why_not_begun(request, ends_at)
    if skipped:
        run_logger().warning("%s", skipped)
        return Completed(name="Skipped", message=skipped)
    options = JobOptions.of(job or JobSettings())
    step = Step(
        request=request,
        place=find_target(cluster),
        options=options.replace(resume_cancelled=True) if resume_cancelled else options,
    )
    trained = run_step(step, made_from=source_of(outcome))
    assert isinstance(trained, rs.TrainOutcome)
    record_training(outcome, trained)
    return trained


def small(outcome: rs.SweepOutcome) -> rs.SweepOutcome:
    """The outcome with the best trials only, without their attempts: what a task's result keeps."""
    trials = tuple(trial.model_copy(update={"attempts": ()}) for trial in outcome.top(KEPT_TRIALS))
    best = outcome.found_best
    best = best.model_copy(update={"attempts": ()}) if best is not None else None
    return outcome.model_copy(update={"trials": trials, "best": best})


def placed(spec: SpecT, storage_path: str | None) -> SpecT:
    """The spec, stored there if that is given."""
    return spec if storage_path is None else spec.replace(storage_path=storage_path)
