"""The fixtures of `tests/engine`, and a plan of faults in a folder of its own."""

from __future__ import annotations

from pathlib import Path

import pytest

from raysweep.testing import FaultPlan
from tests.engine.conftest import (  # noqa: F401  fixtures, used by their names
    address,
    drive,
    events,
    lines,
    log,
    make_spec,
    ray_cluster,
    storage,
)


@pytest.fixture
def plan(tmp_path: Path) -> FaultPlan:
    return FaultPlan(str(tmp_path / "faults"))
