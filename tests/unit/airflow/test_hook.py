"""An Airflow connection as the address, token and TLS of a cluster."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from airflow.sdk import Connection
from airflow.sdk.exceptions import AirflowRuntimeError, ErrorType
from airflow.sdk.execution_time import supervisor, task_runner
from airflow.sdk.execution_time.comms import ConnectionResult, ErrorResponse
from airflow.sdk.execution_time.secrets import ExecutionAPISecretsBackend

from raysweep.errors import ConnectionUnreadableError, RaysweepError, SpecError
from raysweep_airflow.hooks import Access, RaySweepHook


def connection(extra: Any = None, **fields: Any) -> Connection:
    text = extra if isinstance(extra, str) or extra is None else json.dumps(extra)
    return Connection(conn_id="c", conn_type="raysweep", extra=text, **{"host": "http://head"} | fields)


@pytest.mark.parametrize(
    ("fields", "address"),
    [
        ({"host": "head", "port": 8265}, "http://head:8265"),
        ({"host": "http://head", "port": 8265}, "http://head:8265"),
        ({"host": "http://head:8000", "port": 8265}, "http://head:8000"),
        ({"host": "https://ray.example.com"}, "https://ray.example.com"),
        ({"host": "https://ray.example.com/east/", "port": 444}, "https://ray.example.com:444/east"),
        ({"host": "ray.example.com", "schema": "https"}, "https://ray.example.com"),
        ({"host": "[::1]", "port": 8265}, "http://[::1]:8265"),
    ],
)
def test_the_address(fields: dict[str, Any], address: str) -> None:
    assert Access.of(connection(**fields)).cluster.address == address


def test_all_fields(tmp_path: Path) -> None:
    bundle = tmp_path / "ca.pem"
    bundle.touch()
    extra = {
        "verify": "false",
        "ca_bundle": str(bundle),
        "auth_headers": '{"X-Team": "a-secret-header"}',
        "proxy": "http://me:a-secret-proxy@proxy",
        "storage_path": "s3://bucket/sweeps",
        "dashboard_url": "https://ray.example.com/",
        "request_timeout_s": 30,
    }
    access = Access.of(connection(extra, password="a-secret-token"))
    assert access.storage_path == "s3://bucket/sweeps"
    assert access.dashboard_url == "https://ray.example.com"
    assert (access.cluster.verify, access.cluster.ca_bundle) == (False, str(bundle))
    assert access.cluster.request_timeout_s == 30
    assert access.cluster.token is not None
    assert access.cluster.token.get_secret_value() == "a-secret-token"
    assert access.cluster.headers["X-Team"].get_secret_value() == "a-secret-header"
    assert "a-secret" not in repr(access)


def test_no_secret_of_a_connection_is_shown_by_airflows_api() -> None:
    """It masks what is in the extra by the names of its fields, so the form has to choose them well."""
    from airflow.api_fastapi.core_api.datamodels.connections import ConnectionResponse

    from raysweep_airflow.provider import get_provider_info

    (form,) = get_provider_info()["connection-types"]
    secret = [
        name for name, field in form["conn-fields"].items() if field["schema"].get("format") == "password"
    ]
    assert set(secret) == {"auth_headers", "proxy"}
    extra = {name: f'{{"X-Team": "hunter22-{name}"}}' for name in secret} | {"storage_path": "s3://b"}
    shown = ConnectionResponse(
        conn_id="c",
        conn_type="raysweep",
        description=None,
        host="h",
        login=None,
        schema=None,
        port=1,
        password="hunter22",
        extra=json.dumps(extra),
        team_name=None,
    )
    assert "hunter22" not in shown.model_dump_json()
    assert "s3://b" in shown.model_dump_json()


def test_headers_that_airflows_api_would_show_are_refused() -> None:
    with pytest.raises(SpecError, match="call the field auth_headers") as caught:
        Access.of(connection({"headers": {"X-A": "a-secret"}}))
    assert "a-secret" not in str(caught.value)


def test_fields_of_the_old_form() -> None:
    access = Access.of(connection({"extra__raysweep__storage_path": "s3://b/x"}))
    assert access.storage_path == "s3://b/x"


@pytest.mark.parametrize(
    ("given", "expected"),
    [(None, True), (True, True), (False, False), ("no", False), ("true", True), ("0", False)],
)
def test_tls_is_verified_unless_it_says_no(given: Any, expected: bool) -> None:
    extra = {} if given is None else {"verify": given}
    assert Access.of(connection(extra)).cluster.verify is expected


@pytest.mark.parametrize(
    ("bad", "field"),
    [
        ({"host": ""}, "host"),
        ({"extra": {"auth_headers": "no json"}}, "auth_headers"),
        ({"extra": {"auth_headers": {"X Y": "two words"}}}, "headers"),
        ({"extra": {"proxy": "two words"}}, "proxy"),
        ({"extra": {"request_timeout_s": "long"}}, "request_timeout_s"),
        ({"extra": {"request_timeout_s": -1}}, "request_timeout_s"),
        ({"extra": {"headers": {"X": 1}}}, "headers"),
        ({"extra": {"ca_bundle": "/nowhere.pem"}}, "ca_bundle"),
        ({"host": "ftp://head"}, "address"),
        ({"password": "two words"}, "token"),
    ],
)
def test_what_cannot_be_names_the_field(bad: dict[str, Any], field: str) -> None:
    with pytest.raises(SpecError) as raised:
        Access.of(connection(**bad))
    assert raised.value.field == field
    assert "two words" not in str(raised.value)


# --- what Airflow says of a connection that it cannot get

NONE = ErrorResponse(error=ErrorType.CONNECTION_NOT_FOUND)
DOWN = ErrorResponse(error=ErrorType.API_SERVER_ERROR)
THERE = ConnectionResult(
    conn_id="c",
    conn_type="raysweep",
    host="http://head",
    schema=None,
    login=None,
    password=None,
    port=None,
    extra=None,
)


class Supervisor:
    """The far edge: the process above the task, which asks the API server."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)

    def send(self, message: Any) -> Any:
        if type(message).__name__ != "GetConnection":
            return None
        answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def asend(self, message: Any) -> Any:
        return self.send(message)


