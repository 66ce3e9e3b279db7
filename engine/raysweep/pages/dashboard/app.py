"""The paths of the dashboard, read-only, as an ASGI application.

`Guard` stands before all of them: without the right host or token no path is looked up. What reads the
storage runs on Starlette's threads.
"""

from __future__ import annotations

import html
import logging
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final
from urllib.parse import quote

import orjson
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response, StreamingResponse
from starlette.routing import Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from raysweep.errors import LogNotFoundError, RaysweepError, SpecError, SweepNotFoundError
from raysweep.pages import live
from raysweep.pages.dashboard.access import COOKIE, Access
from raysweep.pages.dashboard.archive import tar_pieces
from raysweep.pages.dashboard.runs import Runs
from raysweep.pages.live import Answer
from raysweep.pages.page import STYLE, as_block, asset, policy, script
from raysweep.pages.write import report_text

SCRIPTS: Final = (*live.SCRIPTS, "nights.js", "dashboard.js")
TYPES: Final = dict.fromkeys(SCRIPTS, "text/javascript; charset=utf-8") | {STYLE: "text/css; charset=utf-8"}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "X-Frame-Options": "DENY",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
_STATUSES: Final = (
    (SweepNotFoundError, 404),
    (LogNotFoundError, 404),
    (SpecError, 409),
    (RaysweepError, 502),
)
_MAX_NAME_BYTES: Final = 255
"""Of a folder's name, on any file system."""
log = logging.getLogger("raysweep")


def make_app(runs: Runs, access: Access) -> ASGIApp:
    """The dashboard of these runs, for those that have access."""
    pages = _Pages(runs)
    paths: dict[str, Callable[[Request], Response]] = {
        "/": pages.front,
        "/run/{name}": pages.run,
        "/run/{name}/checkpoint.tar": pages.checkpoint,
        "/run/{name}/report.html": pages.report,
        "/name/{name}": pages.name,
        "/parts/{name}": pages.part,
        "/api/names/{name}": pages.names,
        "/api/runs": pages.runs,
        "/api/runs/{name}": pages.one_run,
        "/api/runs/{name}/log": pages.log,
    }
    app = Starlette(
        routes=[Route(path, answer, methods=["GET"]) for path, answer in paths.items()],
        exception_handlers={HTTPException: _refused, RaysweepError: _problem, Exception: _bug},
    )
    app.router.redirect_slashes = False
    return Guard(app, access)


