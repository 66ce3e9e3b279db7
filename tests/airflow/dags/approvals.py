"""Nights that wait for a person: a whole one, and one whose gate has ended before the run."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG, Asset, task

from raysweep_airflow import ApproveOperator, GateOperator, SweepOperator, TrainOperator

ARGUMENTS = {"retries": 2, "retry_delay": timedelta(seconds=1)}
PLAIN: dict[str, Any] = {"schedule": None, "catchup": False, "render_template_as_native_obj": True}
CHAMPION = Asset("flights-champion")
SPEC = "{{ dag_run.conf['sweep'] }}"

with DAG("night_approved", default_args=ARGUMENTS, **PLAIN):
    sweep = SweepOperator(task_id="sweep", spec=SPEC, deferrable=True)
    gate = GateOperator(
        task_id="gate",
        spec=SPEC,
        outcome=sweep.output,
        gate={"confirm_top_k": 1, "seeds": 1, "test": "mean"},
        approval="required",
        deferrable=True,
    )
    approve = ApproveOperator(task_id="approve", outcome=gate.output)
    TrainOperator(
        task_id="train", spec="{{ dag_run.conf['train'] }}", outcome=approve.output, deferrable=True
    )

with DAG("approved", default_args=ARGUMENTS, **PLAIN):
    alone = ApproveOperator(
        task_id="approve",
        outcome="{{ dag_run.conf['outcome'] }}",
        check_every=timedelta(seconds=45),
        outlets=[CHAMPION],
    )

    @task
    def after(outcome: Any) -> str:
        """What is promoted comes here."""
        return str(outcome["gate"]["why"])

    after(alone.output)
