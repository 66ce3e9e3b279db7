"""The page's web application. Everything in it asks for Airflow's own login, the page's script included.

The DAG's id is part of the path: Airflow's permission check and the page then read it from the same place.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from functools import partial
from html import escape
from importlib.resources import files
from typing import Annotated, Final
from urllib.parse import quote

from airflow.api_fastapi.auth.managers.models.resource_details import DagAccessEntity
from airflow.api_fastapi.core_api.security import GetUserDep, requires_access_dag
from fastapi import Depends, FastAPI, HTTPException, Path, Query, Request, Response
from fastapi.responses import HTMLResponse, JSONResponse
from starlette.exceptions import HTTPException as StarletteHTTPException

from raysweep.errors import RaysweepError, SweepNotFoundError
from raysweep.pages import live
from raysweep.pages.live import Answer, answer
from raysweep.pages.page import STYLE, asset, policy, script
from raysweep.pages.write import report_text
from raysweep.runs.reading.glances import read_training
from raysweep_airflow.page import views
from raysweep_airflow.page.lookup import find_task
from raysweep_airflow.page.place import Place
from raysweep_airflow.page.readers import Readers, folder_of
from raysweep_airflow.page.task import TaskView
from raysweep_airflow.reaper import reaping

READS_AT_ONCE: Final = 4
PATIENCE_S: Final = 20.0
REPORT_PATIENCE_S: Final = 120.0
SCRIPT: Final = "airflow.js"
SHARED: Final = (*live.SCRIPTS, STYLE)
"""Parts that the report and the dashboard use too."""

HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'self'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "same-origin",
    "Cache-Control": "no-store",
}

may_read = requires_access_dag(method="GET", access_entity=DagAccessEntity.TASK_INSTANCE)
may_read_xcom = requires_access_dag(method="GET", access_entity=DagAccessEntity.XCOM)
# The page shows what the task instance and its XCom say: one needs to be allowed both.
ALLOWED: Final = [Depends(may_read), Depends(may_read_xcom)]

DagId = Annotated[str, Path(max_length=250)]
Text = Annotated[str, Query(min_length=1, max_length=250)]


@asynccontextmanager
async def _lifespan(app: FastAPI) -> AsyncIterator[None]:
    """Airflow enters it in each process that serves, and only there: that is the reaper's life too."""
    with reaping():
        yield


def make_app() -> FastAPI:
    """The application that the plugin mounts; it has no OpenAPI pages, which would ask for no login."""
    app = FastAPI(title="raysweep", docs_url=None, redoc_url=None, openapi_url=None, lifespan=_lifespan)
    app.state.readers = Readers()
    # Threads of its own: one that hangs keeps its place, so that there are never more.
    app.state.threads = ThreadPoolExecutor(READS_AT_ONCE, "raysweep-page")
    app.add_exception_handler(StarletteHTTPException, _refused)
    app.add_api_route("/dags/{dag_id}/sweep", _page, dependencies=ALLOWED, response_class=HTMLResponse)
    app.add_api_route("/dags/{dag_id}/sweep.json", _data, dependencies=ALLOWED)
    app.add_api_route(
        "/dags/{dag_id}/report.html", _report, dependencies=ALLOWED, response_class=HTMLResponse
    )
    app.add_api_route("/static/{name}", _static)
    return app


async def _page(dag_id: DagId) -> Response:
    return HTMLResponse(_asset("page.html"), headers=HEADERS)


async def _static(name: str, user: GetUserDep) -> Response:
    if name != SCRIPT and name not in SHARED:
        raise HTTPException(404, "no such file")
    kind = "text/css" if name == STYLE else "text/javascript"
    return Response(_asset(name) if name == SCRIPT else asset(name), media_type=kind, headers=HEADERS)


async def _data(
    request: Request,
    dag_id: DagId,
    run_id: Text,
    task_id: Text,
    map_index: Annotated[str, Query()] = "-1",
    known: Annotated[str, Query(max_length=64)] = "",
) -> Response:
    """`known`: the version that the page has; where nothing has changed, there is no content."""
    state = request.app.state
    index = parse_map_index(map_index)

    def look() -> Answer:
        task = find_task(dag_id, run_id, task_id, index)
        if task is None:
            return answer(views.no_task_view(dag_id, run_id, task_id, index))
        return answer(view_of(task, state.readers))

    try:
        async with asyncio.timeout(PATIENCE_S):
            found = await asyncio.get_running_loop().run_in_executor(state.threads, look)
    except TimeoutError:
        found = answer(views.slow_view(PATIENCE_S))
    if found.version == known:
        return Response(status_code=204, headers=HEADERS)
    return Response(found.envelope, media_type="application/json", headers=HEADERS)


