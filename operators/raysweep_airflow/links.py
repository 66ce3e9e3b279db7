"""Links on a task: to its Ray job, and to its sweep, from the first minute on, and after a failure.

Airflow stores a link when the task is deferred and when it ends; the operators push it themselves before
that, under the same key.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, urlencode

from airflow.sdk import BaseOperatorLink

from raysweep_airflow.compat import conf

if TYPE_CHECKING:
    from airflow.sdk import BaseOperator
    from airflow.sdk.types import TaskInstanceKey

    from raysweep.jobs import RunningJob

PAGE: Final = "raysweep"
"""The `url_route` of the sweep's page in Airflow's own pages."""


class RayJobLink(BaseOperatorLink):
    """The job in the dashboard of the Ray cluster."""

    name = "Ray job"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        # What runs in the task's own process has no job; to ask for its link would log an error.
        return "" if getattr(operator, "address", None) else pushed(self.xcom_key, ti_key)


class SweepLink(BaseOperatorLink):
    """The sweep's own page: trials, best so far, curve."""

    name = "Sweep"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return page_url(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)


class ReportLink(BaseOperatorLink):
    """The sweep's report: one HTML file, which Airflow's api-server makes when the link is opened."""

    name = "Report"

    def get_link(self, operator: BaseOperator, *, ti_key: TaskInstanceKey) -> str:
        return report_url(ti_key.dag_id, ti_key.run_id, ti_key.task_id, ti_key.map_index)


TRAIN_LINKS: Final = (RayJobLink(), SweepLink())
LINKS: Final = (*TRAIN_LINKS, ReportLink())


def job_url(dashboard_url: str, job: RunningJob) -> str:
    """The job's page in Ray's dashboard; the list of jobs where there is none."""
    return f"{dashboard_url.rstrip('/')}/#/jobs" + (f"/{quote(job.job_id)}" if job.job_id else "")


def page_url(dag_id: str, run_id: str, task_id: str, map_index: int | None) -> str:
    """The sweep's page in Airflow."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    mapped = f"/mapped/{map_index}" if map_index is not None and map_index >= 0 else ""
    task = f"/dags/{quote(dag_id, safe='')}/runs/{quote(run_id, safe='')}/tasks/{quote(task_id, safe='')}"
    return f"{base}{task}{mapped}/plugin/{PAGE}"


def report_url(dag_id: str, run_id: str, task_id: str, map_index: int | None) -> str:
    """The report of the task's sweep, as the page's application makes it."""
    base = (conf.get("api", "base_url", fallback="") or "").rstrip("/")
    asked = {"run_id": run_id, "task_id": task_id, "map_index": -1 if map_index is None else map_index}
    return f"{base}/{PAGE}/dags/{quote(dag_id, safe='')}/report.html?{urlencode(asked)}"


def pushed(key: str, ti_key: Any) -> str:
    """A link as the operator has pushed it; empty where it came to none."""
    from airflow.sdk.execution_time.xcom import XCom

    value = XCom.get_value(ti_key=ti_key, key=key)
    return str(value) if value else ""
