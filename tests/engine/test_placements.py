"""The contract of a placement, kept by Ray and by this machine: places, starts, kills and ends of workers."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import raysweep as rs
from raysweep.cluster.here.placement import here
from raysweep.cluster.placement import Placement, Pool
from raysweep.cluster.preparation import make_setup
from raysweep.cluster.server import LinkServer
from raysweep.errors import InfeasibleResourcesError
from raysweep.fleet import CreateGroup, RemoveGroup, StartWorker
from raysweep.messages import FromWorker, Ready
from raysweep.runs.folder import SweepFolder
from raysweep.space.amounts import USUAL
from raysweep.storage.objects.opening import open_store
from tests.engine.conftest import HERE

CPUS = 2
LIMIT_S = 60.0


@pytest.fixture(params=["here", "ray"])
def placement(request: pytest.FixtureRequest) -> Iterator[Placement]:
    """This machine, or the shared Ray, with two CPUs."""
    if request.param == "here":
        with here(CPUS) as found:
            yield found
        return
    from raysweep.cluster.ray.placement import RayPlacement

    yield RayPlacement(request.getfixturevalue("ray_cluster"))


class Shell:
    """A pool with a link server, and what both say."""

    def __init__(self, placement: Placement, folder: Path, **fields: Any) -> None:
        plain = {"name": "contract", "num_samples": 1, "metric": "loss", "param_space": {"log": "/dev/null"}}
        self.spec = rs.SweepSpec(
            trainable=f"{HERE}:noop", storage_path=str(folder), mode="min", **plain | fields
        )
        self._placement, self._folder = placement, folder
        self.ready: dict[str, Ready] = {}
        self.ended: list[tuple[int, BaseException | None]] = []
        self.pool: Pool

    async def __aenter__(self) -> Shell:
        self._server = LinkServer(self._take, lambda name: None)
        await self._server.start(self._placement.host)
        setup = make_setup(self.spec, SweepFolder(open_store(str(self._folder)), "contract-1"), self._server)
        self.pool = self._placement.make_pool(
            self.spec, setup, lambda worker, error: self.ended.append((worker, error)), lambda worker: None
        )
        return self

    async def __aexit__(self, *error: object) -> None:
        for worker in list(self.pool._alive):
            self.pool.kill(worker)
        for group in list(self.pool._shapes):
            self.pool.remove_group(RemoveGroup(group=group))
        await self.pool.leave()
        await self._server.close()

    def _take(self, name: str, messages: list[FromWorker]) -> None:
        for message in messages:
            if isinstance(message, Ready):
                self.ready[name] = message

    def begin(self, number: int) -> None:
        """A group with a worker in it, both of this number."""
        self.pool.create_group(CreateGroup(group=number, needs=USUAL, excluded=()))
        self.pool.start(StartWorker(worker=number, group=number, is_spare=False))

    def ready_of(self, worker: int) -> Ready | None:
        """The worker's message when it was ready; None: it is not."""
        return self.ready.get(self.pool.name_of(worker))

    def is_ready(self, worker: int) -> Callable[[], bool]:
        return lambda: self.ready_of(worker) is not None


async def until(check: Callable[[], bool]) -> None:
    async with asyncio.timeout(LIMIT_S):
        while not check():  # noqa: ASYNC110  what it looks at knows no events
            await asyncio.sleep(0.02)


def run(shell: Shell, play: Callable[[Shell], Awaitable[None]]) -> None:
    async def session() -> None:
        async with shell:
            await play(shell)

    asyncio.run(session())


def test_a_worker_is_started_in_its_group_and_knows_its_name(placement: Placement, tmp_path: Path) -> None:
    async def play(shell: Shell) -> None:
        shell.begin(1)
        await until(shell.is_ready(1))
        ready = shell.ready_of(1)
        assert ready is not None
        assert shell.pool.number_of(shell.pool.name_of(1)) == 1
        assert ready.node
        assert shell.pool.bundles_of(1) == ({"CPU": 1.0},)
        os.kill(ready.pid, 0)

    run(Shell(placement, tmp_path), play)


def test_a_group_waits_until_another_gives_its_place_back(placement: Placement, tmp_path: Path) -> None:
    async def play(shell: Shell) -> None:
        for number in (1, 2, 3):
            shell.begin(number)
        await until(lambda: len(shell.ready) == 2)
        await asyncio.sleep(0.3)
        assert not shell.is_ready(3)(), "there are two CPUs"
        shell.pool.kill(1)
        shell.pool.remove_group(RemoveGroup(group=1))
        await until(shell.is_ready(3))
        assert shell.ended == [], "what is killed does not end by itself"

    run(Shell(placement, tmp_path), play)


def test_a_group_that_waits_can_be_given_up(placement: Placement, tmp_path: Path) -> None:
    async def play(shell: Shell) -> None:
        for number in (1, 2, 3):
            shell.begin(number)
        await until(lambda: len(shell.ready) == 2)
        shell.pool.kill(3)
        shell.pool.remove_group(RemoveGroup(group=3))
        shell.begin(4)
        shell.pool.kill(2)
        shell.pool.remove_group(RemoveGroup(group=2))
        await until(shell.is_ready(4))
        assert len(shell.ready) == 3

    run(Shell(placement, tmp_path), play)


def test_a_killed_worker_is_gone_and_its_group_takes_another(placement: Placement, tmp_path: Path) -> None:
    async def play(shell: Shell) -> None:
        shell.begin(1)
        await until(shell.is_ready(1))
        first = shell.ready_of(1)
        assert first is not None
        shell.pool.kill(1)
        assert shell.pool.name_of(1) == ""
        await until(lambda: not is_alive(first.pid))
        shell.pool.start(StartWorker(worker=2, group=1, is_spare=False))
        await until(shell.is_ready(2))
        assert shell.ended == []

    run(Shell(placement, tmp_path), play)


def test_a_worker_that_dies_is_told_once_with_its_cause(placement: Placement, tmp_path: Path) -> None:
    async def play(shell: Shell) -> None:
        shell.begin(1)
        await until(shell.is_ready(1))
        ready = shell.ready_of(1)
        assert ready is not None
        os.kill(ready.pid, signal.SIGKILL)
        await until(lambda: bool(shell.ended))
        ((worker, error),) = shell.ended
        failure = shell.pool.explain_end(error, ready.node)
        assert (worker, failure.origin, failure.type) == (1, "process", "WorkerDied")
        assert failure.node_state == "alive"

    run(Shell(placement, tmp_path), play)


def test_a_spare_shares_the_resources_of_its_group(placement: Placement, tmp_path: Path) -> None:
    async def play(shell: Shell) -> None:
        for number in (1, 2):
            shell.begin(number)
        shell.pool.start(StartWorker(worker=3, group=1, is_spare=True))
        await until(lambda: len(shell.ready) == 3)

    run(Shell(placement, tmp_path), play)


def test_the_room_is_counted_and_what_can_never_fit_is_refused(placement: Placement, tmp_path: Path) -> None:
    assert placement.find_room(Shell(placement, tmp_path).spec).slots == CPUS
    assert placement.find_room(Shell(placement, tmp_path, max_concurrent_trials=1).spec).slots == 1
    with pytest.raises(InfeasibleResourcesError, match="asks for 64 CPU"):
        placement.find_room(Shell(placement, tmp_path, resources={"cpu": 64}).spec)
    with pytest.raises(InfeasibleResourcesError, match="no node offers 'licence'"):
        placement.find_room(Shell(placement, tmp_path, resources={"custom": {"licence": 1}}).spec)


def is_alive(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
