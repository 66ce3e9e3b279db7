"""Prefect keeps the promises of the suite: a real server, a real process worker, a real Ray head."""

from __future__ import annotations

import pytest

from tests.orchestrators.nights import Nights
from tests.orchestrators.suite import OrchestratorContract
from tests.prefect.conftest import log, orchestrator

__all__ = ["TestPrefect", "log", "orchestrator"]

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(900)]


class TestPrefect(OrchestratorContract):
    # `prefect flow-run retry` asks for what there is; `resume_cancelled` continues a cancelled sweep.
    test_what_is_asked_for_again_is_not_lost_to_a_cluster_that_is_away = None  # type: ignore[assignment]

    # With every change Airflow keeps these.
    @pytest.mark.slow
    def test_a_killed_step_costs_the_sweep_nothing(self, nights: Nights) -> None:
        super().test_a_killed_step_costs_the_sweep_nothing(nights)

    @pytest.mark.slow
    def test_a_night_cancelled_by_a_person_ends_its_sweep(self, nights: Nights) -> None:
        super().test_a_night_cancelled_by_a_person_ends_its_sweep(nights)
