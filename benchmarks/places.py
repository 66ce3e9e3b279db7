"""Where contenders store: a folder on the local disk, or a bucket of an S3 server on loopback."""

from __future__ import annotations

import os
import secrets
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError

from benchmarks.contenders import scratch

_BUCKET: Final = "benchmark"
_KEY: Final = "test"
_START_S: Final = 60.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`folder`: on this machine, for notes; `path`: where raysweep stores; `for_ray`: what Ray is told."""

    folder: Path
    path: str
    for_ray: dict[str, Any]

    def stored_bytes(self) -> int:
        """What lies there."""
        from raysweep.storage.objects.opening import open_store

        return sum(info.size_bytes for info in open_store(self.path).list())


@contextmanager
def place(*, is_s3: bool) -> Iterator[Place]:
    """A new one, empty; what is stored there is gone afterwards."""
    with scratch() as folder:
        if not is_s3:
            path = str(folder / "stored")
            yield Place(folder=folder, path=path, for_ray={"storage_path": path})
            return
        from pyarrow.fs import S3FileSystem

        name = f"{_BUCKET}/{secrets.token_hex(4)}"
        endpoint = os.environ["AWS_ENDPOINT_URL"].removeprefix("http://")
        files = S3FileSystem(access_key=_KEY, secret_key=_KEY, endpoint_override=endpoint, scheme="http")
        for_ray = {"storage_path": name, "storage_filesystem": files}
        yield Place(folder=folder, path=f"s3://{name}", for_ray=for_ray)
        with suppress(OSError):
            files.delete_dir(name)


@contextmanager
def s3_server() -> Iterator[None]:
    """A moto server in a process of its own, and the environment that reaches it."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    endpoint = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)]
    server = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        _wait_for(endpoint)
        settings = {"AWS_ENDPOINT_URL": endpoint, "AWS_REGION": "us-east-1"}
        os.environ.update(settings | {"AWS_ACCESS_KEY_ID": _KEY, "AWS_SECRET_ACCESS_KEY": _KEY})
        request = urllib.request.Request(f"{endpoint}/{_BUCKET}", method="PUT")
        with urllib.request.urlopen(request):
            pass
        yield
    finally:
        server.kill()
        server.wait()


def _wait_for(endpoint: str) -> None:
    deadline = time.monotonic() + _START_S
    while True:
        try:
            with urllib.request.urlopen(endpoint, timeout=5):
                return
        except URLError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
