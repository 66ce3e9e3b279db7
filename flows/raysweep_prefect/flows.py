"""Flows of a pipeline: sweep, let the best config pass the gate, train it at full scale, judge its model."""

# No `from __future__ import annotations`: Prefect 3.4 does not resolve the types of a flow's parameters.
from contextlib import AbstractContextManager, ExitStack, nullcontext
from typing import Any

from prefect import flow
from prefect.runtime import flow_run
from pydantic import BaseModel

import raysweep as rs
from raysweep.hooks.model_registry import RegistrySpec, check_registry
from raysweep.outcome.judgement import Judgement
from raysweep.specs.approval import ApprovalSpec
from raysweep.specs.continuing import Retry
from raysweep.specs.identity import check_distinct
from raysweep.specs.judge import JudgeSpec
from raysweep.specs.pipeline import GateSpec, PipelineSpec
from raysweep.step import why_not_trained
from raysweep_prefect.approval import wait_for_decision, wait_for_release
from raysweep_prefect.blocks import RayCluster
from raysweep_prefect.clusters import Target, find_target
from raysweep_prefect.hooks import stop_sweeps, stop_sweeps_if_aborted
from raysweep_prefect.identity import owner_id
from raysweep_prefect.judging import judge, release
from raysweep_prefect.parameters import JobSettings
from raysweep_prefect.releases import approval as approval_task
from raysweep_prefect.releases import register, roll_back
from raysweep_prefect.tasks import sweep, told_gate, train


class NightOutcome(BaseModel, frozen=True):
    """The sweep's outcome, and the training's if there was one."""

    sweep: rs.SweepOutcome
    train: rs.TrainOutcome | None = None
    skipped: str = ""
    """The reason why the training was skipped; empty where it was not."""
    judged: Judgement | None = None
    """The judgement of the training's model; None without one."""
    released: bool | None = None
    """True if that model was released; None without a judgement."""
    registered: str = ""
    """The state of the registry; empty without one, and where no model of these champions is registered."""


def _name_of_run() -> str:
    given = flow_run.parameters
    key = given.get("key") or "at " + flow_run.scheduled_start_time.strftime("%Y-%m-%d %H:%M")
    return f"{flow_run.flow_name} {key}"


