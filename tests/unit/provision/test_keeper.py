"""The keeper ends once the cluster is idle, and not before."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

import pytest

from raysweep.errors import ClusterServerError
from raysweep.jobs.wire import JobInfo
from raysweep.provision.keeper import is_busy, keep, main
from tests.unit.jobs.api import Api, serving

OWN = JobInfo(job_id="k", status="RUNNING", entrypoint="python -m raysweep.provision.keeper --idle-s 60")
SWEEP = JobInfo(job_id="s.1", status="RUNNING", entrypoint="python -m raysweep.jobs.driver")
PENDING = JobInfo(job_id="s.1", status="PENDING", entrypoint="python -m raysweep.jobs.driver")
ENDED = JobInfo(job_id="s.1", status="SUCCEEDED", entrypoint="python -m raysweep.jobs.driver")

Look = Iterable[JobInfo] | Exception


def ends_after(looks: list[Look], *, idle_s: float = 60.0, pause_s: float = 10.0) -> float:
    """When it ends, where each look takes `pause_s` and the last one repeats."""
    now = [0.0]
    given = iter(looks)
    last: list[Look] = [[OWN]]

    async def jobs() -> Iterable[JobInfo]:
        last[0] = next(given, last[0])
        if isinstance(last[0], Exception):
            raise last[0]
        return last[0]

    async def sleep(seconds: float) -> None:
        assert seconds == min(10.0, idle_s / 4)
        now[0] += pause_s
        assert now[0] < 10_000

    asyncio.run(keep(jobs, idle_s=idle_s, clock=lambda: now[0], sleep=sleep))
    return now[0]


def test_an_idle_cluster_ends() -> None:
    assert ends_after([[OWN]]) == 60


def test_it_ends_after_the_last_job() -> None:
    assert ends_after([[OWN, SWEEP]] * 5 + [[OWN, ENDED]]) == 40 + 60


def test_a_job_that_waits_for_room_keeps_it() -> None:
    assert ends_after([[OWN, PENDING]] * 20 + [[OWN]]) == 190 + 60


def test_a_head_that_does_not_answer_is_no_idle_time() -> None:
    trouble: list[Look] = [ClusterServerError("http://head", "503")]
    assert ends_after([[OWN]] * 3 + trouble * 10 + [[OWN]]) == 60 + 100


def test_keepers_are_no_work() -> None:
    assert not is_busy([OWN, ENDED])
    assert is_busy([OWN, SWEEP])


def test_the_program_asks_its_head_and_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("raysweep.provision.keeper.PAUSE_S", 0.01)
    with serving(Api()) as head:
        assert main(["--idle-s", "0.05", "--dashboard", head.address]) == 0
        assert head.count("GET", "/api/jobs/") > 1
