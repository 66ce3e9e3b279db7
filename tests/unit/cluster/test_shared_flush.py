"""Trials that wait for the journal: each for two puts at most, however many they are."""

from __future__ import annotations

import asyncio
import time

import pytest

from raysweep.cluster.shared_flush import Durability
from raysweep.cluster.threads import Threads
from raysweep.errors import StorageUnavailableError
from raysweep.storage.journal.writer import JournalWriter
from raysweep.testing.memory_backend import MemoryBackend

LATENCY_S = 0.1
TRIALS = 40
ROUNDS = 5


class Slow(MemoryBackend):
    """Each put takes a while."""

    def append(self, number: int, data: bytes) -> None:
        time.sleep(LATENCY_S)
        super().append(number, data)


class Away(MemoryBackend):
    """No put arrives."""

    def append(self, number: int, data: bytes) -> None:
        raise StorageUnavailableError("journal", "is away")


@pytest.fixture
def threads() -> Threads:
    return Threads()


def test_many_that_wait_share_the_puts(threads: Threads) -> None:
    waited: list[float] = []

    async def trial(writer: JournalWriter, durability: Durability) -> None:
        for _ in range(ROUNDS):
            began = time.monotonic()
            writer.write(b"{}")
            mine = writer.written
            await durability.reach()
            assert writer.durable >= mine
            waited.append(time.monotonic() - began)
            await asyncio.sleep(0.01)

    async def run() -> None:
        with JournalWriter(Slow(), 1, 1, lambda error: None) as writer:
            durability = Durability(writer, threads.flushing)
            await asyncio.gather(*(trial(writer, durability) for _ in range(TRIALS)))

    asyncio.run(run())
    threads.shut_down()
    assert len(waited) == TRIALS * ROUNDS
    # Two puts, and what a busy machine adds.
    assert max(waited) < 8 * LATENCY_S


def test_deletions_that_queue_up_delay_nobody(threads: Threads) -> None:
    deleted: list[int] = []

    def delete() -> None:
        time.sleep(LATENCY_S)
        deleted.append(1)

    async def run() -> float:
        for _ in range(50):
            threads.deleting.submit(delete)
        threads.keeping.submit(time.sleep, 10 * LATENCY_S)
        with JournalWriter(Slow(), 1, 1, lambda error: None) as writer:
            began = time.monotonic()
            writer.write(b"{}")
            await Durability(writer, threads.flushing).reach()
            looked = asyncio.get_running_loop().run_in_executor(threads.watching, time.monotonic)
            return max(time.monotonic(), await looked) - began

    took_s = asyncio.run(run())
    assert len(deleted) < 50
    threads.shut_down()
    assert took_s < 8 * LATENCY_S


def test_one_that_no_longer_waits_keeps_nobody_from_waiting(threads: Threads) -> None:
    async def run() -> None:
        with JournalWriter(Slow(), 1, 1, lambda error: None) as writer:
            durability = Durability(writer, threads.flushing)
            writer.write(b"{}")
            first = asyncio.create_task(durability.reach())
            second = asyncio.create_task(durability.reach())
            await asyncio.sleep(LATENCY_S / 4)
            first.cancel()
            await second
            assert first.cancelled()
            assert writer.durable == 1

    asyncio.run(run())
    threads.shut_down()


def test_all_that_wait_hear_what_ended_the_writing(threads: Threads) -> None:
    async def run() -> None:
        writer = JournalWriter(Away(), 1, 1, lambda error: None, give_up_after_s=0.2)
        durability = Durability(writer, threads.flushing)
        writer.write(b"{}")
        errors = await asyncio.gather(durability.reach(), durability.reach(), return_exceptions=True)
        assert [type(error) for error in errors] == [StorageUnavailableError] * 2
        with pytest.raises(StorageUnavailableError):
            writer.close()

    asyncio.run(run())
    threads.shut_down()
