"""The plugin that Airflow loads through the entry-point group `airflow.plugins`."""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final

from airflow.plugins_manager import AirflowPlugin

from raysweep.errors import SpecError
from raysweep_airflow.marks import Marks

try:
    from raysweep_airflow.night_alert import NightEnd

    REFERENCES: list[Any] = [NightEnd]
except SpecError:  # before Airflow 3.3
    REFERENCES = []

PREFIX: Final = "/raysweep"
# Relative: Airflow may be served under a path of its own. `{MAP_INDEX}` stays as it is for unmapped tasks.
HREF: Final = "raysweep/dags/{DAG_ID}/sweep?run_id={RUN_ID}&task_id={TASK_ID}&map_index={MAP_INDEX}"


class RaysweepPlugin(AirflowPlugin):
    """The page as a FastAPI app under `/raysweep`, and as the tab `Sweep` of task instances.

    Besides, the listener and the reference of deadline alerts.
    """

    name = "raysweep"
    listeners = [Marks()]  # noqa: RUF012  as Airflow declares it
    deadline_references = REFERENCES
    external_views = [  # noqa: RUF012  as Airflow declares it
        {"name": "Sweep", "href": HREF, "destination": "task_instance", "url_route": "raysweep"}
    ]

    @cached_property
    def fastapi_apps(self) -> list[dict[str, Any]]:  # type: ignore[override]
        """Made when the api-server asks: every worker loads the plugin, and none of them serves pages."""
        from raysweep_airflow.page.app import make_app

        return [{"app": make_app(), "url_prefix": PREFIX, "name": "raysweep"}]