class Vault:
    """A secrets backend of the worker."""

    def __init__(self, error: Exception | None = None) -> None:
        self.error = error

    def get_connection(self, conn_id: str, **_: Any) -> Connection | None:
        if self.error is not None:
            raise self.error
        return None


Ask = Callable[[RaySweepHook], Access]


@pytest.fixture(params=["in a task", "in the triggerer"])
def ask(request: pytest.FixtureRequest) -> Ask:
    if request.param == "in a task":
        return lambda hook: hook.access()
    return lambda hook: asyncio.run(hook.aaccess())


@pytest.fixture
def airflow_has(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    def has(*answers: Any, vault: Exception | None = None) -> None:
        monkeypatch.setattr(task_runner, "SUPERVISOR_COMMS", Supervisor(*answers), raising=False)
        backends = [Vault(vault), ExecutionAPISecretsBackend()]
        monkeypatch.setattr(supervisor, "ensure_secrets_backend_loaded", lambda: backends)

    return has


def why(ask: Ask) -> RaysweepError:
    with pytest.raises(RaysweepError) as raised:
        ask(RaySweepHook("c"))
    return raised.value


def test_a_connection_that_is_there(ask: Ask, airflow_has: Callable[..., None]) -> None:
    airflow_has(THERE)
    assert ask(RaySweepHook("c")).cluster.address == "http://head"


def test_a_connection_that_is_not_there(ask: Ask, airflow_has: Callable[..., None]) -> None:
    airflow_has(NONE)
    error = why(ask)
    assert isinstance(error, SpecError)
    assert "there is no connection 'c'; airflow connections add c" in str(error)


@pytest.mark.parametrize(
    ("answers", "vault", "text"),
    [
        ((DOWN,), None, "API_SERVER_ERROR"),
        ((AirflowRuntimeError(DOWN),), None, "API_SERVER_ERROR"),
        ((OSError(24, "Too many open files"),), None, "Too many open files"),
        ((NONE,), ConnectionError("vault is sealed"), "vault is sealed"),
        ((ErrorResponse(error=ErrorType.PERMISSION_DENIED),), None, "AccessDenied"),
        ((DOWN, THERE), None, "then it was"),
    ],
)
def test_a_connection_of_which_nobody_knows_can_be_asked_for_again(
    ask: Ask, airflow_has: Callable[..., None], answers: Any, vault: Exception | None, text: str
) -> None:
    """Airflow says `not found` of all of these."""
    airflow_has(*answers, vault=vault)
    error = why(ask)
    assert isinstance(error, ConnectionUnreadableError)
    assert error.retryable
    assert text in str(error)


def test_a_connection_that_was_there_is_not_believed_to_be_gone(airflow_has: Callable[..., None]) -> None:
    """The API server answers 404 also where its database fails."""
    airflow_has(NONE)
    with pytest.raises(ConnectionUnreadableError, match="it was there before"):
        RaySweepHook("c").access(was_there=True)
    with pytest.raises(ConnectionUnreadableError, match="it was there before"):
        asyncio.run(RaySweepHook("c").aaccess(was_there=True))
