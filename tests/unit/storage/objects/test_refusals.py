"""A store that refuses: its code reaches the user, with the fix for that code. The server is a real one."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from raysweep.errors import StorageError, StorageNotWritableError, StorageUnavailableError
from raysweep.storage.objects.refusals import refusal_of
from raysweep.storage.objects.remote import RemoteStore

SECRET = "FwoGZXIvYXdzEBQaD" * 20


class Refusing(ThreadingHTTPServer):
    """Answers each request with one status and body."""

    answer: tuple[int, str] = (500, "")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Refusing

    def _refuse(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length") or 0))
        status, text = self.server.answer
        body = b"" if self.command == "HEAD" else text.encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_PUT = do_HEAD = do_POST = do_DELETE = _refuse

    def log_message(self, format: str, *args: Any) -> None:
        pass


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Refusing]:
    made = Refusing(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=made.serve_forever, args=(0.01,))
    thread.start()
    monkeypatch.delenv("AWS_ENDPOINT_URL_S3", raising=False)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{made.server_port}")
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_REGION"):
        monkeypatch.setenv(name, "us-east-1")
    yield made
    made.shutdown()
    thread.join()
    made.server_close()


def xml(code: str, message: str = "No.", extra: str = "") -> str:
    head = f'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>{code}</Code>'
    return f"{head}<Message>{message}</Message>{extra}<HostId>{SECRET}</HostId></Error>"


@pytest.mark.parametrize(
    ("status", "code", "extra", "fix"),
    [
        (403, "RequestTimeTooSkewed", "", "set this machine's clock (NTP)"),
        (400, "ExpiredToken", f"<Token-0>{SECRET}</Token-0>", "renew the credentials"),
        (400, "AuthorizationHeaderMalformed", "<Region>eu-west-3</Region>", "bucket's region (eu-west-3)"),
        (403, "SignatureDoesNotMatch", f"<StringToSign>{SECRET}</StringToSign>", "AWS_SECRET_ACCESS_KEY"),
        (403, "InvalidAccessKeyId", f"<AWSAccessKeyId>{SECRET}</AWSAccessKeyId>", "AWS_ACCESS_KEY_ID"),
        (403, "AccessDenied", "", "check the credentials and the bucket's policy"),
        (403, "QuotaExceeded", "", "free space in the store"),
        (400, "KMS.DisabledException", "", "the key that encrypts the bucket"),
        (400, "EntityTooLarge", "", "look up EntityTooLarge in the store's documentation"),
    ],
)
def test_the_code_of_a_refusal_and_its_fix_are_named_and_nothing_secret(
    server: Refusing, status: int, code: str, extra: str, fix: str
) -> None:
    server.answer = status, xml(code, "It is <b>not</b> &quot;allowed&quot;.".replace("<b>", ""), extra)
    key = f"sweeps/{'long-' * 40}name/journal/000000000001.jsonl"
    with pytest.raises(StorageError) as refused:
        RemoteStore("s3://bucket/prefix").get(key)
    assert f"{status} {code}: " in refused.value.problem
    assert '"allowed".' in refused.value.problem
    assert fix in refused.value.fix
    assert SECRET[:17] not in str(refused.value)
    assert fix in str(refused.value)


def test_a_store_without_conditional_writes_and_a_wrong_region_are_named_before_a_sweep(
    server: Refusing,
) -> None:
    server.answer = 501, xml("NotImplemented", "A header implies functionality that is not implemented")
    with pytest.raises(
        (StorageNotWritableError, StorageUnavailableError), match="501 NotImplemented: A header"
    ) as no:
        RemoteStore("s3://bucket/prefix").check_writable()
    assert "conditional writes (If-None-Match) are required" in str(no.value)
    server.answer = 301, xml("PermanentRedirect", extra="<Endpoint>b.s3.eu-west-3.amazonaws.com</Endpoint>")
    with pytest.raises(StorageError, match="incorrectly configured region; set AWS_REGION to the bucket"):
        RemoteStore("s3://bucket/prefix").check_writable()


def test_an_answer_without_a_body_names_all_that_it_may_be(server: Refusing) -> None:
    server.answer = 403, xml("RequestTimeTooSkewed")
    with pytest.raises(
        StorageError, match=r"403 Forbidden; check the credentials, .* and this machine's clock"
    ):
        RemoteStore("s3://bucket/prefix").exists("k")


def test_a_connection_that_fails_says_why_however_long_the_key_is(server: Refusing) -> None:
    server.shutdown()
    server.server_close()
    with pytest.raises(StorageUnavailableError, match="Connection refused"):
        RemoteStore("s3://bucket/prefix").get("k" * 300)


def test_answers_in_json_and_of_the_machines_own_service() -> None:
    text = "Error performing GET http://x/ in 1ms - Server returned non-2xx status code: 403 Forbidden: "
    answer = r'{"error": {"code": 403, "message": "Billing is \"off\""}}'
    said = refusal_of(OSError(text + answer))
    assert said.problem == '403 Forbidden: Billing is \\"off\\"'
    url = "http://169.254.169.254/latest/api/token"
    said = refusal_of(
        OSError(f"Generic S3 error: Error performing PUT {url} in 1ms - status code: 403 Forbidden")
    )
    assert "no credentials were found" in said.problem
    assert "AWS_ACCESS_KEY_ID" in said.fix
    assert refusal_of(TimeoutError()).problem == "TimeoutError"
