"""Prefect keeps the promises of the suite: a real server, a real process worker, a real Ray head."""

from __future__ import annotations

import pytest

from tests.orchestrators.suite import OrchestratorContract
from tests.prefect.conftest import log, orchestrator

__all__ = ["TestPrefect", "log", "orchestrator"]

pytestmark = [pytest.mark.servers, pytest.mark.ray, pytest.mark.timeout(400)]


class TestPrefect(OrchestratorContract):
    pass
