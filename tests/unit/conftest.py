"""How Hypothesis runs here, and stores to test against.

No example has a time limit, as machines are busy; a test as a whole has one. Examples are the same in each
run, so that a red suite is the work of whoever changed something; with RAYSWEEP_RANDOM=1 they are drawn anew,
as they always are in the exhaustive interleavings. The stores are a local folder, memory, and S3 through a
moto server on loopback.
"""

from __future__ import annotations

import logging
import os
import secrets
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from hypothesis import settings

from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store

settings.register_profile(
    "raysweep",
    settings.get_profile(settings.get_current_profile_name()),
    deadline=None,
    derandomize=not os.environ.get("RAYSWEEP_RANDOM"),
)
settings.load_profile("raysweep")

KINDS = ("local", "memory", "s3")


@pytest.fixture(scope="session")
def s3_url() -> Iterator[str]:
    """`s3://bucket`, with the environment that reaches it set for the whole session."""
    from moto.server import ThreadedMotoServer

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    server.start()
    host, port = server.get_host_and_port()
    endpoint = f"http://{host}:{port}"
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("AWS_ENDPOINT_URL", endpoint)
        patch.setenv("AWS_ACCESS_KEY_ID", "test")
        patch.setenv("AWS_SECRET_ACCESS_KEY", "test")
        patch.setenv("AWS_REGION", "us-east-1")
        request = urllib.request.Request(f"{endpoint}/bucket", method="PUT")
        with urllib.request.urlopen(request) as response:
            assert response.status == 200
        yield "s3://bucket"
    server.stop()


@pytest.fixture
def store_url(request: pytest.FixtureRequest, tmp_path: Path) -> Callable[[str], str]:
    """kind -> the URL of an empty store of that kind."""

    def make(kind: str) -> str:
        if kind == "local":
            return str(tmp_path / "store")
        if kind == "memory":
            return f"memory://{secrets.token_hex(8)}"
        return f"{request.getfixturevalue('s3_url')}/{secrets.token_hex(8)}"

    return make


@pytest.fixture(params=KINDS)
def store(request: pytest.FixtureRequest, store_url: Callable[[str], str]) -> Store:
    """An empty store, of each kind in turn."""
    return open_store(store_url(request.param))


@pytest.fixture(autouse=True)
def no_lag(monkeypatch: pytest.MonkeyPatch) -> None:
    """The stores here list what they hold: a segment that is taken away is missing at once."""
    monkeypatch.setattr("raysweep.storage.journal.objects.LAG_S", 0.2)
