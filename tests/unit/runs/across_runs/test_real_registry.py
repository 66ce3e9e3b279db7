"""The contract of registries with a real MLflow server: `make test-trackers` has its package."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from raysweep.runs.across_runs.releases import roll_back
from raysweep.storage.objects.opening import open_store
from tests.unit.delivery.mlflow_server import START_S, RealMlflow, mlflow_server
from tests.unit.runs.across_runs.nights import LINE
from tests.unit.runs.across_runs.registry_contract import (
    NIGHTS,
    DownAtTimes,
    RegistryContract,
    RegistryNights,
)

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


@pytest.mark.timeout(3600)
class TestAway(Looks, RegistryNights):
    """A server whose process ends and starts again."""

    @pytest.fixture
    def own(self, tmp_path: Path) -> Iterator[RealMlflow]:
        (folder := tmp_path / "own").mkdir()
        server = RealMlflow(folder)
        try:
            server.start()
            yield server
        finally:
            server.stop()

    @pytest.fixture(autouse=True)
    def _proxy(self, own: RealMlflow, tmp_path: Path) -> Iterator[None]:
        self.model = tmp_path.name
        self.server = Proxy(own.url)
        with self.server.running():
            yield

    def test_twenty_promotions_while_its_process_is_gone_in_a_third_of_them(
        self, own: RealMlflow, tmp_path: Path
    ) -> None:
        """The night begins to register while it is gone, and continues once it is back."""
        assert isinstance(self.server, Proxy)
        store, outages = open_store(tmp_path), 0
        for number in range(NIGHTS):
            back: threading.Thread | None = None
            if number % 3 == 1:
                own.stop()
                before, outages = self.server.refused, outages + 1
                back = threading.Timer(1.0, own.start)
                back.start()
            synced = self.night(store, number, give_up_after_s=START_S)
            if back is not None:
                back.join()
                assert self.server.refused > before
            assert synced is not None
            assert (synced.pending, self.champion()) == ("", synced.version)
        assert outages == 7
        assert self.server.moves == [str(number) for number in range(1, NIGHTS + 1)]
        assert len({tags["raysweep.release"] for tags in self.versions().values()}) == NIGHTS
        roll_back(store, LINE)
        own.stop()
        pending = self.sync(store, give_up_after_s=0)
        assert pending is not None
        assert pending.pending
        own.start()
        self.sync(store)
        assert self.champion() == str(NIGHTS - 1)
        assert self.server.moves[NIGHTS:] == [str(NIGHTS - 1)]
