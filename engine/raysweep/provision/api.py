"""An async client of the Kubernetes API, as far as RayJobs need it: get, create, annotate, delete, list.

Where no answer came or the server failed, each request is sent again: a create has a name, a delete names a
uid, so that repeating them does no harm. A refused token (401) is read again once. No exception that leaves
this module refers to a request, whose headers hold the token.
"""

from __future__ import annotations

import asyncio
import base64
import random
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final, Self
from urllib.parse import quote

import orjson
from pydantic import SecretStr

from raysweep.errors import (
    ClusterAuthError,
    ClusterRequestError,
    ClusterServerError,
    ClusterUnreachableError,
    SpecError,
    one_line,
)
from raysweep.provision.kubeconfig import KubeAccess
from raysweep.provision.manifest import API_VERSION, MANAGER, MANAGER_LABEL
from raysweep.threads import on_thread

if TYPE_CHECKING:
    import httpx

TRIES: Final = 5
FIRST_PAUSE_S: Final = 0.25
MAX_PAUSE_S: Final = 5.0
CONNECT_S: Final = 10.0
ANSWER_S: Final = 30.0
PAGE: Final = 250
_PASSING: Final = frozenset({408, 429, 500, 502, 503, 504})
_PREFIX: Final = "/apis/ray.io/v1"
_JSON: Final = "application/json"
_MERGE: Final = "application/merge-patch+json"

Answer = tuple[int, dict[str, Any]]
"""The HTTP status, and the object in the body: what was asked for, or a `Status`."""


