"""An async client of Ray's Jobs REST API. Needs httpx, and no Ray.

Where no answer came, or the server failed, everything is sent again after a pause: reading changes nothing,
an upload is named by its content, a stop and a delete may be repeated, and a job that is submitted twice is
refused the second time because of its id (`JobExistsError`), so that a lost answer does no harm. What the
server refused (4xx) and what failed TLS is not sent again. The exception is a token that was rotated: at 401
and 403 the connection is read again, and the request is sent once more if its secrets have changed.

No exception that leaves this module refers to a request, whose headers and body hold secrets: httpx's errors
are turned into `Answer`s where they arise, and typed errors are raised outside of any `except` block.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final, Self

import orjson
from pydantic import SecretStr

from raysweep.errors import ClusterRequestError, JobNotFoundError, SpecError, one_line
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.wire import Answer, ClusterVersion, JobInfo, Submission, error_of, read_info
from raysweep.threads import on_thread

if TYPE_CHECKING:
    import httpx  # a fifth of a second, which a sweep that runs here has no use for

LOG: Final = logging.getLogger("raysweep.jobs")
FIRST_PAUSE_S: Final = 0.25
MAX_PAUSE_S: Final = 5.0
UPLOAD_FACTOR: Final = 10
RENEW_S: Final = 30.0
"""The time for reading a connection again."""
TAIL_PAUSE_S: Final = 1.0
TAIL_SHARE: Final = 0.1
"""A log is fetched whole each time: at most this share of the time is spent on it."""

Body = Callable[[], bytes]


class _Bearer:
    """Puts the token into the header of each request, and nowhere else; httpx's `auth`."""

    def __init__(self, token: SecretStr | None) -> None:
        self._token = token

    def __call__(self, request: httpx.Request) -> httpx.Request:
        if self._token is not None:
            request.headers["Authorization"] = f"Bearer {self._token.get_secret_value()}"
        return request


