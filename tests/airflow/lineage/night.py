"""A night of one trial on a Ray inside the tasks, whose operators say what they have read and written."""

from __future__ import annotations

from airflow.sdk import DAG

from raysweep_airflow import ApproveOperator, GateOperator, SweepOperator, TrainOperator

SPEC = "{{ dag_run.conf['sweep'] }}"

with DAG("lineage", schedule=None, render_template_as_native_obj=True, default_args={"address": "local"}):
    sweep = SweepOperator(task_id="sweep", spec=SPEC)
    gate = GateOperator(
        task_id="gate",
        spec=SPEC,
        outcome=sweep.output,
        gate={"confirm_top_k": 1, "seeds": 1, "test": "mean"},
    )
    approve = ApproveOperator(task_id="approve", outcome=gate.output)
    TrainOperator(task_id="train", spec="{{ dag_run.conf['train'] }}", outcome=approve.output)
