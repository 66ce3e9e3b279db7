"""The tasks behind a training: the judgement of its model, and the approval of one that passed."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Any

from prefect import task
from prefect.states import Completed

import raysweep as rs
from raysweep.jobs.options import JobOptions
from raysweep.outcome.judgement import Judgement
from raysweep.specs.approval import ApprovalSpec
from raysweep.step import Step
from raysweep_prefect.clusters import find_target
from raysweep_prefect.parameters import JobSettings, JudgeDocument, SweepDocument
from raysweep_prefect.signals import named_night, tell_judgement
from raysweep_prefect.steps import run_logger, run_step
from raysweep_prefect.tasks import AGAIN, ClusterLike, placed, run_name


@task(name="judge", task_run_name=partial(run_name, "judge"), **AGAIN)
def judge(
    spec: SweepDocument,
    key: str | None,
    outcome: rs.SweepOutcome | Mapping[str, Any],
    trained: rs.TrainOutcome | Mapping[str, Any] | None,
    judge_spec: JudgeDocument,
    cluster: ClusterLike = None,
    storage_path: str | None = None,
    job: JobSettings | None = None,
    deadline: str | None = None,
    approval: ApprovalSpec | None = None,
) -> Any:
    """Judge the model of a training beside the released one, and release it if it passes.

    Gives a `Judgement`.

    A model that does not pass keeps the old one released, and the task is completed. Called again, it judges
    again where an evaluation failed or was cut; any other judgement stands. Without a training it is named
    Skipped. The worker needs `raysweep[judge]`, and reads the model.

    Args:
        spec: The sweep's spec: its webhooks hear of a release.
        key: Names the night; the sweep's own key is in its outcome.
        outcome: What `gate(..., is_judged=True)` gave.
        trained: What `train` gave.
        judge_spec: What the model has to show: the fields of a `JudgeSpec`.
        cluster: As in `sweep`.
        storage_path: As in `sweep`.
        job: As in `sweep`.
        deadline: When the night ends, as a pipeline has it: one that still runs then releases nothing.
        approval: What passes is released once it is approved. Default: as the gate was told.

    Raises:
        SpecError: Sweep, gate and training do not belong together, or the gate expected no judgement.
        RaysweepError: As `raysweep.run_sweep`.
    """
    from raysweep.pipeline import prepare_judge
    from raysweep.pipeline.night_end import night_end, read_deadline

    if trained is None:
        return Completed(name="Skipped", message="judgement skipped: there is no training")
    asked = placed(rs.SweepSpec.from_any(spec), storage_path)
    prepared = prepare_judge(
        judge_spec,
        outcome,
        trained,
        approval=approval,
        ends_at=night_end(read_deadline(deadline), outcome),
        sweep=asked,
    )
    verdict = prepared.verdict
    if verdict is None:
        options = JobOptions.of(job or JobSettings()).replace(resume_cancelled=True, retry="failed")
        step = Step(request=prepared.request, place=find_target(cluster), options=options, accept_failed=True)
        again = run_step(step)
        assert isinstance(again, rs.SweepOutcome)
        verdict = prepared.settle(again)
    run_logger().info("judge: %s", verdict.why)
    tell_judgement(prepared.line, named_night(outcome))
    return Completed(message=verdict.why, data=verdict)


@task(name="approval", task_run_name=partial(run_name, "approval"), **AGAIN)
def release(spec: SweepDocument, key: str | None, outcome: rs.SweepOutcome, judgement: Judgement) -> Any:
    """Tell of the decision about a model that passed its judgement; the state is named Approved or Rejected.

    Args:
        spec: The sweep's spec.
        key: Names the night.
        outcome: What the sweep gave, with the verdict of its gate.
        judgement: That of the model, about which there is a decision.

    Raises:
        StorageError: The decision cannot be read.
    """
    from raysweep.pipeline.candidate import find_candidate

    candidate = find_candidate(named_night(outcome), is_judged=True)
    decision = candidate.decide() if candidate is not None else None
    assert candidate is not None
    assert decision is not None, "a model that was decided about"
    tell_judgement(candidate.line, named_night(outcome))
    name = "Approved" if decision.approved else "Rejected"
    return Completed(name=name, message=f"{judgement.why}; {decision}", data=decision.approved)
