"""A plain loop keeps the promises of the suite by `raysweep.step` alone: a process, a folder, a real head."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.jobs.head import Head
from tests.orchestrators.loop import LoopOrchestrator
from tests.orchestrators.nights import Nights
from tests.orchestrators.suite import OrchestratorContract
from tests.prefect.conftest import log

__all__ = ["TestLoop", "log"]

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(900)]


class TestLoop(OrchestratorContract):
    # It has no servers.
    test_restarted_servers_cost_the_sweep_nothing = None  # type: ignore[assignment]
    # To run it again is to retry: what was cancelled stays so.
    test_what_is_asked_for_again_is_not_lost_to_a_cluster_that_is_away = None  # type: ignore[assignment]

    @pytest.fixture
    def orchestrator(self, head: Head, tmp_path: Path) -> Iterator[LoopOrchestrator]:
        loop = LoopOrchestrator(head, tmp_path)
        yield loop
        for process in loop.processes.values():
            process.kill()
            process.wait()

    # With every change Prefect and Airflow keep these.
    @pytest.mark.slow
    def test_the_best_config_is_trained(self, nights: Nights) -> None:
        super().test_the_best_config_is_trained(nights)

    @pytest.mark.slow
    def test_a_killed_step_costs_the_sweep_nothing(self, nights: Nights) -> None:
        super().test_a_killed_step_costs_the_sweep_nothing(nights)
