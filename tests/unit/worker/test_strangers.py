"""Whoever finds the controller's port and is no worker is told nothing, costs little, and delays no end."""

from __future__ import annotations

import asyncio
import os
import resource
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import pytest

from raysweep.cluster import server as server_room
from raysweep.cluster.server import LinkServer
from raysweep.messages import Exit, FromWorker, Hello, Job, Message, Ready, TrialReported, TrialReturned
from raysweep.worker.wire import HEADER, pack

Streams = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Door:
    """A server, what it took, and the connections made to it."""

    def __init__(self) -> None:
        self.taken: list[FromWorker] = []
        self.gone: list[str] = []
        self.server = LinkServer(lambda worker, messages: self.taken.extend(messages), self.gone.append)
        self._writers: list[asyncio.StreamWriter] = []

    async def knock(self, *frames: list[Message]) -> Streams:
        """Connect and send."""
        reader, writer = await asyncio.open_connection(self.server.host, self.server.port)
        self._writers.append(writer)
        for messages in frames:
            writer.write(pack(messages))
        return reader, writer

    def hello(self, worker: str) -> list[Message]:
        return [Hello(token=self.server.token, worker=worker)]

    def leave(self) -> None:
        for writer in self._writers:
            writer.close()


@asynccontextmanager
async def opened() -> AsyncIterator[Door]:
    door = Door()
    await door.server.start("127.0.0.1")
    try:
        yield door
    finally:
        door.leave()
        await door.server.close()


def meet(scenario: Callable[[Door], Awaitable[None]]) -> None:
    """Run a scenario at a door."""

    async def run() -> None:
        async with opened() as door:
            await scenario(door)

    asyncio.run(asyncio.wait_for(run(), 30))


async def _until(check: Callable[[], bool]) -> None:
    while not check():  # noqa: ASYNC110  what is waited for has no event
        await asyncio.sleep(0.01)


async def is_sent_away(reader: asyncio.StreamReader, within_s: float = 5.0) -> bool:
    """Whether the other end hangs up."""
    try:
        async with asyncio.timeout(within_s):
            return await reader.read() == b""
    except ConnectionResetError:
        return True
    except TimeoutError:
        return False


READY = Ready(node="node", pid=1)
RETURNED = TrialReturned(trial=0, attempt=1)
ROWS = TrialReported(trial=0, attempt=1, first=0, keys=("loss",), rows=[[0.0]])
DEEP = b"[" * 4000
STRANGERS = {
    "another token": pack([Hello(token="0" * 32, worker="w")]),
    "no token": pack([Hello(token="", worker="w")]),
    "a token with odd characters": pack([Hello(token="é", worker="w")]),
    "no hello": pack([READY]),
    "nothing": pack([]),
    "no JSON": HEADER.pack(5) + b"hello",
    "no UTF-8": HEADER.pack(20) + b'[["hello","\xff\xfe","w"]]'[:20],
    "no array": HEADER.pack(2) + b"{}",
    "a hello with a number": HEADER.pack(17) + b'[["hello",1,"w"]]',
    "a hello too short": HEADER.pack(15) + b'[["hello","w"]]',
    "a hello of another shape": HEADER.pack(33) + b'{"type":"hello","token":"","w":1}',
    "deep nesting": HEADER.pack(4000) + DEEP,
    "deep nesting in a report": HEADER.pack(4000) + (b'[["trialreported",0,1,0,["loss"],' + DEEP)[:4000],
}


