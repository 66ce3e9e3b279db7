"""How to reach a cluster: where the token comes from, and what is refused before anything is sent."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from raysweep.errors import SpecError
from raysweep.jobs.connection import ClusterConnection, find_token, is_jobs_address


@pytest.fixture
def home(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    for name in ("RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    return tmp_path


def token_of(connection: ClusterConnection) -> str | None:
    return connection.token.get_secret_value() if connection.token is not None else None


def test_token_from_argument_then_environment_then_files(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert find_token() is None
    (home / ".ray").mkdir()
    (home / ".ray/auth_token").write_text(" from-home\n")
    assert token_of(ClusterConnection(address="http://x")) == "from-home"
    (home / "elsewhere").write_text("from-path\n")
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "elsewhere"))
    assert token_of(ClusterConnection(address="http://x")) == "from-path"
    monkeypatch.setenv("RAY_AUTH_TOKEN", "from-environment")
    assert token_of(ClusterConnection(address="http://x")) == "from-environment"
    assert token_of(ClusterConnection(address="http://x", token=SecretStr("given"))) == "given"
    assert token_of(ClusterConnection(address="http://x", token=SecretStr(""))) is None


def test_a_named_token_file_must_be_readable(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(home / "missing"))
    with pytest.raises(SpecError, match=r"RAY_AUTH_TOKEN_PATH.*missing"):
        find_token()


@pytest.mark.parametrize(
    ("fields", "named"),
    [
        ({"address": ""}, "address"),
        ({"address": "head:8265"}, "address"),
        ({"address": "ray://head:10001"}, "address"),
        ({"address": "http://"}, "address"),
        ({"address": "http://head:port"}, "address"),
        ({"address": "http://head:8265?x=1"}, "address"),
        ({"address": "http://user:hunter22@head:8265"}, "address"),
        ({"token": SecretStr("two\nlines")}, "token"),
        ({"ca_bundle": "/nowhere.pem"}, "ca_bundle"),
        ({"client_key": __file__}, "client_key"),
        ({"tries": 0}, "tries"),
        ({"proxy": "hunter22"}, "proxy"),
        ({"proxy": "ftp://hunter22@proxy"}, "proxy"),
        ({"proxy": "http://me:hunter22@proxy:port"}, "proxy"),
        ({"proxy": "http://[hunter22"}, "proxy"),
        ({"proxy": "socks5://me:hunter22@proxy:1080"}, "proxy"),
        ({"proxy": "http://me:hunter22ü@proxy"}, "proxy"),
        ({"headers": {"X-Team": "hunter22\r\nHost: other"}}, "headers"),
        ({"headers": {"X-Team": "hunter22 ü"}}, "headers"),
        ({"headers": {"X Team": "hunter22"}}, "headers"),
        ({"headers": {"X-Team: x\r\nY": "hunter22"}}, "headers"),
        ({"headers": {"": "hunter22"}}, "headers"),
    ],
)
def test_what_cannot_be_is_refused_at_once(fields: dict[str, Any], named: str) -> None:
    with pytest.raises(SpecError) as caught:
        ClusterConnection(**{"address": "http://head:8265", **fields})
    assert caught.value.field == named
    assert "hunter22" not in str(caught.value)
    assert "two" not in str(caught.value)


def test_files_that_are_no_certificates(home: Path) -> None:
    with pytest.raises(SpecError, match="ca_bundle"):
        ClusterConnection(address="https://x", ca_bundle=__file__).ssl_context()
    with pytest.raises(SpecError, match="client_cert"):
        ClusterConnection(address="https://x", client_cert=__file__).ssl_context()


def test_addresses_are_normalised(home: Path) -> None:
    assert ClusterConnection(address=" HTTP://head:8265/ray/ ").address == "http://head:8265/ray"


@pytest.mark.parametrize(
    ("address", "expected"),
    [("http://h:1", True), ("HTTPS://h", True), ("auto", False), ("ray://h:1", False), (None, False)],
)
def test_which_addresses_are_of_the_jobs_api(address: str | None, expected: bool) -> None:
    assert is_jobs_address(address) is expected
