"""The end of a controller's work: what is waited for before a sweep ends, and why it was left."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raysweep.cluster.control.background import Background
from raysweep.cluster.control.sweep_exit import SweepExit
from raysweep.core.vocabulary import commands as cmd
from raysweep.errors import ClusterLostError, SpecError, StorageUnavailableError, SweepInterrupted


class Rig:
    """Records, in order, what ends a sweep. `due`: whether checkpoints wait to be deleted."""

    def __init__(self, *, due: bool = False, fault: str = "", lost: bool = False) -> None:
        self.steps: list[str] = []
        self.failed: list[BaseException] = []
        self.lost = lost
        why = "no module x"
        self.state = SimpleNamespace(end=SimpleNamespace(fault=fault, fault_field="trainable", why=why))
        self.due = due

    def __bool__(self) -> bool:
        return self.due

    async def reach(self) -> None:
        self.steps.append("durable")
        if self.lost:
            raise StorageUnavailableError("journal", "is away")

    async def _task(self) -> None:
        await asyncio.sleep(0.02)
        self.steps.append("task done")

    def run(self, act: Callable[[SweepExit], None]) -> None:
        async def scenario() -> None:
            done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            def fail(error: BaseException) -> None:
                self.failed.append(error)
                if not done.done():
                    done.set_result(None)

            background = Background(fail)
            leaving = SweepExit(
                cast(Any, self.state),
                background,
                cast(Any, self),
                cast(Any, self),
                sweep_id="s-1",
                address="ray://head",
                now=lambda: 3.0,
                end_workers=lambda: self.steps.append("workers end"),
                delete_discarded=lambda: self.steps.append("delete"),
                emit=lambda event: self.steps.append(type(event).__name__),
                fail=fail,
                done=done,
            )
            background.spawn(self._task())
            act(leaving)
            await asyncio.wait_for(done, 10)

        asyncio.run(scenario())


def test_a_sweep_ends_when_its_background_work_is_done() -> None:
    rig = Rig()
    rig.run(lambda leaving: leaving.end(cmd.EndSweep(status="completed", why="")))
    assert rig.steps == ["workers end", "SweepEnded", "task done"]
    assert rig.failed == []


def test_checkpoints_are_deleted_once_the_end_is_durable() -> None:
    rig = Rig(due=True)
    rig.run(lambda leaving: leaving.end(cmd.EndSweep(status="completed", why="")))
    assert rig.steps == ["workers end", "durable", "SweepEnded", "durable", "delete", "task done"]


def test_a_journal_that_cannot_be_written_fails_the_end() -> None:
    rig = Rig(due=True, lost=True)
    rig.run(lambda leaving: leaving.end(cmd.EndSweep(status="completed", why="")))
    assert rig.steps == ["workers end", "durable"]
    assert isinstance(rig.failed[0], StorageUnavailableError)


@pytest.mark.parametrize(
    ("fault", "kind", "text"),
    [
        ("", SweepInterrupted, "s-1"),
        ("spec", SpecError, "no module x"),
        ("infrastructure", ClusterLostError, "ray://head: no node; run it again with the same key"),
    ],
)
def test_a_sweep_is_left_with_the_reason_and_never_ended(
    fault: str, kind: type[BaseException], text: str
) -> None:
    rig = Rig(fault=fault)
    rig.run(lambda leaving: leaving.leave(cmd.LeaveSweep(why="no node")))
    assert rig.steps == ["task done"]
    assert type(rig.failed[0]).__mro__.index(kind) >= 0
    assert text in str(rig.failed[0])
