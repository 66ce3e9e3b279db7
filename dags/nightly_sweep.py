"""Every night at 22:00 in Berlin: sweep (until 06:00), gate, full-scale training of the best, champion.

The sweep's deadline is part of the spec (`night.yaml`): at 06:00 it ends with the best so far, and one that
was begun late has less time, not another end. The gate runs the best again beside the champion of earlier
nights; what is not better is not trained: the training is skipped. Gate and training have an hour each, and
`NIGHT` after its start the whole run is over: what is not done then is cancelled on the cluster.

Change `SPECS` to where your specs are, or write them beside this file. With `RAYSWEEP_ADDRESS=local` it runs
on a Ray inside the tasks; otherwise on the cluster of the connection `raysweep_default`.

With `RAYSWEEP_APPROVAL=required` a person decides about what passes the gate: the task `approve` waits for
three hours, without a worker slot, and then rejects it.
"""

from __future__ import annotations

import os
from datetime import timedelta
from pathlib import Path

import pendulum
from airflow.sdk import DAG, Param

from raysweep_airflow import GateOperator, SweepOperator, TrainOperator

SPECS = Path(__file__).resolve().parents[1] / "examples"
# The code of the trials, for the cluster; `pip` and the like go in here too.
JOB = {"py_modules": [str(SPECS)]}
# The only storage that a run may name, beside that of its connection: what lies there is trusted.
STORAGE = os.environ.get("RAYSWEEP_STORAGE", "")
APPROVAL = {"timeout": "3h"} if os.environ.get("RAYSWEEP_APPROVAL") == "required" else None
# From 22:00 to 06:00, and what gate and training get, each with time for a retry; then the wait for a person.
NIGHT = timedelta(hours=15 if APPROVAL else 12)
STEP = timedelta(hours=1)
COMMON = {
    "retries": 3,
    "retry_delay": timedelta(minutes=2),
    "deferrable": True,
    "address": os.environ.get("RAYSWEEP_ADDRESS") or None,
}

with DAG(
    dag_id="nightly_sweep",
    schedule="0 22 * * *",
    # The zone of the start date is that of the schedule: 22:00 stays 22:00 when the clocks change.
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
    max_active_runs=1,
    dagrun_timeout=NIGHT,
    default_args=COMMON,
    params={
        "example": Param(
            os.environ.get("RAYSWEEP_EXAMPLE", "flights"),
            enum=["flights", "quick"],
            description="`quick` takes seconds",
        ),
        "deadline": Param(
            "06:00 Europe/Berlin",
            type="string",
            pattern="^[0-9A-Za-z:.+/_ -]{1,64}$",
            description="of the sweep: the next one after the start",
        ),
        "storage": Param(
            STORAGE,
            enum=sorted({"", STORAGE}),
            description="where sweeps are stored; empty: as the connection says",
        ),
    },
    template_searchpath=[str(SPECS)],
    doc_md=__doc__,
    tags=["raysweep"],
) as dag:
    sweep = SweepOperator(task_id="sweep", spec="night.yaml", job=JOB)
    gate = GateOperator(
        task_id="gate",
        spec="night.yaml",
        outcome=sweep.output,
        gate={
            "confirm_top_k": 2,
            "seeds": 2,
            "min_improvement": 0.0005,
            "test": "mean",
            "seed_param": "sample_seed",
        },
        approval=APPROVAL,
        job=JOB,
        execution_timeout=STEP,
    )
    last = gate
    if APPROVAL:
        from raysweep_airflow import ApproveOperator  # requires Airflow 3.1

        last = ApproveOperator(task_id="approve", outcome=gate.output)
    train = TrainOperator(
        task_id="train", spec="night_train.yaml", outcome=last.output, job=JOB, execution_timeout=STEP
    )
