"""Where a driver finds the metadata of its job."""

from __future__ import annotations

from ray._private import worker
from ray._private.runtime_env.constants import RAY_JOB_CONFIG_JSON_ENV_VAR

from raysweep.jobs.releases import JOB_CONFIG
from tests.unit.raycompat.moved import check_uses


def test_ray_hands_it_to_the_driver_in_a_variable() -> None:
    assert RAY_JOB_CONFIG_JSON_ENV_VAR == JOB_CONFIG
    check_uses(worker.init, "os.environ.get(RAY_JOB_CONFIG_JSON_ENV_VAR)")
