"""What the scenarios need: a log, and Prefect's part in them."""

from __future__ import annotations

from pathlib import Path

import pytest

from devtools.prefect.local import LocalPrefect
from tests.orchestrators.prefect import PrefectOrchestrator


@pytest.fixture(scope="session")
def orchestrator(prefect_servers: LocalPrefect) -> PrefectOrchestrator:
    return PrefectOrchestrator(prefect_servers)


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """The file to which the scenarios' trainables write a line at each start and end."""
    path = tmp_path / "log"
    path.touch()
    return path