@flow(
    name="nightly-sweep",
    flow_run_name=_name_of_run,
    validate_parameters=True,
    on_cancellation=[stop_sweeps],
    on_crashed=[stop_sweeps_if_aborted],
)
def nightly_sweep(
    spec: rs.SweepSpec | str,
    train_spec: rs.TrainSpec | str | None = None,
    gate_spec: GateSpec | None = None,
    key: str | None = None,
    cluster: RayCluster | str | None = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
    accept_partial: bool = True,
    resume_cancelled: bool = False,
    retry: Retry | None = None,
    restart: bool = False,
    retries: int = 2,
    retry_delay_s: float = 10.0,
    approval: ApprovalSpec | None = None,
    deadline: str | None = None,
    registry: dict[str, Any] | str | None = None,
    judge_spec: JudgeSpec | None = None,
) -> NightOutcome:
    """Run a sweep, let its best config pass the gate, train it at full scale, and judge its model.

    Interrupted and run again with the same key it continues where it was: trials that ended are not run
    again, a finished sweep and a finished training are returned at once.

    Args:
        spec: The sweep's spec, or the path of its YAML or JSON file on the worker.
        train_spec: The training's spec, or the path of its file; without one the night ends with the sweep.
        gate_spec: What the best config has to show before the training; without it, nothing.
        key: Names the night; default: the id of this flow run, which a retry of it keeps.
        cluster: A Ray cluster: a RayCluster block or its name, or an address such as http://head:8265.
            Default: one embedded Ray for all steps.
        storage_path: Where sweep and training are stored, in place of what their specs say.
        job: What jobs on the cluster bring along, and where their drivers run.
        accept_partial: Whether a search that a deadline or a budget cut short counts, with the best so far.
        resume_cancelled: Continue with a sweep of this key that was cancelled.
        retry: Retry failed trials of the ended sweep of this key: all of them (`failed`), or these numbers.
        restart: Put what an earlier flow run stored of the sweep under this key aside, and begin it anew.
            Gate and training follow what it finds: the same best is neither judged nor trained again.
        retries: How many times a step is retried after an error that may pass, such as a lost cluster.
        retry_delay_s: How long before that, in seconds; six times as long from the second on.
        approval: What passes the gate, or with `after: judge` the judgement, waits for a decision: the flow
            run is paused with a form, and holds no Ray. Default: it is promoted at once.
        deadline: When the night ends: `06:00 Europe/Berlin`, the next one after the sweep began, or ISO 8601
            with its offset. All steps end by then; a training that would not is skipped.
        registry: Where champions are registered with their models: `mlflow`, `{"mlflow": {...}}`, or the
            import path of a class. Default: nowhere.
        judge_spec: What the training's model has to show before it is released. Default: nothing.
    """
    pipeline = PipelineSpec.model_validate(
        {
            "sweep": spec,
            "train": train_spec,
            "gate": gate_spec,
            "approval": approval,
            "deadline": deadline,
            "registry": registry,
            "judge": judge_spec,
        }
    ).stored_at(storage_path)
    if pipeline.registry is not None:
        check_registry(pipeline.registry)
    target = find_target(cluster)
    name = key if key is not None else str(owner_id())
    is_judged = judge_spec is not None
    past: dict[str, Any] = {
        "resume_cancelled": resume_cancelled,
        "retry": retry,
        "restart": restart,
    }
    again: dict[str, Any] = {"retries": retries, "retry_delay_seconds": [retry_delay_s, 6 * retry_delay_s]}
    where: dict[str, Any] = {"cluster": cluster, "storage_path": storage_path, "job": job}
    with ExitStack() as ray:
        ray.enter_context(_one_ray(target))
        outcome = sweep.with_options(**again)(spec, name, **where, accept_partial=accept_partial, **past)
        if gate_spec is not None:
            gated = told_gate.with_options(**again)(
                spec,
                name,
                outcome,
                gate_spec,
                **where,
                approval=approval,
                deadline=deadline,
                is_judged=is_judged,
                return_state=True,
            )
            outcome = gated.result()
        if gate_spec is not None and outcome.gate is not None and outcome.gate.is_waiting:
            # Without Ray: it may take hours.
            ray.close()
            wait_for_decision(outcome)
            told = approval_task.with_options(**again)(
                spec, name, outcome, gate_spec, is_judged=is_judged, return_state=True
            )
            outcome = told.result()
            ray.enter_context(_one_ray(target))
        trained, skipped = None, ""
        if train_spec is not None:
            state = train.with_options(**again)(
                train_spec,
                name,
                outcome,
                **where,
                resume_cancelled=resume_cancelled,
                deadline=deadline,
                return_state=True,
            )
            trained = state.result()
            if trained is None:
                # Prefect shows it as completed, named Skipped; in a retry of the flow run, named Cached.
                said = state.message if state.name == "Skipped" else ""
                skipped = why_not_trained(outcome) or said or "training not begun: see the attempt before"
        judgement: Judgement | None = None
        if judge_spec is not None and trained is not None:
            more: dict[str, Any] = {"approval": pipeline.judge_approval, "deadline": deadline}
            state = judge.with_options(**again)(
                spec, name, outcome, trained, judge_spec, **where, **more, return_state=True
            )
            judgement = state.result()
    released = judgement.is_passed if judgement is not None else None
    if judgement is not None and wait_for_release(outcome, judgement) is not None:
        # Without Ray, as above.
        told = release.with_options(**again)(spec, name, outcome, judgement, return_state=True)
        released = told.result()
    registered = ""
    if pipeline.registry is not None:
        registered = register(pipeline, name, outcome, trained)
    return NightOutcome(
        sweep=outcome,
        train=trained,
        skipped=skipped,
        judged=judgement,
        released=released,
        registered=registered,
    )


