"""What is Airflow's alone: holds, timeouts, restarts, mapping, assets, the decorator."""

from __future__ import annotations

import time
from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, Asset, task

from raysweep_airflow import SweepOperator, TrainOperator, top_k

ARGUMENTS = {"retries": 2, "retry_delay": timedelta(seconds=1)}
SPEC = "{{ dag_run.conf['sweep'] }}"
BEST = Asset("raysweep://best")


class Held(SweepOperator):
    """Stands still between submission and deferral, the first time: long enough to be killed there."""

    def defer(self, **kwargs: Any) -> Any:
        held = Path(self.spec["param_space"]["log"]).with_suffix(".held")
        if not held.exists():
            held.touch()
            time.sleep(120)
        return super().defer(**kwargs)


def dag(dag_id: str, **kwargs: Any) -> DAG:
    plain: dict[str, Any] = {"schedule": None, "default_args": ARGUMENTS}
    return DAG(dag_id, catchup=False, render_template_as_native_obj=True, **plain | kwargs)


with dag("held"):
    Held(task_id="sweep", spec=SPEC, deferrable=True)

with dag("restarting"):
    SweepOperator(task_id="sweep", spec=SPEC, deferrable=True, on_clear="restart")

with dag("in_the_vault"):
    SweepOperator(task_id="sweep", spec=SPEC, deferrable=True, conn_id="in_the_vault")

with dag("deleted"):
    SweepOperator(task_id="sweep", spec=SPEC, deferrable=True)

with dag("timed"):
    SweepOperator(task_id="sweep", spec=SPEC, deferrable=True, execution_timeout=timedelta(seconds=90))

with dag("over_time", dagrun_timeout=timedelta(seconds=60)):
    SweepOperator(task_id="sweep", spec=SPEC, deferrable=True)

with dag("not_deferred"):
    SweepOperator(task_id="sweep", spec=SPEC, deferrable=False)

with dag("once"):
    SweepOperator(task_id="sweep", spec=SPEC, deferrable=False, retries=0)

with dag("mapped"):

    @task
    def specs(dag_run: Any = None) -> list[dict[str, Any]]:
        return list(dag_run.conf["sweeps"])

    many = SweepOperator.partial(task_id="sweep", deferrable=True, outlets=[BEST]).expand(spec=specs())

    @task
    def best_x(outcomes: Any) -> list[float]:
        return [outcome["best"]["config"]["x"] for outcome in outcomes]

    best_x(many.output)

with dag("data"):

    @task
    def rows(dag_run: Any = None) -> list[dict[str, Any]]:
        return [
            {"spec": each, "job": {"metadata": {"note": each["param_space"]["note"]}}}
            for each in dag_run.conf["sweeps"]
        ]

    by_kwargs = SweepOperator.partial(task_id="sweep", deferrable=True).expand_kwargs(rows())
    train_spec = {
        "name": "full-{{ run_id }}",
        "trainable": "{{ dag_run.conf['train'] }}",
        "storage_path": "{{ dag_run.conf['storage'] }}",
    }

    @task
    def found(outcomes: Any) -> list[dict[str, Any]]:
        return [dict(each["top_k"][0]) for each in outcomes]

    TrainOperator.partial(task_id="train", spec=train_spec, deferrable=True).expand(
        outcome=found(by_kwargs.output)
    )

with dag("consumer", schedule=[BEST]):

    @task
    def consumed(triggering_asset_events: Any = None) -> list[dict[str, Any]]:
        return [dict(event.extra) for event in triggering_asset_events[BEST]]

    consumed()

with dag("decorated"):

    @task.sweep(
        spec={
            "param_space": {"x": {"uniform": [0, 1]}},
            "metric": "loss",
            "mode": "min",
            "num_samples": 3,
            "storage_path": "{{ dag_run.conf['storage'] }}",
        },
        deferrable=True,
    )
    def fit(config: dict[str, Any]) -> dict[str, float]:
        import math

        return {"loss": math.sqrt(config["x"])}

    TrainOperator.partial(task_id="train", spec="{{ dag_run.conf['train'] }}", deferrable=True).expand(
        outcome=top_k(fit(), 2)
    )