class KubeApi:
    """One API server and one namespace. Use as `async with KubeApi(access, "ml") as api`.

    Every call raises ClusterError or a subclass: ClusterUnreachableError, ClusterServerError,
    ClusterAuthError (401 and 403), ClusterRequestError.
    """

    def __init__(self, access: KubeAccess, namespace: str) -> None:
        self.access = access
        self.namespace = namespace
        self._http: httpx.AsyncClient | None = None
        self._ahead_s = 0.0

    async def __aenter__(self) -> Self:
        import httpx

        self._http = httpx.AsyncClient(
            base_url=self.access.server,
            verify=self.access.ssl_context() if self.access.server.startswith("https://") else False,
            proxy=self.access.proxy,
            # A redirect could lead the token to another host.
            follow_redirects=False,
            timeout=httpx.Timeout(ANSWER_S, connect=CONNECT_S),
        )
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._http is not None:
            await self._http.aclose()

    def now(self) -> float:
        """The time of the API server, in UTC seconds: clients' clocks need not agree."""
        return time.time() + self._ahead_s

    async def get_job(self, name: str) -> dict[str, Any] | None:
        """A RayJob; None where there is none."""
        status, body = await self._ask("GET", self._path("rayjobs", name))
        if status == 404 and _is_missing(body, name):
            return None
        return self._checked(status, body, "get", "rayjobs")

    async def create_job(self, job: Mapping[str, Any]) -> dict[str, Any] | None:
        """Create a RayJob; None where there is one of this name, be it from a lost answer to this call.

        Raises: SpecError where the server does not accept the manifest.
        """
        path = self._path("rayjobs")
        status, body = await self._ask("POST", path, orjson.dumps(job), params={"fieldValidation": "Strict"})
        if status == 409:
            return None
        if status in (400, 422):
            said = one_line(str(body.get("message") or "it is invalid"), 400)
            raise SpecError("rayjob", f"Kubernetes does not accept the manifest: {said}", "correct it there")
        return self._checked(status, body, "create", "rayjobs")

    async def annotate_job(self, name: str, notes: Mapping[str, str]) -> bool:
        """Set annotations of a RayJob; whether there is one."""
        patch = orjson.dumps({"metadata": {"annotations": dict(notes)}})
        status, body = await self._ask("PATCH", self._path("rayjobs", name), patch, content_type=_MERGE)
        if status == 404 and _is_missing(body, name):
            return False
        self._checked(status, body, "patch", "rayjobs")
        return True

    async def delete_job(self, name: str, uid: str) -> bool:
        """Delete a RayJob after all that belongs to it (`foreground`); whether it was this one.

        False: there is none, or another of its name by now, which is left alone.
        """
        options = {
            "kind": "DeleteOptions",
            "apiVersion": "v1",
            "propagationPolicy": "Foreground",
            "preconditions": {"uid": uid},
        }
        status, body = await self._ask("DELETE", self._path("rayjobs", name), orjson.dumps(options))
        if status == 409 or (status == 404 and _is_missing(body, name)):
            return False
        self._checked(status, body, "delete", "rayjobs")
        return True

    async def own_jobs(self) -> list[dict[str, Any]]:
        """All RayJobs of the namespace that raysweep made, found by their label."""
        found: list[dict[str, Any]] = []
        asked = {"labelSelector": f"{MANAGER_LABEL}={MANAGER}", "limit": str(PAGE)}
        token = ""
        while True:
            more = {"continue": token} if token else {}
            status, body = await self._ask("GET", self._path("rayjobs"), params=asked | more)
            if status == 410 and token:  # the list is too old to be continued
                found, token = [], ""
                continue
            listed = self._checked(status, body, "list", "rayjobs")
            found += listed.get("items") or []
            token = (listed.get("metadata") or {}).get("continue") or ""
            if not token:
                return found

    async def secret(self, name: str, key: str) -> SecretStr:
        """One entry of a secret. Raises: ClusterRequestError where there is none."""
        path = f"/api/v1/namespaces/{quote(self.namespace)}/secrets/{quote(name)}"
        status, body = await self._ask("GET", path)
        data = self._checked(status, body, "get", "secrets").get("data") or {}
        if key not in data:
            problem = f"secret {self.namespace}/{name} has no entry {key!r}"
            raise ClusterRequestError(self.access.server, problem, "see authOptions of the cluster")
        return SecretStr(base64.b64decode(data[key]).decode().strip())

    # --- the way there and back

    def _path(self, plural: str, name: str = "") -> str:
        path = f"{_PREFIX}/namespaces/{quote(self.namespace, safe='')}/{plural}"
        return f"{path}/{quote(name, safe='')}" if name else path

    async def _ask(
        self,
        method: str,
        path: str,
        content: bytes | None = None,
        *,
        params: Mapping[str, str] | None = None,
        content_type: str = _JSON,
    ) -> Answer:
        is_refused, failure = False, ""
        for number in range(1, TRIES + 1):
            status, body, failure, wait_s = await self._send(
                method, path, content, params or {}, content_type, is_refused=is_refused
            )
            if status == 401 and not is_refused:
                is_refused = True
                continue
            if (status and status not in _PASSING) or number == TRIES:
                break
            pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**number) * random.uniform(0.5, 1.0)
            await asyncio.sleep(max(pause_s, min(wait_s, MAX_PAUSE_S)))
        if failure:
            fix = "check the kubeconfig, the network, and the cluster's authority"
            raise ClusterUnreachableError(self.access.server, f"Kubernetes does not answer: {failure}", fix)
        return status, body

    async def _send(
        self,
        method: str,
        path: str,
        content: bytes | None,
        params: Mapping[str, str],
        content_type: str,
        *,
        is_refused: bool,
    ) -> tuple[int, dict[str, Any], str, float]:
        import httpx

        assert self._http is not None
        headers = {"Accept": _JSON, **({"Content-Type": content_type} if content is not None else {})}
        token = await on_thread(lambda: self.access.token.read(is_refused=is_refused))
        if token is not None:
            headers["Authorization"] = f"Bearer {token.get_secret_value()}"
        try:
            reply = await self._http.request(method, path, content=content, params=params, headers=headers)
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            return 0, {}, one_line(f"{type(error).__name__}: {error}", 300), 0.0
        self._note_date(reply.headers.get("Date", ""))
        try:
            body = orjson.loads(reply.content)
        except orjson.JSONDecodeError:
            body = {"message": one_line(reply.text, 300)}
        wait_s = reply.headers.get("Retry-After", "")
        asked_s = float(wait_s) if wait_s.isdigit() else 0.0
        return reply.status_code, body if isinstance(body, dict) else {}, "", asked_s

    def _note_date(self, text: str) -> None:
        try:
            self._ahead_s = parsedate_to_datetime(text).timestamp() - time.time()
        except (TypeError, ValueError):
            return

    def _checked(self, status: int, body: dict[str, Any], verb: str, plural: str) -> dict[str, Any]:
        """The object of a good answer. Raises: ClusterError for all others."""
        if 200 <= status < 300:
            return body
        server, said = self.access.server, one_line(str(body.get("message") or ""), 300)
        if status == 401:
            fix = "log in to Kubernetes again, or check the service account"
            raise ClusterAuthError(server, "Kubernetes refused the token (401): it is wrong or expired", fix)
        if status == 403:
            where = f"{verb} {plural} in namespace {self.namespace!r}"
            fix = (
                f"bind a Role with it, as in deploy/night-rbac.yaml ({said})"
                if said
                else "bind a Role with it"
            )
            raise ClusterAuthError(server, f"Kubernetes does not let this user {where} (403)", fix)
        if status == 404 and plural != "secrets":
            fix = f"install KubeRay 1.4 or later, whose API is {API_VERSION}; check that the namespace exists"
            raise ClusterRequestError(
                server, f"Kubernetes has no {plural} in namespace {self.namespace!r} (404): {said}", fix
            )
        if status in _PASSING:
            raise ClusterServerError(server, f"Kubernetes answered {status}: {said}", "try again later")
        raise ClusterRequestError(server, f"Kubernetes answered {status} to {verb} {plural}: {said}", "")


def _is_missing(body: Mapping[str, Any], name: str) -> bool:
    """True if a 404 speaks of the object, and not of its kind or of a gateway's path."""
    return body.get("reason") == "NotFound" and (body.get("details") or {}).get("name") == name