class Guard:
    """Lets through requests that have access, and gives every answer the headers that bind the browser."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request; ASGI."""

        async def send_bound(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        request = Request(scope)
        answer = self._take_token(request) or self._refuse(request) or self._app
        await answer(scope, receive, send_bound)

    def _take_token(self, request: Request) -> Response | None:
        """`/?token=…`: keep the token in a cookie and out of the address."""
        if not self._access.knows(request.query_params.get("token", "")):
            return None
        answer = RedirectResponse(_local(request.scope["raw_path"].decode("ascii")), 303)
        answer.set_cookie(COOKIE, self._access.token, httponly=True, samesite="strict")
        return answer

    def _refuse(self, request: Request) -> Response | None:
        if self._access.allows(request.headers):
            return None
        if self._access.token:
            text = "a token is needed: open /?token=TOKEN once, or send it as Authorization: Bearer TOKEN"
            return _error(401, text, {"WWW-Authenticate": "Bearer"})
        return _error(403, "this dashboard answers on loopback only")


class _Pages:
    """An answer for each path."""

    def __init__(self, runs: Runs) -> None:
        self._runs = runs

    def front(self, request: Request) -> Response:
        return _page({"view": "list"})

    def run(self, request: Request) -> Response:
        return _page({"view": "run", "run": _name(request)})

    def name(self, request: Request) -> Response:
        return _page({"view": "name", "name": _name(request)})

    def part(self, request: Request) -> Response:
        name = request.path_params["name"]
        if name not in TYPES:
            raise HTTPException(404)
        return Response(asset(name), headers={"Content-Type": TYPES[name]})

    def names(self, request: Request) -> Response:
        return _answer(self._runs.nights(_name(request)), request)

    def runs(self, request: Request) -> Response:
        return _answer(self._runs.list_runs(), request)

    def one_run(self, request: Request) -> Response:
        return _answer(self._runs.run(_name(request)), request)

    def log(self, request: Request) -> Response:
        trial, attempt = _trial(request), _number(request.query_params.get("attempt"))
        return _answer(self._runs.log(_name(request), trial, attempt), request)

    def report(self, request: Request) -> Response:
        """The report as one file, made now."""
        name = _name(request)
        text = report_text(self._runs.folder(name))
        headers = {
            "Content-Security-Policy": f"{policy(script(), asset(STYLE))}; frame-ancestors 'none'",
            "Content-Disposition": _attached(f"{name}.html"),
            "Content-Type": "text/html; charset=utf-8",
        }
        return Response(text, headers=headers)

    def checkpoint(self, request: Request) -> Response:
        """A trial's checkpoint as a tar file; its end is missing where it could not be sent whole."""
        name, trial = _name(request), _trial(request)
        with ExitStack() as stack:
            folder = stack.enter_context(self._runs.checkpoint(name, trial))
            headers = {
                "Content-Type": "application/x-tar",
                "Content-Disposition": _attached(f"{folder.name}.tar"),
            }
            if request.method == "HEAD":
                return Response(headers=headers)
            return _Download(tar_pieces(folder), headers=headers, kept=stack.pop_all())
        raise AssertionError("unreachable: the stack swallows no error")


class _Download(StreamingResponse):
    """Gives back what it keeps once it is sent, or its reader has left."""

    def __init__(self, content: Any, *, headers: dict[str, str], kept: ExitStack) -> None:
        super().__init__(content, headers=headers)
        self._kept = kept

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            await run_in_threadpool(self._kept.close)


def _page(data: dict[str, str]) -> Response:
    scripts = "\n".join(f'<script src="/parts/{name}" defer></script>' for name in SCRIPTS)
    title = html.escape(data.get("run", data.get("name", "raysweep")))
    text = _PAGE.format(data=as_block(data), scripts=scripts, title=title)
    return Response(text, headers={"Content-Type": "text/html; charset=utf-8"})


def _answer(answer: Answer, request: Request) -> Response:
    if request.query_params.get("known") == answer.version:
        return Response(status_code=204)
    return Response(answer.envelope, headers={"Content-Type": "application/json"})


def _error(status: int, text: str, headers: dict[str, str] | None = None) -> Response:
    body = orjson.dumps({"error": text})
    return Response(body, status, {**(headers or {}), "Content-Type": "application/json"})


def _refused(_: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    text = "there is no such page" if error.status_code == 404 else error.detail
    return _error(error.status_code, text, dict(error.headers or {}))


def _problem(_: Request, error: Exception) -> Response:
    return _error(next(status for kind, status in _STATUSES if isinstance(error, kind)), str(error))


def _bug(request: Request, error: Exception) -> Response:
    log.error("the dashboard could not answer %s", request.url.path, exc_info=error)
    return _error(500, "this answer failed; the server's log says why")


def _name(request: Request) -> str:
    """The run, or the name of runs, that the path names; it is one folder's name."""
    name: str = request.path_params["name"]
    is_one = (
        0 < len(name.encode()) <= _MAX_NAME_BYTES and name not in (".", "..") and not set(name) & set("/\\\0")
    )
    if not is_one:
        raise HTTPException(404)
    return name


def _trial(request: Request) -> int:
    trial = _number(request.query_params.get("trial"))
    if trial is None:
        raise HTTPException(400, "trial: a number is needed")
    return trial


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


def _attached(name: str) -> str:
    return f"attachment; filename*=UTF-8''{quote(name)}"


def _local(path: str) -> str:
    """A path of this server: `//host` would lead elsewhere."""
    return "/" + path.lstrip("/\\")


_PAGE: Final = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<meta name="color-scheme" content="light dark">
<title>{title}</title>
<link rel="icon" href="data:,">
<link rel="stylesheet" href="/parts/page.css">
<script type="application/json" id="start">{data}</script>
{scripts}
</head>
<body>
<a class="skip" href="#page">Skip to the content</a>
<nav id="nav" aria-label="Sections"></nav>
<div id="offline" class="notice" role="alert" hidden></div>
<main id="page" tabindex="-1" aria-busy="true"><p class="faint">Reading the storage …</p></main>
<p id="said" class="unseen" role="status" aria-live="polite"></p>
<noscript><p class="plain">This page draws with JavaScript, which is off here.</p></noscript>
</body>
</html>
"""
