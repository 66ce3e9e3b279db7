"""At the end of a sweep the controller has its keepers finish, and waits for them, but not for ever."""

from __future__ import annotations

import asyncio
import socket

import pytest

from raysweep.cluster import trial_logs as module
from raysweep.cluster.server import LinkServer
from raysweep.cluster.trial_logs import LogKeepers, log_limit
from raysweep.errors import SpecError
from raysweep.messages import Exit, Hello
from raysweep.worker.wire import TO_WORKER, pack, read_frames


class Site:
    """A server of the controller's kind, with its keepers."""

    def __init__(self) -> None:
        self.server = LinkServer(
            lambda worker, messages: None,
            lambda worker: self.keepers.gone(worker),
            lambda worker: self.keepers.connected(worker),
        )
        self.keepers = LogKeepers(self.server)

    def connect(self, name: str) -> socket.socket:
        sock = socket.create_connection((self.server.host, self.server.port), timeout=60)
        sock.sendall(pack([Hello(token=self.server.token, worker=name)]))
        return sock


async def start() -> Site:
    site = Site()
    await site.server.start("127.0.0.1")
    return site


async def connected(site: Site, name: str) -> socket.socket:
    sock = site.connect(name)
    while not site.server.is_connected(name):  # noqa: ASYNC110  a socket's other end knows of no loop
        await asyncio.sleep(0.01)
    return sock


def take_exit(sock: socket.socket) -> None:
    assert next(read_frames(sock, TO_WORKER)) == [Exit()]
    sock.close()


@pytest.mark.timeout(60)
def test_it_ends_when_all_keepers_have_said_that_they_are_done() -> None:
    async def main() -> None:
        site = await start()
        worker = await connected(site, "abc")
        keepers = [await connected(site, f"logs-{number}") for number in range(2)]
        finishing = asyncio.create_task(site.keepers.finish())
        for sock in keepers:
            assert not finishing.done()
            await asyncio.to_thread(take_exit, sock)
        await finishing
        worker.close()
        await site.server.close()

    asyncio.run(main())


@pytest.mark.timeout(60)
def test_it_waits_for_the_first_keeper_which_may_still_be_starting() -> None:
    async def main() -> None:
        site = await start()
        worker = await connected(site, "abc")
        finishing = asyncio.create_task(site.keepers.finish())
        await asyncio.sleep(0)
        sock = await connected(site, "logs-1")
        assert not finishing.done()
        await asyncio.to_thread(take_exit, sock)
        await finishing
        worker.close()
        await site.server.close()

    asyncio.run(main())


@pytest.mark.timeout(60)
def test_one_that_does_not_finish_is_left_and_it_is_said(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(module, "FINISH_S", 0.05)

    async def main() -> None:
        site = await start()
        worker, keeper = await connected(site, "abc"), await connected(site, "logs-1")
        await site.keepers.finish()
        worker.close()
        keeper.close()
        await site.server.close()

    asyncio.run(main())
    assert "the logs of some trials are not stored yet" in caplog.text


@pytest.mark.timeout(60)
@pytest.mark.parametrize("limit", ["", "0"])
def test_nobody_is_waited_for_where_nothing_ran_or_nothing_is_kept(
    limit: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RAYSWEEP_LOG_BYTES", limit)
    monkeypatch.setattr(module, "START_S", 1000.0)

    async def main() -> None:
        site = await start()
        worker = await connected(site, "abc") if limit else None
        await site.keepers.finish()
        if worker is not None:
            worker.close()
        await site.server.close()

    asyncio.run(main())


def test_the_limit_is_a_number_of_bytes(monkeypatch: pytest.MonkeyPatch) -> None:
    assert log_limit() == 2**20
    monkeypatch.setenv("RAYSWEEP_LOG_BYTES", "1234")
    assert log_limit() == 1234
    monkeypatch.setenv("RAYSWEEP_LOG_BYTES", "a lot")
    with pytest.raises(SpecError, match="RAYSWEEP_LOG_BYTES: 'a lot' is not a number of bytes"):
        log_limit()
