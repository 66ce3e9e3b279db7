"""The promises of a night, kept by Airflow. Here, and not beside the suite: the servers are shared."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.airflow.servers import Airflow
from tests.orchestrators.airflow import AirflowOrchestrator
from tests.orchestrators.nights import Nights
from tests.orchestrators.suite import OrchestratorContract


@pytest.mark.servers
@pytest.mark.ray
@pytest.mark.timeout(600)
class TestAirflow(OrchestratorContract):
    @pytest.fixture
    def orchestrator(self, airflow: Airflow) -> AirflowOrchestrator:
        return AirflowOrchestrator(airflow)

    @pytest.fixture
    def log(self, tmp_path: Path) -> Path:
        path = tmp_path / "log"
        path.touch()
        return path

    # With every change Prefect keeps these.
    @pytest.mark.slow
    def test_the_best_config_is_trained(self, nights: Nights) -> None:
        super().test_the_best_config_is_trained(nights)

    @pytest.mark.slow
    def test_a_mistake_in_user_code_fails_once_with_its_traceback(self, nights: Nights) -> None:
        super().test_a_mistake_in_user_code_fails_once_with_its_traceback(nights)
