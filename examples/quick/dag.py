"""A quick sweep in Airflow, and the training of its best config; RAYSWEEP_ADDRESS=local needs no cluster."""

import os
from pathlib import Path

import pendulum
from airflow.sdk import DAG

from raysweep_airflow import SweepOperator, TrainOperator

HERE = Path(__file__).resolve().parent
ARGUMENTS = {
    "address": os.environ.get("RAYSWEEP_ADDRESS") or None,
    "job": {"py_modules": [str(HERE.parent)]},  # the code of the trials, for the cluster
    "retries": 3,
}

with DAG("quick", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), catchup=False):
    sweep = SweepOperator(task_id="sweep", spec="sweep.yaml", **ARGUMENTS)
    TrainOperator(task_id="train", spec="train.yaml", outcome=sweep.output, **ARGUMENTS)