class JobsClient:
    """One cluster's Jobs API. Use as `async with JobsClient("http://head:8265") as client`.

    Every call raises `ClusterError` or a subclass: `ClusterUnreachableError`, `ClusterCertificateError`,
    `TokenMissingError`, `TokenRefusedError`, `ClusterServerError`, `ClusterRequestError`, and for jobs
    `JobNotFoundError` and `JobExistsError`.
    """

    def __init__(self, connection: ClusterConnection | str) -> None:
        self.connection = ClusterConnection.of(connection)
        self._scrubber = self.connection.scrubber()
        self.on_upload: Callable[[str, int, int], None] | None = None
        """Told what is done, how many bytes of it are done, and how many there are; 0: not known."""
        self._http: httpx.AsyncClient | None = None
        self._replaced: list[httpx.AsyncClient] = []
        self._context = self.connection.ssl_context()

    def __repr__(self) -> str:
        return f"JobsClient({self.connection.address!r})"

    async def __aenter__(self) -> Self:
        self._client()
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """Close the connections."""
        opened, self._http, self._replaced = [*self._replaced, self._http], None, []
        for http in opened:
            if http is not None:
                await http.aclose()

    async def version(self) -> ClusterVersion:
        """The versions of Ray and of the Jobs API."""
        fields = await self._json("GET", "/api/version")
        return ClusterVersion(
            ray=str(fields.get("ray_version", "")),
            api=str(fields.get("version", "")),
            session=str(fields.get("session_name", "")),
        )

    async def submit(self, submission: Submission) -> str:
        """Submit a job; returns its id.

        Raises: JobExistsError where there is one of this id, be it from an earlier try of this very call.
        """
        # What the cluster says of the job from now on may repeat them too.
        self._scrubber = self._scrubber.with_more(submission.env_vars.values())
        fields = await self._json("POST", "/api/jobs/", submission.encode, job_id=submission.job_id)
        return str(fields.get("submission_id") or submission.job_id)

    async def jobs(self) -> tuple[JobInfo, ...]:
        """All jobs that were submitted to the cluster and that its head remembers."""
        found = await self._json("GET", "/api/jobs/")
        return tuple(self._info(each) for each in found if each.get("submission_id"))

    async def info(self, job_id: str) -> JobInfo:
        """One job. Raises: JobNotFoundError."""
        return self._info(await self._json("GET", _job_path(job_id), job_id=job_id))

    async def stop(self, job_id: str) -> bool:
        """Ask a job to end: SIGTERM, then SIGKILL after the cluster's grace (3 s by default).

        Returns whether it was running. Raises: JobNotFoundError.
        """
        return bool((await self._json("POST", f"{_job_path(job_id)}/stop", job_id=job_id)).get("stopped"))

    async def delete(self, job_id: str) -> bool:
        """Make the cluster forget a job that has ended. False: there was none (any more)."""
        try:
            fields = await self._json("DELETE", _job_path(job_id), job_id=job_id)
        except JobNotFoundError:
            return False
        return bool(fields.get("deleted"))

    async def logs(self, job_id: str) -> str:
        """All that the job's driver has written so far. Raises: JobNotFoundError."""
        return str((await self._json("GET", f"{_job_path(job_id)}/logs", job_id=job_id)).get("logs") or "")

    async def tail(self, job_id: str, *, pause_s: float = TAIL_PAUSE_S) -> AsyncGenerator[str, None]:
        """The output of the driver, piece by piece and from the beginning, until the job has ended.

        The log is polled, so that proxies and certificates work as everywhere; a large one less often.
        """
        loop = asyncio.get_running_loop()
        seen = 0
        while True:
            is_ended = (await self.info(job_id)).is_ended
            began = loop.time()
            text = await self.logs(job_id)
            took = loop.time() - began
            if len(text) > seen:
                yield text[seen:]
                seen = len(text)
            if is_ended:
                return
            await asyncio.sleep(max(pause_s, took / TAIL_SHARE))

    async def has_package(self, uri: str) -> bool:
        """True if the cluster has a package; asking keeps it there for some minutes."""
        answer = await self._ask("GET", _package_path(uri))
        if answer.status == 404 and b"does not exist" in answer.body:
            return False
        self._check(answer)
        return True

    async def nodes(self) -> list[dict[str, Any]]:
        """The cluster's nodes, as its state API tells them: `state`, `resources_total`, `labels`, ...."""
        answer = await self._json("GET", "/api/v0/nodes?limit=10000")
        found: list[dict[str, Any]] = answer["data"]["result"]["result"]
        return found

    async def upload(self, uri: str, data: bytes) -> None:
        """Store a package under its URI."""
        timeout_s = self.connection.request_timeout_s * UPLOAD_FACTOR
        self.tell("uploading", len(data))
        self._check(await self._ask("PUT", _package_path(uri), lambda: data, timeout_s=timeout_s))

    def tell(self, what: str, done: int, total: int = 0) -> None:
        """Say how far packing or uploading is."""
        if self.on_upload is not None:
            self.on_upload(what, done, total)

    def scrub(self, text: str) -> str:
        """A text from the cluster without this connection's secrets."""
        return self._scrubber.clean(text)

    # --- the way there and back

    async def _json(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        job_id: str = "",
    ) -> Any:
        answer = await self._ask(method, path, body, job_id=job_id)
        self._check(answer, job_id)
        try:
            return orjson.loads(answer.body)
        except orjson.JSONDecodeError:
            pass
        raise ClusterRequestError(
            self.connection.address,
            f"answered {path} with something that is not JSON",
            "check that the address is the one of a Ray dashboard",
        )

    def _info(self, fields: Mapping[str, Any]) -> JobInfo:
        info = read_info(fields)
        return replace(info, message=self.scrub(info.message))

    def _check(self, answer: Answer, job_id: str = "") -> None:
        if answer.is_good:
            return
        text = self._scrubber.clean(answer.detail or answer.text())
        has_token = self.connection.token is not None
        raise error_of(answer, self.connection.address, text, has_token=has_token, job_id=job_id)

    async def _ask(
        self,
        method: str,
        path: str,
        body: Body | None = None,
        *,
        job_id: str = "",
        timeout_s: float | None = None,
    ) -> Answer:
        for number in range(1, self.connection.tries + 1):
            used = self.connection
            answer = await self._send(method, path, body, timeout_s)
            if answer.status in (401, 403) and await self._renew(used):
                answer = await self._send(method, path, body, timeout_s)
            is_final = answer.is_good or not answer.may_pass or bool(job_id and answer.says_exists(job_id))
            if is_final or number == self.connection.tries:
                return answer
            pause_s = min(MAX_PAUSE_S, FIRST_PAUSE_S * 2**number)
            await asyncio.sleep(pause_s * random.uniform(0.5, 1.0))
        raise AssertionError("unreachable: tries is at least 1")

    async def _renew(self, used: ClusterConnection) -> bool:
        """Take up secrets that were rotated; whether there are others than those that were used."""
        if self.connection is not used:
            return True  # a request beside this one has done it
        try:
            fresh = await on_thread(used.renewed, within_s=RENEW_S)
            context = fresh.ssl_context() if fresh is not None else None
        except Exception as error:  # noqa: BLE001  whatever it is, the refusal is what counts
            LOG.warning(
                "%s refused its token, and the connection could not be read again: %s",
                used.address,
                self.scrub(one_line(f"{type(error).__name__}: {error}", 300)),
            )
            return False
        if fresh is None or context is None or self.connection is not used:
            return self.connection is not used
        LOG.info("%s refused its token: the connection was read again, and has changed", used.address)
        # Requests beside this one may still use the earlier client: it is closed at the end.
        if self._http is not None:
            self._replaced.append(self._http)
        self.connection, self._context, self._http = fresh, context, None
        scrubbed = (fresh.token, fresh.proxy, *fresh.headers.values())
        self._scrubber = self._scrubber.with_more(each for each in scrubbed if each is not None)
        return True

    async def _send(self, method: str, path: str, body: Body | None, timeout_s: float | None) -> Answer:
        """One request. Whatever happens to it becomes an answer: nothing here may be seen from outside."""
        import httpx

        try:
            response = await self._client().request(
                method,
                f"{self.connection.address}{path}",
                content=body() if body is not None else None,
                headers={"Content-Type": "application/json"} if method == "POST" else None,
                timeout=self._timeout(timeout_s),
            )
            return Answer(status=response.status_code, body=response.content)
        except (httpx.HTTPError, httpx.InvalidURL, httpx.StreamError, ssl.SSLError, OSError) as error:
            return _failed(error)

    def _client(self) -> httpx.AsyncClient:
        import httpx

        problem = ""
        if self._http is None:
            try:
                self._http = self._opened()
            except (ImportError, ValueError, httpx.InvalidURL) as error:
                # What the connection says was checked there; the error may quote a URL with a password.
                problem = f"the environment's cannot be used ({type(error).__name__})"
        if self._http is None:
            fix = "check HTTP_PROXY, HTTPS_PROXY, ALL_PROXY and NO_PROXY, or give trust_env=False"
            raise SpecError("proxy", problem, fix)
        return self._http

    def _opened(self) -> httpx.AsyncClient:
        import httpx

        connection = self.connection
        proxy = connection.proxy.get_secret_value() if connection.proxy is not None else None
        return httpx.AsyncClient(
            auth=_Bearer(connection.token),
            headers={name: each.get_secret_value() for name, each in connection.headers.items()},
            verify=self._context,
            proxy=proxy,
            trust_env=connection.trust_env,
            # A redirect could lead the token to another host.
            follow_redirects=False,
            limits=httpx.Limits(max_connections=10, max_keepalive_connections=5),
            timeout=self._timeout(None),
        )

    def _timeout(self, timeout_s: float | None) -> httpx.Timeout:
        import httpx

        answer_s = timeout_s or self.connection.request_timeout_s
        return httpx.Timeout(answer_s, connect=self.connection.connect_timeout_s)