@pytest.mark.parametrize("frame", STRANGERS.values(), ids=STRANGERS)
def test_who_does_not_know_the_token_may_say_nothing(frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def scenario(door: Door) -> None:
        reader, writer = await door.knock()
        writer.write(frame + pack([ROWS]))
        assert await is_sent_away(reader)
        assert not door.server.is_connected("w")
        assert door.taken == []
        assert door.gone == []

    meet(scenario)
    assert not caplog.records, "a stranger fills no log"


def test_who_knows_the_token_says_hello_first() -> None:
    async def scenario(door: Door) -> None:
        reader, _ = await door.knock([READY], door.hello("w"))
        assert await is_sent_away(reader)
        assert not door.server.is_connected("w")

    meet(scenario)


def test_who_knows_the_token_is_heard() -> None:
    async def scenario(door: Door) -> None:
        await door.knock(door.hello("w"), [READY, ROWS], [RETURNED])
        await _until(lambda: len(door.taken) == 3)
        assert door.server.is_connected("w")
        assert door.taken == [READY, ROWS, RETURNED]

    meet(scenario)


MALFORMED = {
    "an unknown message": (b'[["sung",3]]', "Invalid value 'sung'"),
    "a field that is missing": (b'[["trialreturned",0]]', "at least length 3"),
    "a field of another type": (b'[["trialreturned",0,"1"]]', "Expected `int`, got `str`"),
    "a second hello": (b'[["hello","","w"]]', "Invalid value 'hello'"),
    "an order": (b'[["stop",0,1,"x",false,"nothing"]]', "Invalid value 'stop'"),
    "no JSON": (b"hello", "malformed"),
    "no UTF-8": (b'[["checkpointfailed",0,1,2,"\xff"]]', "invalid start byte"),
    "deep nesting": (b'[["trialreported",0,1,0,["loss"],[[' + b"[" * 100_000, "nested too deeply"),
    "deep nesting that ends": (
        b'[["trialreported",0,1,0,["loss"],[[' + b"[" * 100_000 + b"]" * 100_000 + b"]],false]]",
        "nested too deeply",
    ),
}


@pytest.mark.parametrize(("body", "problem"), MALFORMED.values(), ids=MALFORMED)
def test_a_worker_that_cannot_be_understood_is_hung_up_on_and_that_is_said(
    body: bytes, problem: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What it said before counts; the others are not disturbed."""

    async def scenario(door: Door) -> None:
        reader, writer = await door.knock(door.hello("w"), [READY])
        await door.knock(door.hello("other"))
        await _until(lambda: door.server.is_connected("other"))
        writer.write(pack([ROWS]) + HEADER.pack(len(body)) + body + pack([RETURNED]))
        assert await is_sent_away(reader)
        await _until(lambda: not door.server.is_connected("w"))
        assert door.taken == [READY, ROWS]
        assert door.gone == ["w"]
        assert door.server.is_connected("other")

    meet(scenario)
    (record,) = caplog.records
    assert record.getMessage().startswith("closed the link of worker w: ")
    assert problem in record.getMessage()


def test_the_token_cannot_be_guessed_twice_on_a_connection() -> None:
    async def scenario(door: Door) -> None:
        reader, _ = await door.knock([Hello(token="0" * 32, worker="w")], door.hello("w"), [READY])
        assert await is_sent_away(reader)
        assert not door.server.is_connected("w")
        assert door.taken == []

    meet(scenario)


def test_a_stranger_that_says_nothing_is_sent_away(monkeypatch: pytest.MonkeyPatch) -> None:
    # Ten seconds in earnest.
    monkeypatch.setattr(server_room, "HELLO_TIMEOUT_S", 0.2)

    async def scenario(door: Door) -> None:
        silent, _ = await door.knock()
        half, writer = await door.knock()
        writer.write(HEADER.pack(50) + b'[["hello"')
        await door.knock(door.hello("w"))
        assert await is_sent_away(silent)
        assert await is_sent_away(half)
        assert door.server.is_connected("w")
        assert door.gone == []

    meet(scenario)


def test_a_stranger_may_send_little() -> None:
    async def scenario(door: Door) -> None:
        reader, writer = await door.knock()
        writer.write(HEADER.pack(100_000) + b"[")
        assert await is_sent_away(reader)
        large = TrialReported(trial=0, attempt=1, first=0, keys=("loss",), rows=[["x" * 100_000]])
        await door.knock(door.hello("w"), [large])
        await _until(lambda: len(door.taken) == 1)

    meet(scenario)


def test_of_too_many_strangers_the_oldest_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_room, "MAX_STRANGERS", 5)

    async def scenario(door: Door) -> None:
        await door.knock(door.hello("early"))
        await _until(lambda: door.server.is_connected("early"))
        strangers = [await door.knock() for _ in range(8)]
        await door.knock(door.hello("late"))
        await _until(lambda: door.server.is_connected("late"))
        gone = [await is_sent_away(reader, 0.3) for reader, _ in strangers]
        # The one that turned out to be a worker was a stranger for a moment.
        assert gone == [True] * 4 + [False] * 4
        assert door.server.is_connected("early")

    meet(scenario)


@pytest.fixture
def few_files() -> Iterator[None]:
    """This process may open 360 more files, as a controller on a plain machine may have 1,024."""
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (len(os.listdir("/proc/self/fd")) + 360, limits[1]))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, limits)


@pytest.mark.usefixtures("few_files")
def test_strangers_leave_the_controller_files_to_open(caplog: pytest.LogCaptureFixture) -> None:
    """A sweep whose journal cannot be opened any more would be ended by whoever finds its port."""

    async def scenario(door: Door) -> None:
        await door.knock(door.hello("early"))
        for _ in range(220):
            await door.knock()
        await door.knock(door.hello("late"))
        await _until(lambda: door.server.is_connected("late"))
        assert door.server.is_connected("early")
        os.close(os.open(os.devnull, os.O_RDONLY))

    meet(scenario)
    assert not caplog.records


def test_the_end_waits_for_nobody() -> None:
    """Python 3.12 and later: a server that is closed waits for every connection, however it came."""

    async def scenario() -> float:
        async with opened() as door:
            stranger, _ = await door.knock()
            worker, _ = await door.knock(door.hello("w"))
            stuck, _ = await door.knock(door.hello("stuck"))
            await _until(lambda: door.server.is_connected("stuck") and door.server.is_connected("w"))
            # More than the buffers of a connection hold, for one that does not read: its node may be gone.
            door.server.send("stuck", [Job(trial=0, attempt=1, config={"x": "x" * 40_000_000}, seed=1)])
            door.server.send("w", [Exit()])
            began = time.monotonic()
            async with asyncio.timeout(10):
                await door.server.close()
            took_s = time.monotonic() - began
            assert await is_sent_away(stranger)
            assert await worker.read() == pack([Exit()])
            assert stuck is not None
            return took_s

    assert asyncio.run(asyncio.wait_for(scenario(), 30)) < 3
