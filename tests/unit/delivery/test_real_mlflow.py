"""The contract of trackers with a real MLflow server: `make test-trackers` has its package."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import httpx
import pytest

from raysweep.hooks.spec import CallbackSpec
from tests.unit.delivery.contract import Stored, TrackerContract, options, shown
from tests.unit.delivery.mlflow_server import mlflow_server
from tests.unit.delivery.servers import StandIn

pytest.importorskip("mlflow", reason="mlflow cannot be installed beside Airflow: make test-trackers")


class Proxy(StandIn):
    """Passes requests on, and fails when it is told to."""

    def __init__(self, target: str) -> None:
        super().__init__()
        self.client = httpx.Client(base_url=target, timeout=60)

    def handle(self, path: str, query: dict[str, str], body: Any) -> tuple[int, dict[str, Any]]:
        """Pass it on."""
        answer = self.client.post(path, json=body) if body else self.client.get(path, params=query)
        return answer.status_code, answer.json()


@pytest.fixture(scope="module")
def address(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with mlflow_server(tmp_path_factory.mktemp("mlflow")) as url:
        yield url


@pytest.mark.timeout(900)
class TestMlflow(TrackerContract):
    @pytest.fixture(autouse=True)
    def _proxy(self, address: str, request: pytest.FixtureRequest) -> Iterator[None]:
        self.address, self.experiment = address, request.node.name
        self.proxy = Proxy(address)
        with self.proxy.running():
            yield

    def callback(self) -> CallbackSpec:
        return options("mlflow", tracking_uri=self.proxy.url, experiment=self.experiment)

    def break_half(self) -> None:
        self.proxy.is_flaky = True

    def stored(self) -> Stored:
        found = Stored([])
        with httpx.Client(base_url=f"{self.address}/api/2.0/mlflow/", timeout=60) as client:
            experiment = client.get("experiments/get-by-name", params={"experiment_name": self.experiment})
            ids = [experiment.json()["experiment"]["experiment_id"]]
            for run in client.post("runs/search", json={"experiment_ids": ids}).json()["runs"]:
                tags = {tag["key"]: tag["value"] for tag in run["data"]["tags"]}
                trial = tags["raysweep.trial_id"]
                if trial == "sweep":
                    continue
                assert trial not in found.states, "a trial has two runs"
                found.states[trial] = tags["raysweep.state"]
                for metric in run["data"].get("metrics", ()):
                    query = {"run_id": run["info"]["run_id"], "metric_key": metric["key"]}
                    for each in client.get("metrics/get-history", params=query).json()["metrics"]:
                        found.points.append(
                            (trial, int(each["step"]), each["key"], shown(float(each["value"])))
                        )
        return found
