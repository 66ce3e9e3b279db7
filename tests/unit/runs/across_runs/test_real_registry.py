"""The contract of registries with a real MLflow server: `make test-trackers` has its package."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.unit.delivery.mlflow_server import mlflow_server
from tests.unit.runs.across_runs.registry_contract import DownAtTimes, RegistryContract

pytest.importorskip("mlflow", reason="mlflow cannot be installed beside Airflow: make test-trackers")


class Proxy(DownAtTimes):
    """Passes requests on, and fails when it is told to, or when nothing answers behind it."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.client = httpx.Client(base_url=target, timeout=60)
        self.refused = 0
        """How many requests found no server."""

    def carry_out(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Pass it on."""
        try:
            answer = self.client.post(path, json=body) if body else self.client.get(path, params=query)
        except httpx.TransportError:
            self.refused += 1
            return 502, {}
        return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


class Looks:
    """Looks at a real server through its proxy."""

    server: DownAtTimes
    model: str

    def _get(self, path: str, **params: str) -> Any:
        assert isinstance(self.server, Proxy)
        return self.server.client.get(f"/api/2.0/mlflow/{path}", params=params).json()

    def versions(self) -> dict[str, dict[str, str]]:
        found = self._get("model-versions/search", filter=f"name='{self.model}'", max_results="100")
        return {
            each["version"]: {tag["key"]: tag["value"] for tag in each["tags"]}
            for each in found["model_versions"]
        }

    def champion(self) -> str:
        found = self._get("registered-models/alias", name=self.model, alias="champion")
        return str(found["model_version"]["version"])


@pytest.mark.timeout(900)
class TestMlflow(Looks, RegistryContract):
    @pytest.fixture(autouse=True)
    def _proxy(self, address: str, tmp_path: Path) -> Iterator[None]:
        self.model = tmp_path.name
        self.server = Proxy(address)
        with self.server.running():
            yield