async def _report(
    request: Request, dag_id: DagId, run_id: Text, task_id: Text, map_index: Annotated[str, Query()] = "-1"
) -> Response:
    """The report of the task's sweep as one file, made when it is asked for."""
    task_of = partial(find_task, dag_id, run_id, task_id, parse_map_index(map_index))
    try:
        async with asyncio.timeout(REPORT_PATIENCE_S):
            threads = request.app.state.threads
            name, text = await asyncio.get_running_loop().run_in_executor(
                threads, lambda: report_of(task_of())
            )
    except TimeoutError:
        raise HTTPException(504, f"The report was not made within {REPORT_PATIENCE_S:.0f} s.") from None
    allowed = f"{policy(script(), asset(STYLE))}; frame-ancestors 'self'"
    shown = {"Content-Security-Policy": allowed, "Content-Disposition": f'inline; filename="{name}.html"'}
    return HTMLResponse(text, headers=HEADERS | shown)


def report_of(task: TaskView | None) -> tuple[str, str]:
    """The id of the task's sweep, and its report. Blocks while it reads the storage.

    Raises: HTTPException: There is no sweep to report on, or it cannot be read.
    """
    place = task.place if task is not None else None
    if place is None or place.kind == "train":
        raise HTTPException(409, "This task has no sweep to report on.")
    try:
        return place.run_id, report_text(folder_of(place))
    except SweepNotFoundError:
        raise HTTPException(409, f"Nothing of the sweep is stored at {place.uri} yet.") from None
    except (RaysweepError, OSError) as error:
        raise HTTPException(502, f"The sweep cannot be read from the api-server: {error}") from error


def parse_map_index(text: str) -> int:
    """Airflow leaves the template `{MAP_INDEX}` as it is for a task that is not mapped."""
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else -1


def view_of(task: TaskView, readers: Readers) -> views.Json:
    """The view of this task instance. Blocks while it reads the storage."""
    place = task.place
    if place is None:
        return views.no_place_view(task)
    try:
        return _read(task, place, readers)
    except (RaysweepError, OSError) as error:
        return views.unreadable_view(task, place, str(error))


def _read(task: TaskView, place: Place, readers: Readers) -> views.Json:
    if place.kind == "train":
        status = read_training(place.storage_path, place.run_id)
        return (
            views.train_view(task, place, status)
            if status is not None
            else views.nothing_stored_view(task, place)
        )
    seen = readers.of(place).read()
    return views.sweep_view(task, place, seen) if seen is not None else views.nothing_stored_view(task, place)


async def _refused(request: Request, error: Exception) -> Response:
    """Errors as JSON for the script, and as a small page with the way to the login for people."""
    assert isinstance(error, StarletteHTTPException)
    wants_page = "text/html" in request.headers.get("accept", "")
    if not wants_page:
        return JSONResponse({"detail": error.detail}, status_code=error.status_code, headers=HEADERS)
    text = {401: "Please log in to Airflow first.", 403: "Your Airflow user may not see this DAG."}.get(
        error.status_code, "There is no such page." if error.status_code == 404 else str(error.detail)
    )
    login = ""
    if error.status_code == 401:
        root = request.scope.get("root_path", "").removesuffix("/raysweep")
        here = quote(str(request.url), safe="")
        login = f'<p><a href="{root}/api/v2/auth/login?next={here}">Log in</a></p>'
    page = f"<!doctype html><html lang=en><title>raysweep</title><h1>Sweep</h1><p>{escape(text)}</p>{login}"
    return HTMLResponse(page, status_code=error.status_code, headers=HEADERS)


def _asset(name: str) -> bytes:
    return (files("raysweep_airflow.page") / "static" / name).read_bytes()


__all__ = ["make_app", "may_read", "may_read_xcom", "parse_map_index", "view_of"]
