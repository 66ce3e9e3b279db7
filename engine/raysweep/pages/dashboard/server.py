"""The dashboard's HTTP server: a few paths, read-only, on the standard library."""

from __future__ import annotations

import html
import logging
import tarfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final
from urllib.parse import parse_qs, quote, unquote, urlsplit

import orjson

from raysweep.errors import LogNotFoundError, RaysweepError, SpecError, SweepNotFoundError
from raysweep.pages import live
from raysweep.pages.dashboard.access import COOKIE, Access
from raysweep.pages.dashboard.runs import Runs
from raysweep.pages.live import Answer
from raysweep.pages.page import STYLE, as_block, asset, policy, script
from raysweep.pages.write import report_text
from raysweep.storage.objects.opening import open_store

SCRIPTS: Final = (*live.SCRIPTS, "nights.js", "dashboard.js")
TYPES: Final = dict.fromkeys(SCRIPTS, "text/javascript; charset=utf-8") | {STYLE: "text/css; charset=utf-8"}
HEADERS: Final = {
    "Content-Security-Policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src data:; "
        "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
    ),
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-store",
    "Cross-Origin-Resource-Policy": "same-origin",
}
TIMEOUT_S: Final = 30.0
_MAX_NAME: Final = 300
log = logging.getLogger("raysweep")


@contextmanager
def serving(storage: str, access: Access, port: int) -> Iterator[tuple[str, ThreadingHTTPServer]]:
    """A server of the runs at a storage path; gives its address, and the server, which serves already.

    Args:
        storage: The storage path.
        access: Who may ask, and the host to bind.
        port: 0: any free one.

    Raises:
        SpecError: The port cannot be bound.
        StorageError: The storage path cannot be opened.
    """
    runs = Runs(open_store(storage))
    handler = type("Handler", (_Handler,), {"runs": runs, "access": access})
    server_class = type("Server", (ThreadingHTTPServer,), {"address_family": _family(access.host)})
    try:
        server = server_class((access.host, port), handler)
    except OSError as error:
        problem = f"{access.host}:{port} cannot be bound: {error.strerror or error}"
        raise SpecError("--port", problem, "name a free port, or 0 for any") from error
    thread = threading.Thread(target=server.serve_forever, name="raysweep-dashboard", daemon=True)
    thread.start()
    host = f"[{access.host}]" if ":" in access.host else access.host
    try:
        yield f"http://{host}:{server.server_address[1]}/", server
    finally:
        server.shutdown()
        server.server_close()
        runs.close()
        thread.join()


def _family(host: str) -> int:
    import socket

    return socket.AF_INET6 if ":" in host else socket.AF_INET