@flow(
    name="sweep-many",
    flow_run_name=_name_of_run,
    validate_parameters=True,
    on_cancellation=[stop_sweeps],
    on_crashed=[stop_sweeps_if_aborted],
)
def sweep_many(
    data_sets: dict[str, dict[str, Any]],
    spec: rs.SweepSpec | str,
    train_spec: rs.TrainSpec | str | None = None,
    gate_spec: GateSpec | None = None,
    key: str | None = None,
    cluster: RayCluster | str | None = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
    accept_partial: bool = True,
    deadline: str | None = None,
    registry: dict[str, Any] | str | None = None,
) -> dict[str, NightOutcome]:
    """A pipeline for each data set, one after the other, as subflows; if one fails, the others still run.

    Args:
        data_sets: By the name of each data set, what it adds to `param_space` and to the training's config:
            {"east": {"data": "s3://bucket/east"}, "west": {"data": "s3://bucket/west"}}.
        spec: The sweep's spec, or the path of its file; its name gets the data set's name after a dash.
        train_spec: As in nightly-sweep.
        gate_spec: As in nightly-sweep; each data set has a champion of its own.
        key: As in nightly-sweep, the same for all data sets.
        cluster: As in nightly-sweep.
        storage_path: As in nightly-sweep.
        job: As in nightly-sweep.
        accept_partial: As in nightly-sweep.
        deadline: As in nightly-sweep.
        registry: As in nightly-sweep; the registered model has the champion's name.
    """
    sweep_spec = rs.SweepSpec.from_any(spec)
    training = rs.TrainSpec.from_any(train_spec) if train_spec is not None else None
    for field, given_spec in (("spec", sweep_spec), ("train_spec", training)):
        if given_spec is not None:
            check_distinct([f"{given_spec.name}-{label}" for label in data_sets], f"data_sets: {field}")
    name = key if key is not None else str(owner_id())
    states = {}
    with _one_ray(find_target(cluster)):
        for label, given in data_sets.items():
            states[label] = nightly_sweep(
                spec=sweep_spec.replace(
                    name=f"{sweep_spec.name}-{label}", param_space={**sweep_spec.param_space, **given}
                ),
                train_spec=training.replace(
                    name=f"{training.name}-{label}", config={**given, **training.config}
                )
                if training is not None
                else None,
                gate_spec=gate_spec,
                key=name,
                cluster=cluster,
                storage_path=storage_path,
                job=job,
                accept_partial=accept_partial,
                deadline=deadline,
                registry=registry,
                return_state=True,
            )
    return {label: state.result() for label, state in states.items()}


class Sweep(BaseModel, extra="allow"):
    """The content of an event `raysweep.sweep.completed`: the brief of the sweep's outcome."""

    sweep_id: str
    name: str
    key: str
    status: str
    metric: str
    mode: str
    best: dict[str, Any]
    """The best trial: trial_id, score, config, metrics, checkpoint_uri."""
    promoted: bool | None = None
    uri: str = ""


@flow(
    name="train-best",
    flow_run_name=lambda: f"train-best {_parameter('finished', 'sweep_id')}",
    validate_parameters=True,
    on_cancellation=[stop_sweeps],
    on_crashed=[stop_sweeps_if_aborted],
)
def train_best(
    finished: Sweep,
    train_spec: rs.TrainSpec | str,
    cluster: RayCluster | str | None = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
) -> rs.TrainOutcome | None:
    """Train the best config of a sweep that has ended elsewhere: what an automation starts from its event.

    The sweep's id is the training's key: an event that comes twice trains once.

    Args:
        finished: The sweep: the payload of its event raysweep.sweep.completed.
        train_spec: The training's spec, or the path of its file.
        cluster: As in nightly-sweep.
        storage_path: As in nightly-sweep.
        job: As in nightly-sweep.
    """
    where: dict[str, Any] = {"cluster": cluster, "storage_path": storage_path, "job": job}
    with _one_ray(find_target(cluster)):
        state = train(train_spec, finished.sweep_id, finished.model_dump(), **where, return_state=True)
    outcome = state.result()
    assert outcome is None or isinstance(outcome, rs.TrainOutcome)
    return outcome


@flow(name="rollback-champion", flow_run_name=lambda: f"rollback {flow_run.parameters.get('name', '')}")
def rollback_champion(
    name: str,
    storage_path: str,
    to: str | None = None,
    by: str = "",
    why: str = "",
    metric: str | None = None,
    data: str | None = None,
    registry: dict[str, Any] | str | None = None,
) -> dict[str, Any]:
    """Make the champion before the newest one champion again, also in the registry; as `raysweep rollback`.

    Run again, it changes nothing: to go further back, name the night.

    Args:
        name: The champion's name.
        storage_path: Where its sweeps are stored.
        to: The night of an earlier champion. Default: the one before the newest.
        by: Who wants it, for the evidence. Default: the flow run.
        why: Why; the evidence says it.
        metric: Where the name has champions by several metrics.
        data: Where it has champions on several data sets.
        registry: Where champions are registered, as in the pipeline. Default: its next night moves the alias.

    Returns: Whether it changed anything, the champion, and how the registry stands.
    """
    by = by or f"flow run {flow_run.name}"
    named = RegistrySpec.of(registry) if registry is not None else None
    if named is not None:
        check_registry(named)
    return roll_back(name, storage_path, to=to, by=by, why=why, metric=metric, data=data, registry=named)


def _parameter(name: str, field: str) -> str:
    value = flow_run.parameters.get(name)
    return str(value.get(field) if isinstance(value, dict) else getattr(value, field, ""))


def _one_ray(target: Target) -> AbstractContextManager[Any]:
    """One embedded Ray for all steps; a cluster has its own."""
    if target.is_job:
        return nullcontext()
    from raysweep.cluster.ray.connection import sharing

    return sharing()
