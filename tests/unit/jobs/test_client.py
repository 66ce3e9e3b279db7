"""The client against a loopback API: what is sent again, which error it is, and that no secret surfaces."""

from __future__ import annotations

import asyncio
import logging
import pickle
import socket
import ssl
import traceback
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from raysweep import errors
from raysweep.jobs.client import JobsClient
from raysweep.jobs.connection import ClusterConnection
from raysweep.jobs.wire import Submission
from tests.unit.jobs.api import Api, make_certificate, serving

TOKEN = "a-token-that-nobody-may-see"
SECRET = "a-password-of-the-trials"
JOB = "flights-0123456789.1"
Use = Callable[[JobsClient], Awaitable[Any]]


@pytest.fixture(autouse=True)
def no_token_around(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "SSL_CERT_FILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    monkeypatch.setattr("raysweep.jobs.client.FIRST_PAUSE_S", 0.001)


def call(connection: ClusterConnection | str, use: Use) -> Any:
    async def main() -> Any:
        async with JobsClient(connection) as client:
            return await use(client)

    return asyncio.run(main())


def version(client: JobsClient) -> Awaitable[Any]:
    return client.version()


def submission(job_id: str = JOB) -> Submission:
    return Submission(job_id=job_id, entrypoint="true", env_vars={"PASSWORD": SecretStr(SECRET)})


def times(count: int, trouble: str | int, method: str = "", part: str = "") -> Callable[[str, str], Any]:
    left = [count]

    def tell(was: str, path: str) -> Any:
        if method in was and part in path and left[0]:
            left[0] -= 1
            return trouble
        return None

    return tell


def test_jobs_from_submission_to_deletion() -> None:
    async def use(client: JobsClient) -> None:
        assert (await client.version()).ray == "2.60.0"
        assert await client.submit(submission()) == JOB
        info = await client.info(JOB)
        assert (info.job_id, info.status, info.is_ended) == (JOB, "RUNNING", False)
        assert [each.job_id for each in await client.jobs()] == [JOB]
        assert await client.stop(JOB) is True
        assert await client.stop(JOB) is False
        assert await client.delete(JOB) is True
        assert await client.delete(JOB) is False
        with pytest.raises(errors.JobNotFoundError, match=JOB):
            await client.info(JOB)

    with serving(Api(token=TOKEN)) as api:
        call(ClusterConnection(address=api.address, token=SecretStr(TOKEN)), use)
        assert api.count("POST", "/api/jobs/") == 3


@pytest.mark.parametrize("trouble", ["drop", 500, 502, 503, 429])
def test_what_may_pass_is_sent_again_within_a_bound(trouble: str | int) -> None:
    with serving(Api(trouble=times(3, trouble))) as api:
        assert call(api.address, version).ray == "2.60.0"
        assert len(api.calls) == 4
    expected = errors.ClusterUnreachableError if trouble == "drop" else errors.ClusterServerError
    with serving(Api(trouble=times(99, trouble))) as api:
        with pytest.raises(expected) as caught:
            call(api.address, version)
        assert len(api.calls) == 4
        assert caught.value.retryable


def test_a_submission_whose_answer_was_lost_ends_as_a_job_that_exists() -> None:
    with serving(Api(trouble=times(1, "lose", "POST"))) as api:
        with pytest.raises(errors.JobExistsError) as caught:
            call(api.address, lambda client: client.submit(submission()))
        assert caught.value.job_id == JOB
        assert list(api.jobs) == [JOB]
        # That it exists is final: it is not asked a third time.
        assert api.count("POST", "/api/jobs/") == 2


@pytest.mark.parametrize(
    ("server_token", "token", "expected"),
    [
        (TOKEN, None, errors.TokenMissingError),
        (TOKEN, "another-token-of-the-user", errors.TokenRefusedError),
    ],
)
def test_refused_tokens_are_errors_of_their_own_and_sent_once(
    server_token: str, token: str | None, expected: type[errors.ClusterError]
) -> None:
    with serving(Api(token=server_token)) as api:
        connection = ClusterConnection(address=api.address, token=SecretStr(token) if token else None)
        with pytest.raises(expected) as caught:
            call(connection, version)
        assert len(api.calls) == 1
    assert not caught.value.retryable
    assert token is None or token not in str(caught.value)


@pytest.mark.parametrize(
    ("status", "kind"), [(400, "request"), (302, "request"), (404, "request"), (403, "auth")]
)
def test_refused_requests_are_sent_once(status: int, kind: str) -> None:
    expected = errors.ClusterRequestError if kind == "request" else errors.ClusterAuthError
    with serving(Api(trouble=times(9, status))) as api:
        with pytest.raises(expected) as caught:
            call(api.address, version)
        assert len(api.calls) == 1
    assert type(caught.value) is expected
    assert not caught.value.retryable


def test_a_page_that_is_no_jobs_api_is_named_as_one() -> None:
    api = Api()
    api.answer = lambda method, path, body: (200, b"<html>")  # type: ignore[method-assign]
    with serving(api), pytest.raises(errors.ClusterRequestError, match="is not JSON"):
        call(api.address, version)


def test_nobody_at_the_address() -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    connection = ClusterConnection(address=f"http://127.0.0.1:{port}", tries=2)
    with pytest.raises(errors.ClusterUnreachableError, match="does not answer") as caught:
        call(connection, version)
    assert caught.value.retryable


def test_a_server_that_never_answers_is_given_up() -> None:
    with socket.socket() as silent:
        silent.bind(("127.0.0.1", 0))
        silent.listen()
        address = f"http://127.0.0.1:{silent.getsockname()[1]}"
        connection = ClusterConnection(address=address, tries=1, request_timeout_s=0.2)
        with pytest.raises(errors.ClusterUnreachableError):
            call(connection, version)


def test_certificates_are_checked(tmp_path: Path) -> None:
    pem, other = make_certificate(tmp_path), make_certificate(tmp_path, "other")
    with serving(Api(), certificate=pem) as api:
        with pytest.raises(errors.ClusterCertificateError, match=r"self.signed") as caught:
            call(api.address, version)
        assert not caught.value.retryable
        assert not api.calls
        with pytest.raises(errors.ClusterCertificateError):
            call(ClusterConnection(address=api.address, ca_bundle=str(other)), version)
        assert call(ClusterConnection(address=api.address, ca_bundle=str(pem)), version)
        assert call(ClusterConnection(address=api.address, verify=False), version)


def test_client_certificates(tmp_path: Path) -> None:
    pem, mine = make_certificate(tmp_path), make_certificate(tmp_path, "mine")
    with serving(Api(), certificate=pem, client_authority=mine) as api:
        trusted = ClusterConnection(address=api.address, ca_bundle=str(pem))
        # Which of the two depends on whether the server's reason arrives before its hanging up.
        expected = (errors.ClusterCertificateError, errors.ClusterUnreachableError)
        with pytest.raises(expected, match="certificate"):
            call(trusted, version)
        shown = ClusterConnection(address=api.address, ca_bundle=str(pem), client_cert=str(mine))
        assert call(shown, version)


def test_http_and_https_mixed_up(tmp_path: Path) -> None:
    with serving(Api()) as api:
        secure = ClusterConnection(address=api.address.replace("http:", "https:"), tries=1)
        with pytest.raises(errors.ClusterUnreachableError, match="does not speak TLS"):
            call(secure, version)


def test_a_proxy_from_the_environment_is_used(monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(Api(trouble=times(1, 418))) as proxy:
        monkeypatch.setenv("HTTP_PROXY", proxy.address)
        monkeypatch.delenv("NO_PROXY", raising=False)
        monkeypatch.delenv("no_proxy", raising=False)
        with pytest.raises(errors.ClusterRequestError, match="418"):
            call("http://cluster.invalid:8265", version)
        assert proxy.calls == [("GET", "http://cluster.invalid:8265/api/version")]
        direct = ClusterConnection(address="http://cluster.invalid:8265", trust_env=False, tries=1)
        with pytest.raises(errors.ClusterUnreachableError):
            call(direct, version)


def test_a_package_is_looked_for_before_it_is_sent() -> None:
    uri = "gcs://_ray_pkg_0123.zip"

    async def use(client: JobsClient) -> None:
        assert not await client.has_package(uri)
        await client.upload(uri, b"bytes")
        assert await client.has_package(uri)

    with serving(Api()) as api:
        call(api.address, use)
        assert api.packages == {"_ray_pkg_0123.zip": b"bytes"}


def test_the_log_is_followed_to_the_end() -> None:
    async def use(client: JobsClient) -> list[str]:
        await client.submit(submission())
        pieces = []
        api.logs[JOB] = "one\n"
        async for piece in client.tail(JOB, pause_s=0.01):
            pieces.append(piece)
            if len(pieces) == 1:
                api.logs[JOB] += "two\n"
            elif len(pieces) == 2:
                api.end(JOB, "SUCCEEDED", log=api.logs[JOB] + "three\n")
        return pieces

    with serving(Api()) as api:
        assert call(api.address, use) == ["one\n", "two\n", "three\n"]


def test_job_ids_cannot_leave_their_path() -> None:
    with serving(Api()) as api:
        for job_id in ("../packages/x", "a/stop", "", "a?b"):
            with pytest.raises(errors.SpecError):
                call(api.address, lambda client, job_id=job_id: client.info(job_id))  # type: ignore[misc]
        assert not api.calls


# --- secrets


def shown_of(error: BaseException) -> str:
    """All that tools show of an exception: text, chain, arguments, and the variables of its frames."""
    texts = []
    seen: BaseException | None = error
    while seen is not None:
        shown = traceback.TracebackException.from_exception(seen, capture_locals=True)
        texts += [*shown.format(), repr(seen), repr(seen.args), repr(vars(seen)), repr(pickle.dumps(seen))]
        seen = seen.__cause__ or seen.__context__
    return "\n".join(texts)


@pytest.mark.parametrize("trouble", ["drop", 500, 400, 401, None])
def test_secrets_are_in_no_error_and_no_log(
    trouble: str | int | None, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG)
    api = Api(trouble=times(99, trouble) if trouble else lambda method, path: None)
    if trouble is None:
        # A server that says all that it was sent.
        api.answer = lambda method, path, body: (500, body + TOKEN.encode())  # type: ignore[method-assign]
    with serving(api):
        connection = ClusterConnection(
            address=api.address,
            token=SecretStr(TOKEN),
            headers={"X-Key": SecretStr("a-key-for-the-gateway")},
        )
        with pytest.raises(errors.ClusterError) as caught:
            call(connection, lambda client: client.submit(submission()))
    shown = shown_of(caught.value)
    assert "flights" in shown
    logged = "\n".join(f"{record.getMessage()} {record.args!r}" for record in caplog.records)
    assert "httpcore" in {record.name.split(".")[0] for record in caplog.records}
    for secret in (TOKEN, SECRET, "a-key-for-the-gateway"):
        assert secret not in shown
        assert secret not in logged
        assert secret not in repr(connection) + str(connection) + repr(JobsClient(connection))
    assert not [each for each in _chain(caught.value) if type(each).__module__.startswith("http")]


def _chain(error: BaseException | None) -> list[BaseException]:
    return [] if error is None else [error, *_chain(error.__cause__), *_chain(error.__context__)]


def test_secrets_are_in_no_message_of_a_job() -> None:
    """A cluster may say in it what the job was submitted with, also to who did not submit it."""
    secret = 'two\nlines with "quotes"'
    given = Submission(job_id=JOB, entrypoint="true", env_vars={"KEY": SecretStr(secret)})

    async def use(client: JobsClient) -> None:
        await client.submit(given)
        api.jobs[JOB]["message"] = f"failed with {TOKEN} and {secret!r}"
        for info in (await client.info(JOB), *await client.jobs()):
            assert info.message == "failed with ********** and '**********'"

    async def look(client: JobsClient) -> None:
        api.jobs[JOB]["message"] = f"no runtime_env {{'env_vars': {{'KEY': {secret!r}}}}}"
        assert "quotes" not in (await client.info(JOB)).message

    with serving(Api(token=TOKEN)) as api:
        connection = ClusterConnection(address=api.address, token=SecretStr(TOKEN))
        call(connection, use)
        call(connection, look)


@pytest.mark.parametrize("proxy", ["socks5://me:hunter22@proxy:1", "ftp://me:hunter22@proxy"])
def test_a_proxy_of_the_environment_that_cannot_be(monkeypatch: pytest.MonkeyPatch, proxy: str) -> None:
    for name in ("HTTP_PROXY", "http_proxy"):
        monkeypatch.setenv(name, proxy)
    for name in ("NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    with pytest.raises(errors.SpecError, match="proxy: the environment's cannot be used") as caught:
        call("http://head.example:8265", version)
    assert "hunter22" not in "".join(traceback.format_exception(caught.value))


def test_secrets_are_in_no_repr_of_a_submission() -> None:
    assert SECRET not in repr(submission())
    assert SECRET in submission().encode().decode()


def test_the_context_of_verified_tls_demands_certificates() -> None:
    context = ClusterConnection(address="https://x").ssl_context()
    assert context.verify_mode is ssl.CERT_REQUIRED
    assert context.check_hostname


# --- secrets that are rotated


def rotating(api: Api, tokens: list[str]) -> ClusterConnection:
    """A connection that is kept elsewhere, where its token is the last of these."""

    def read() -> ClusterConnection:
        return ClusterConnection(
            address=api.address, token=SecretStr(tokens[-1]), trust_env=False, tries=1, renew=read
        )

    return read()


def test_a_token_that_was_rotated_is_taken_up_and_the_request_sent_once_more() -> None:
    with serving(Api(token="evening")) as api:
        tokens = ["evening"]

        async def night() -> None:
            async with JobsClient(rotating(api, tokens)) as client:
                await client.jobs()
                api.token = "morning"
                tokens.append("morning")
                await client.jobs()
                assert api.count("GET", "/api/jobs/") == 3
                await client.jobs()
                assert api.count("GET", "/api/jobs/") == 4

        asyncio.run(night())


def test_a_token_that_was_refused_and_is_still_the_same_is_not_sent_again() -> None:
    with serving(Api(token="evening")) as api:
        connection = rotating(api, ["wrong"])

        async def ask() -> None:
            async with JobsClient(connection) as client:
                await client.jobs()

        with pytest.raises(errors.TokenRefusedError):
            asyncio.run(ask())
        assert api.count("GET", "/api/jobs/") == 1


def test_a_token_of_a_file_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "token"
    file.write_text("evening")
    monkeypatch.delenv("RAY_AUTH_TOKEN", raising=False)
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(file))
    with serving(Api(token="morning")) as api:
        connection = ClusterConnection(address=api.address, trust_env=False)
        file.write_text("morning")

        async def ask() -> None:
            async with JobsClient(connection) as client:
                await client.jobs()

        asyncio.run(ask())


def test_a_connection_that_cannot_be_read_again_leaves_the_refusal_as_it_is() -> None:
    def fail() -> ClusterConnection:
        raise OSError("the vault is away")

    with serving(Api(token="morning")) as api:
        connection = ClusterConnection(
            address=api.address, token=SecretStr("evening"), trust_env=False, renew=fail
        )

        async def ask() -> None:
            async with JobsClient(connection) as client:
                await client.jobs()

        with pytest.raises(errors.TokenRefusedError):
            asyncio.run(ask())


def test_many_requests_at_once_take_up_a_rotated_token_together() -> None:
    with serving(Api(token="evening")) as api:
        tokens = ["evening"]

        async def night() -> None:
            async with JobsClient(rotating(api, tokens)) as client:
                await client.jobs()
                api.token = "morning"
                tokens.append("morning")
                await asyncio.gather(*(client.jobs() for _ in range(20)))

        asyncio.run(night())