class _Handler(BaseHTTPRequestHandler):
    """One connection."""

    runs: Runs
    access: Access
    protocol_version = "HTTP/1.1"
    server_version = "raysweep"
    sys_version = ""
    timeout = TIMEOUT_S

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        asked = {name: values[0] for name, values in parse_qs(address.query).items()}
        if self._take_token(address.path, asked):
            return
        if not self.access.allows(dict(self.headers.items())):
            self._refuse()
            return
        try:
            self._answer([unquote(part) for part in address.path.strip("/").split("/")], asked)
        except (SweepNotFoundError, LogNotFoundError) as error:
            self._send_error_text(HTTPStatus.NOT_FOUND, str(error))
        except SpecError as error:
            self._send_error_text(HTTPStatus.CONFLICT, str(error))
        except RaysweepError as error:
            self._send_error_text(HTTPStatus.BAD_GATEWAY, str(error))
        except BrokenPipeError:
            pass
        except Exception:
            log.exception("the dashboard could not answer %s", address.path)
            self._send_error_text(
                HTTPStatus.INTERNAL_SERVER_ERROR, "this answer failed; the server's log says why"
            )

    do_HEAD = do_GET

    def _answer(self, path: list[str], asked: dict[str, str]) -> None:
        match path:
            case [""]:
                self._page({"view": "list"})
            case ["run", name] if _is_name(name):
                self._page({"view": "run", "run": name})
            case ["name", name] if _is_name(name):
                self._page({"view": "name", "name": name})
            case ["api", "names", name] if _is_name(name):
                self._send_answer(self.runs.nights(name), asked)
            case ["run", name, "checkpoint.tar"] if _is_name(name):
                self._send_checkpoint(name, _number(asked.get("trial")))
            case ["run", name, "report.html"] if _is_name(name):
                self._send_report(name)
            case ["parts", name] if name in TYPES:
                self._send(HTTPStatus.OK, asset(name).encode(), TYPES[name])
            case ["api", "runs"]:
                self._send_answer(self.runs.list_runs(), asked)
            case ["api", "runs", name] if _is_name(name):
                self._send_answer(self.runs.run(name), asked)
            case ["api", "runs", name, "log"] if _is_name(name):
                trial, attempt = _number(asked.get("trial")), _number(asked.get("attempt"))
                if trial is None:
                    self._send_error_text(HTTPStatus.BAD_REQUEST, "trial: a number is needed")
                else:
                    self._send_answer(self.runs.log(name, trial, attempt), asked)
            case _:
                self._send_error_text(HTTPStatus.NOT_FOUND, "there is no such page")

    def _take_token(self, path: str, asked: dict[str, str]) -> bool:
        """`/?token=…`: keep the token in a cookie and out of the address."""
        if "token" not in asked or not self.access.knows(asked["token"]):
            return False
        cookie = f"{COOKIE}={self.access.token}; HttpOnly; SameSite=Strict; Path=/"
        self._send(HTTPStatus.SEE_OTHER, b"", "text/plain", {"Location": _local(path), "Set-Cookie": cookie})
        return True

    def _page(self, data: dict[str, str]) -> None:
        scripts = "\n".join(f'<script src="/parts/{name}" defer></script>' for name in SCRIPTS)
        text = _PAGE.format(
            data=as_block(data),
            scripts=scripts,
            title=html.escape(data.get("run", data.get("name", "raysweep"))),
        )
        self._send(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8")

    def _send_report(self, name: str) -> None:
        """The report as one file, made now."""
        text = report_text(self.runs.folder(name))
        allowed = f"{policy(script(), asset(STYLE))}; frame-ancestors 'none'"
        named = quote(f"{name}.html")
        more = {
            "Content-Security-Policy": allowed,
            "Content-Disposition": f"attachment; filename*=UTF-8''{named}",
        }
        self._send(HTTPStatus.OK, text.encode(), "text/html; charset=utf-8", more)

    def _send_checkpoint(self, name: str, trial: int | None) -> None:
        """A trial's checkpoint as a tar file, which is made while it is sent."""
        if trial is None:
            self._send_error_text(HTTPStatus.BAD_REQUEST, "trial: a number is needed")
            return
        with self.runs.checkpoint(name, trial) as folder:
            self.send_response(HTTPStatus.OK)
            named = quote(f"{folder.name}.tar")
            more = {
                "Content-Type": "application/x-tar",
                "Content-Disposition": f"attachment; filename*=UTF-8''{named}",
                "Connection": "close",
            }
            for header, value in (HEADERS | more).items():
                self.send_header(header, value)
            self.end_headers()
            # Its length is not known before: the end of the connection is its end.
            self.close_connection = True
            if self.command != "HEAD":
                # The reader has left, or the disk fails: a tar file without its end is not taken for whole.
                with suppress(OSError), tarfile.open(fileobj=self.wfile, mode="w|") as archive:
                    archive.add(folder, folder.name)

    def _send_answer(self, answer: Answer, asked: dict[str, str]) -> None:
        if asked.get("known") == answer.version:
            self._send(HTTPStatus.NO_CONTENT, b"", "application/json")
            return
        self._send(HTTPStatus.OK, answer.envelope, "application/json")

    def _refuse(self) -> None:
        if self.access.token:
            text = "a token is needed: open /?token=TOKEN once, or send it as Authorization: Bearer TOKEN"
            self._send_error_text(HTTPStatus.UNAUTHORIZED, text, {"WWW-Authenticate": "Bearer"})
        else:
            self._send_error_text(HTTPStatus.FORBIDDEN, "this dashboard answers on loopback only")

    def _send_error_text(self, status: HTTPStatus, text: str, more: dict[str, str] | None = None) -> None:
        self._send(status, orjson.dumps({"error": text}), "application/json", more)

    def _send(self, status: HTTPStatus, body: bytes, kind: str, more: dict[str, str] | None = None) -> None:
        self.send_response(status)
        for name, value in {**HEADERS, **(more or {}), "Content-Type": kind}.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def log_message(self, format: str, *args: Any) -> None:
        """Requests are not logged: an address may hold the token."""


def _is_name(name: str) -> bool:
    return 0 < len(name) <= _MAX_NAME and name not in (".", "..") and not set(name) & set("/\\\0")


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isascii() and text.isdigit() and len(text) < 10 else None


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
