"""Nights whose specs come with the run: what the scenarios of `tests/orchestrators` need of a DAG."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

from airflow.sdk import DAG

from raysweep_airflow import ApproveOperator, GateOperator, SweepOperator, TrainOperator

ARGUMENTS = {"retries": 2, "retry_delay": timedelta(seconds=1)}
# For nights with many faults: retries that are enough for them, and a lease that ends what is orphaned.
STRESS = ARGUMENTS | {"retries": 10, "job": {"lease_ttl_s": "{{ dag_run.conf['job']['lease_ttl_s'] }}"}}


def night(
    dag_id: str,
    *,
    gate: bool = False,
    train: bool = True,
    accept_partial: bool = True,
    approval: bool = False,
    arguments: dict[str, Any] = ARGUMENTS,
) -> DAG:
    with DAG(
        dag_id,
        schedule=None,
        catchup=False,
        default_args=arguments,
        # The specs are JSON objects in the run's conf: rendered to objects, not to text.
        render_template_as_native_obj=True,
    ) as dag:
        last: Any
        spec = "{{ dag_run.conf['sweep'] }}"
        last = sweep = SweepOperator(
            task_id="sweep", spec=spec, deferrable=True, accept_partial=accept_partial, on_clear="resume"
        )
        if gate:
            last = GateOperator(
                task_id="gate",
                spec=spec,
                outcome=sweep.output,
                gate="{{ dag_run.conf['gate'] }}",
                approval="{{ dag_run.conf['approval'] }}" if approval else None,
                deferrable=True,
            )
        if approval:
            last = ApproveOperator(task_id="approve", outcome=last.output, check_every=timedelta(seconds=30))
        if train:
            TrainOperator(
                task_id="train",
                spec="{{ dag_run.conf['train'] }}",
                outcome=last.output,
                registry="{{ dag_run.conf['registry'] }}" if approval else None,
                deferrable=True,
            )
    return dag


night("night")
night("night_alone", train=False)
night("night_gated", gate=True)
night("night_strict", accept_partial=False)
night("night_leased", gate=True, arguments=STRESS)
night("night_asked", gate=True, approval=True, arguments=STRESS)
