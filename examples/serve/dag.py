"""The settings of an inference server in Airflow; RAYSWEEP_ADDRESS=local needs no cluster."""

import os
from pathlib import Path

import pendulum
from airflow.sdk import DAG

from raysweep_airflow import SweepOperator

HERE = Path(__file__).resolve().parent

with DAG("serve", schedule=None, start_date=pendulum.datetime(2026, 1, 1, tz="UTC"), catchup=False):
    SweepOperator(
        task_id="sweep",
        spec="sweep.yaml",
        address=os.environ.get("RAYSWEEP_ADDRESS") or None,
        job={"working_dir": str(HERE.parents[1])},  # the scripts, for the cluster
        retries=3,
    )