def _failed(error: BaseException) -> Answer:
    causes = tuple(_causes(error))
    for cause in causes:
        if isinstance(cause, ssl.SSLCertVerificationError):
            return Answer(failure="certificate", detail=one_line(cause.verify_message or str(cause), 300))
        if isinstance(cause, ssl.SSLError) and "_ALERT_" in (cause.reason or ""):
            # The server speaks TLS and refused this side: it asks for a client certificate.
            return Answer(failure="certificate", detail=one_line(str(cause), 300))
        if isinstance(cause, ssl.SSLError) and cause.reason == "WRONG_VERSION_NUMBER":
            return Answer(failure="unreachable", detail="the server does not speak TLS; is it http://?")
    texts = [str(cause).strip() for cause in causes if str(cause).strip()]
    name = type(error).__name__
    detail = one_line(f"{name}: {texts[0]}" if texts else name, 300)
    return Answer(failure="unreachable", detail=detail)


def _causes(error: BaseException | None) -> Iterable[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _job_path(job_id: str) -> str:
    if not job_id or not all(letter.isalnum() or letter in "-_." for letter in job_id):
        raise SpecError("job_id", f"{job_id!r} is not a job id", "use letters, digits, '-', '_' and '.'")
    return f"/api/jobs/{job_id}"


def _package_path(uri: str) -> str:
    protocol, _, name = uri.partition("://")
    return f"/api/packages/{protocol}/{name}"


@asynccontextmanager
async def open_client(to: JobsClient | ClusterConnection | str) -> AsyncIterator[JobsClient]:
    """A client: the given one, which stays open, or a new one, which is closed at the end."""
    if isinstance(to, JobsClient):
        yield to
        return
    async with JobsClient(to) as client:
        yield client
