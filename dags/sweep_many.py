"""One sweep for each data set: the flights of each airport of New York, by dynamic task mapping.

Each mapped task is a sweep of its own, with a key of its own; one that fails or is cleared concerns no other.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path
from typing import Any

import pendulum
from airflow.sdk import DAG, Param, task

from raysweep_airflow import SweepOperator

SPECS = Path(__file__).resolve().parents[1] / "examples"

with DAG(
    dag_id="sweep_many",
    schedule=None,
    start_date=pendulum.datetime(2026, 1, 1, tz="Europe/Berlin"),
    catchup=False,
    params={
        "airports": Param(
            ["EWR", "JFK", "LGA"],
            type="array",
            items={"type": "string", "pattern": "^[A-Z]{3}$"},
            maxItems=20,
        ),
        "num_samples": Param(12, type="integer", minimum=1, maximum=1000, description="trials of each sweep"),
        "rows": Param(20_000, type="integer", minimum=100, description="flights that each trial learns from"),
    },
    doc_md=__doc__,
    tags=["raysweep"],
):

    @task
    def specs(params: Any = None) -> list[dict[str, Any]]:
        """One spec for each airport."""
        return [
            {
                "name": f"flights-{airport.lower()}",
                "trainable": "examples.flights:train",
                "metric": "auc",
                "mode": "max",
                "num_samples": params["num_samples"],
                "seed": 2013,
                "param_space": {
                    "origin": airport,
                    "rows": params["rows"],
                    "learning_rate": {"loguniform": [0.01, 0.3]},
                    "num_leaves": {"lograndint": [8, 256]},
                    "min_child_samples": {"lograndint": [10, 1000]},
                },
                "search": "tpe",
                "scheduler": {"asha": {"max_t": 27, "grace_period": 3, "reduction_factor": 3}},
            }
            for airport in params["airports"]
        ]

    sweeps = SweepOperator.partial(
        task_id="sweep",
        job={"py_modules": [str(SPECS)]},
        address=os.environ.get("RAYSWEEP_ADDRESS") or None,
        deferrable=True,
        retries=3,
        retry_delay=timedelta(minutes=2),
        # Two at a time: the cluster is shared.
        max_active_tis_per_dagrun=2,
        map_index_template="{{ task.spec['name'] }}",
    ).expand(spec=specs())

    @task
    def compare(outcomes: Sequence[dict[str, Any]]) -> dict[str, Any]:
        """The best of each airport."""
        return {each["name"]: each["best"]["metrics"] | each["best"]["config"] for each in outcomes}

    compare(sweeps.output)
