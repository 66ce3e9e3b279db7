"""A night on the flights in Airflow. `dags/nightly_sweep.py` adds a deadline and parameters."""

import os
from pathlib import Path

import pendulum
from airflow.sdk import DAG

from raysweep_airflow import GateOperator, SweepOperator, TrainOperator

HERE = Path(__file__).resolve().parent
GATE = {
    "confirm_top_k": 2,
    "seeds": 2,
    "min_improvement": 0.0005,
    "test": "mean",
    "seed_param": "sample_seed",
}
ARGUMENTS = {
    "address": os.environ.get("RAYSWEEP_ADDRESS") or None,
    "job": {"py_modules": [str(HERE.parent)]},  # the code of the trials, for the cluster
    "retries": 3,
}

with DAG(
    "flights",
    schedule="0 22 * * *",
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
):
    sweep = SweepOperator(task_id="sweep", spec="sweep.yaml", **ARGUMENTS)
    gate = GateOperator(task_id="gate", spec="sweep.yaml", outcome=sweep.output, gate=GATE, **ARGUMENTS)
    TrainOperator(task_id="train", spec="train.yaml", outcome=gate.output, **ARGUMENTS)
