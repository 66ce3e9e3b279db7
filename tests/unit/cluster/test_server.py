"""The controller's end of the link takes nothing from its workers while it is held back."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import Callable

from raysweep.cluster.server import LinkServer
from raysweep.messages import Exit, FromWorker, Hello, TrialReported, TrialReturned, TrialStarted
from raysweep.worker.wire import pack


def rows(number: int, text: str) -> TrialReported:
    return TrialReported(trial=0, attempt=1, first=number, keys=("text",), rows=[[text]])


async def _until(check: Callable[[], bool]) -> None:
    while not check():  # noqa: ASYNC110  what is waited for has no event
        await asyncio.sleep(0.01)


def test_what_workers_say_waits_while_it_is_held_back() -> None:
    taken: list[FromWorker] = []

    async def scenario() -> None:
        server = LinkServer(lambda worker, messages: taken.extend(messages), lambda worker: None)
        await server.start("127.0.0.1")
        try:
            _, early = await asyncio.open_connection(server.host, server.port)
            early.write(pack([Hello(token=server.token, worker="early")]))
            await _until(lambda: server.is_connected("early"))
            server.hold_back(True)
            _, late = await asyncio.open_connection(server.host, server.port)
            late.write(pack([Hello(token=server.token, worker="late")]))
            await _until(lambda: server.is_connected("late"))
            for number in range(200):
                early.write(pack([rows(number, "x" * 100_000)]))
            late.write(pack([rows(0, "late")]))
            await asyncio.sleep(0.3)
            # What a socket's buffers hold is all that is under way; the rest stays with the worker.
            assert taken == []
            assert early.transport.get_write_buffer_size() > 0
            server.hold_back(False)
            await _until(lambda: len(taken) == 201)
            early.close()
            late.close()
        finally:
            await server.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    early_rows = [
        message for message in taken if isinstance(message, TrialReported) and message.rows != [["late"]]
    ]
    assert [message.first for message in early_rows] == list(range(200))


def test_who_has_gone_is_told_nothing_and_cannot_be_hung_up_on() -> None:
    """The slots may speak of a worker whose end of the link is not there yet, or not any more."""
    gone: list[str] = []

    async def scenario() -> None:
        server = LinkServer(lambda worker, messages: None, gone.append)
        await server.start("127.0.0.1")
        try:
            answers, there = await asyncio.open_connection(server.host, server.port)
            there.write(pack([Hello(token=server.token, worker="there")]))
            await _until(lambda: server.is_connected("there"))
            for worker in ("nobody", "there", "there"):
                server.hang_up(worker)
                server.send(worker, [Exit()])
                assert not server.is_connected(worker)
            assert await answers.read() == b"", "the worker sees that it was hung up on"
            there.close()
        finally:
            await server.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert gone == []


def test_the_last_words_of_a_worker_are_heard_also_where_it_is_written_to_first() -> None:
    """A worker was killed before it had read all: a write to it fails, with what it had said unread here."""
    taken: list[FromWorker] = []
    gone: list[int] = []

    async def scenario() -> None:
        server = LinkServer(
            lambda worker, messages: taken.extend(messages), lambda worker: gone.append(len(taken))
        )
        await server.start("127.0.0.1")
        try:
            with socket.create_connection((server.host, server.port)) as worker:
                worker.sendall(pack([Hello(token=server.token, worker="w")]))
                await _until(lambda: server.is_connected("w"))
                server.send("w", [Exit()])
                await asyncio.sleep(0.05)
                # From here on the loop gets no turn: all is there before it looks.
                worker.sendall(
                    pack([TrialStarted(trial=3, attempt=1)]) + pack([TrialReturned(trial=3, attempt=1)])
                )
            server.send("w", [Exit()])
            assert taken == []
            await _until(lambda: gone != [])
        finally:
            await server.close()

    asyncio.run(asyncio.wait_for(scenario(), 30))
    assert taken == [TrialStarted(trial=3, attempt=1), TrialReturned(trial=3, attempt=1)]
    assert gone == [2], "before it is said to be gone"
