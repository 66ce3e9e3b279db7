"""Nights whose specs come with the run: what the scenarios of `tests/orchestrators` need of a DAG."""

from __future__ import annotations

from datetime import timedelta

from airflow.sdk import DAG

from raysweep_airflow import GateOperator, SweepOperator, TrainOperator

ARGUMENTS = {"retries": 2, "retry_delay": timedelta(seconds=1)}


def night(dag_id: str, *, gate: bool = False, train: bool = True, accept_partial: bool = True) -> DAG:
    with DAG(
        dag_id,
        schedule=None,
        catchup=False,
        default_args=ARGUMENTS,
        # The specs are JSON objects in the run's conf: rendered to objects, not to text.
        render_template_as_native_obj=True,
    ) as dag:
        spec = "{{ dag_run.conf['sweep'] }}"
        last = sweep = SweepOperator(
            task_id="sweep", spec=spec, deferrable=True, accept_partial=accept_partial
        )
        if gate:
            last = GateOperator(
                task_id="gate",
                spec=spec,
                outcome=sweep.output,
                gate="{{ dag_run.conf['gate'] }}",
                deferrable=True,
            )
        if train:
            TrainOperator(
                task_id="train", spec="{{ dag_run.conf['train'] }}", outcome=last.output, deferrable=True
            )
    return dag


night("night")
night("night_alone", train=False)
night("night_gated", gate=True)
night("night_strict", accept_partial=False)
