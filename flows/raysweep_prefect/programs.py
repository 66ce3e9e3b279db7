"""A program that calls Ray Tune as a task: it runs in this process as it is, its sweeps under one key."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Any, cast

from prefect import task

import raysweep as rs
from raysweep.errors import SpecError
from raysweep.jobs.options import JobOptions
from raysweep.specs import RunRequest
from raysweep.specs.continuing import Retry
from raysweep.step import Step, complete
from raysweep.stored import StoredSweep
from raysweep_prefect.clusters import Target, find_target
from raysweep_prefect.identity import default_key
from raysweep_prefect.steps import run_step
from raysweep_prefect.tasks import RESUMABLE, run_name, small


@task(name="tune", task_run_name=partial(run_name, "tune"), **RESUMABLE)
def tune(
    program: str,
    arguments: Sequence[str] = (),
    key: str | None = None,
    cluster: str | None = None,
    storage_path: str | None = None,
    fields: dict[str, Any] | None = None,
    accept_partial: bool = True,
) -> rs.SweepOutcome:
    """Run a Python program that calls Ray Tune, as it is, with raysweep behind `Tuner.fit` and `tune.run`.

    It runs in the process of the flow. A retry runs it again: its sweeps that ended give their results at
    once, and the one that was cut resumes.

    Args:
        program: The path of the program.
        arguments: Its command line.
        key: Names the run. Default: the flow run, retries of it included, and the task's name.
        cluster: The address of a Ray that is near, such as `auto`, or `here`. Default: an embedded Ray.
        storage_path: Where its sweeps are stored. Default: where each tuner stores its experiment.
        fields: Fields of `SweepSpec` for every sweep, such as `{"isolation": "worker"}`.
        accept_partial: Whether a search that a budget cut short counts, with the best so far.

    Returns:
        The outcome of its last sweep; of the trials the best 20.

    Raises:
        SpecError: It uses a part of Tune without a counterpart, ran no sweep, or the cluster takes only jobs.
        SweepFailedError: Its last sweep ended without a result that may be used.
        SystemExit: It ended with another exit code than 0.
        RaysweepError: As `raysweep.run_sweep`.
    """
    from raysweep.tune import run_program

    place = find_target(cluster)
    if place.is_job:
        raise SpecError(
            "cluster", "runs jobs, and the program runs in this process", "give auto, here or none"
        )
    outcomes = run_program(
        program,
        arguments,
        key=key if key is not None else default_key("tune"),
        storage_path=storage_path,
        run=partial(_run_sweep, place),
        **(fields or {}),
    )
    if not outcomes:
        fix = "give a program that does"
        raise SpecError("program", f"{program} called neither Tuner.fit nor tune.run", fix)
    return small(cast("rs.SweepOutcome", complete(outcomes[-1], accept_partial=accept_partial)))


def _run_sweep(place: Target, spec: rs.SweepSpec, *, key: str, retry: Retry | None = None) -> StoredSweep:
    """A sweep of the program: followed as each, and handed back to the program however it ended."""
    step = Step(
        request=RunRequest.of(spec, key),
        place=place,
        options=JobOptions(retry=retry),
        accept_failed=True,
    )
    return StoredSweep.of(cast("rs.SweepOutcome", run_step(step)))
