"""A driver that is killed (SIGKILL) while its cluster comes up: the next try, or the next run, finds it."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

from raysweep.provision import NightCluster, bring_up
from raysweep.provision.manifest import name_of
from tests.unit.provision.kube import Kube, healthy
from tests.unit.provision.running import RUN

PROGRAM = """
import asyncio, sys
from raysweep.provision import NightCluster, bring_up
night = NightCluster(rayjob=sys.argv[1], kubeconfig=sys.argv[2], reach="service")
asyncio.run(bring_up(night, sys.argv[3]))
"""


@contextmanager
def killed_driver(kube: Kube, night: NightCluster) -> Iterator[None]:
    kube.operator = lambda job: None  # it never comes up
    assert night.kubeconfig is not None
    driver = subprocess.Popen([sys.executable, "-c", PROGRAM, night.manifest, night.kubeconfig, RUN])
    try:
        until = time.monotonic() + 30
        while not kube.alive:
            assert time.monotonic() < until
            time.sleep(0.02)
    finally:
        driver.kill()
        driver.wait()
    kube.operator = healthy(kube)
    yield


def test_the_next_try_adopts_it(kube: Kube, night: NightCluster) -> None:
    with killed_driver(kube, night):
        asyncio.run(bring_up(night, RUN))
    assert (kube._uids, kube.alive) == (1, [name_of(RUN)])


def test_the_next_run_deletes_it_once_its_lease_is_over(kube: Kube, night: NightCluster) -> None:
    with killed_driver(kube, night):
        asyncio.run(bring_up(night, "other-1"))
        assert sorted(kube.alive) == sorted([name_of(RUN), name_of("other-1")])
        kube.ahead_s += night.idle_s + 5
        asyncio.run(bring_up(night, "other-1"))
    assert kube.alive == [name_of("other-1")]
