"""Policies that only the working_dir of a job has, behind the Jobs API: killed, and resumed exactly."""

from __future__ import annotations

import asyncio
import importlib.util
import shutil
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

import raysweep as rs
from raysweep.errors import ClusterLostError
from raysweep.jobs import ClusterConnection, JobOptions, JobsClient, submit_or_attach, wait
from raysweep.simulate import simulate
from raysweep.specs.identity import sweep_id
from tests.engine import policies
from tests.engine.conftest import wait_for
from tests.engine.test_policies import curve, shown
from tests.jobs.cluster import Cluster
from tests.jobs.remote import kill_driver

pytestmark = [pytest.mark.ray, pytest.mark.servers, pytest.mark.timeout(600)]


@pytest.mark.slow
def test_the_working_dir_carries_them(
    cluster: Cluster,
    connection: ClusterConnection,
    make_spec: Callable[..., rs.SweepSpec],
    lines: Callable[[], list[list[str]]],
    tmp_path: Path,
) -> None:
    code = tmp_path / "code"
    code.mkdir()
    shutil.copy(policies.__file__, code / "sent_policies.py")
    assert importlib.util.find_spec("sent_policies") is None, "who submits cannot import it"
    fields = {"num_samples": 8, "max_concurrent_trials": 1}
    space = {"pause": 0.05, "steps": 9}
    sent = {"search": "sent_policies:Climber", "scheduler": {"sent_policies:Median": {"max_t": 7}}}
    spec = make_spec("steps", space, **fields, **sent)

    async def run() -> rs.SweepOutcome:
        async with JobsClient(connection) as client:
            options = JobOptions(working_dir=code)
            job = await submit_or_attach(spec, to=client, key="k", options=options)
            outcome = await wait(job, to=client)
            assert isinstance(outcome, rs.SweepOutcome)
            return outcome

    def kill() -> None:
        wait_for(lambda: sum(line[0] == "step" for line in lines()) >= 16)
        kill_driver(sweep_id(spec.name, "k"))

    killing = threading.Thread(target=kill)
    killing.start()
    with pytest.raises(ClusterLostError):
        asyncio.run(run())
    killing.join()
    outcome = asyncio.run(run())
    assert outcome.generation == 2
    assert {"completed", "stopped"} <= set(outcome.counts)
    own = {"search": policies.Climber, "scheduler": {policies.Median: {"max_t": 7}}}
    whole = simulate(make_spec("steps", space, **fields, **own), curve).outcome
    assert shown(outcome) == shown(whole)
    cluster.wait_until_clean()
