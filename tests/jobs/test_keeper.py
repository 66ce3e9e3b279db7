"""The keeper of a night's cluster as a job of a real head: it stays for other jobs, and ends after them."""

from __future__ import annotations

import time

import pytest
from pydantic import SecretStr

from raysweep.jobs import ClusterConnection, JobsClient, Submission
from raysweep.provision.keeper import MODULE
from tests.jobs.cluster import Cluster

pytestmark = pytest.mark.ray


@pytest.mark.slow
def test_the_keeper_ends_after_the_last_job_of_its_head(cluster: Cluster) -> None:
    entrypoint = f"python -m {MODULE} --idle-s 4 --dashboard {cluster.head.address}"
    sleeping = Submission(job_id="other-job", entrypoint="python -c 'import time; time.sleep(5)'")
    began = time.monotonic()
    cluster.ask(lambda client: client.submit(sleeping))
    cluster.ask(lambda client: client.submit(Submission(job_id="the-keeper", entrypoint=entrypoint)))
    ended = cluster.wait("the-keeper", timeout_s=120)
    assert ended.status == "SUCCEEDED", cluster.logs("the-keeper")
    assert time.monotonic() - began >= 5 + 4
    assert cluster.info("other-job").is_ended
    assert "no job has run for 4 s" in cluster.logs("the-keeper")


@pytest.mark.slow
def test_a_head_takes_its_token_from_the_header_beside_that_of_the_api_server(cluster: Cluster) -> None:
    """As behind the proxy of Kubernetes, which takes the usual header for itself."""
    token = cluster.head.token
    assert token is not None
    plain = token.get_secret_value() if isinstance(token, SecretStr) else str(token)
    through = ClusterConnection(
        address=cluster.head.address,
        token=SecretStr(""),
        headers={"X-Ray-Authorization": SecretStr(f"Bearer {plain}")},
        trust_env=False,
    )

    async def ask() -> None:
        async with JobsClient(through) as client:
            await client.jobs()

    import asyncio

    asyncio.run(ask())
