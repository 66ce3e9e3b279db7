"""Sequential sweeps repeat exactly: crashed anywhere and resumed, they end as an undisturbed run does."""

from __future__ import annotations

from typing import Any

import pytest

from raysweep.core.vocabulary import events as ev
from tests.sampling import sampled
from tests.unit.core.toys import make_spec
from tests.unit.core.world import World

ASHA = {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3}}
BRACKETS = {"asha": {"max_t": 9, "grace_period": 1, "reduction_factor": 3, "brackets": 2}}


def make_world(scheduler: Any, search: str, save_every: int) -> World:
    spec = make_spec(scheduler=scheduler, search=search, num_samples=6, max_concurrent_trials=1)
    world = World(spec, length=10, save_every=save_every, tick_s=0.02)
    world.start()
    return world


@pytest.mark.parametrize("save_every", sampled([0, 1, 4], lambda every: every != 1))
@pytest.mark.parametrize("search", ["random", "tpe"])
@pytest.mark.parametrize(
    "scheduler",
    ["fifo", ASHA, pytest.param(BRACKETS, marks=pytest.mark.slow)],
    ids=["fifo", "asha", "brackets"],
)
def test_a_crash_at_any_event_changes_no_result(scheduler: Any, search: str, save_every: int) -> None:
    """The journal is cut after every single event; the next controller continues from there."""
    undisturbed = make_world(scheduler, search, save_every)
    undisturbed.drain()
    expected, events = undisturbed.results(), len(undisturbed.journal)
    assert expected["status"] == "completed"
    if scheduler != "fifo":
        assert {state for state, *_ in expected["trials"].values()} == {"completed", "stopped"}
    for cut_at in range(2, events):
        world = make_world(scheduler, search, save_every)
        world.journal, world.ever_stored = undisturbed.journal[:cut_at], dict(undisturbed.ever_stored)
        world.stored, world.made_by = set(world.ever_stored), dict(undisturbed.made_by)
        world.crash()
        world.drain()
        assert world.results() == expected, f"cut after event {cut_at}: {undisturbed.journal[cut_at - 1]!r}"


@pytest.mark.parametrize("scheduler", ["fifo", ASHA], ids=["fifo", "asha"])
def test_an_interrupt_at_any_event_changes_no_result(scheduler: Any) -> None:
    """A trial that is interrupted reports and saves on until it stops; none of that may be missing later."""
    undisturbed = make_world(scheduler, "random", 4)
    undisturbed.drain()
    expected, events = undisturbed.results(), len(undisturbed.journal)
    for index in range(2, events):
        world = make_world(scheduler, "random", 4)
        while len(world.journal) < index:
            world.move_on()
        world.send(ev.InterruptRequested(at=world.now))
        for worker in world.workers.values():
            # A report and a checkpoint cross the interrupt on the wire.
            job = worker.job
            if job is not None and job.iteration < world.length:
                world.report(worker, [world.value(job.start.trial, job.iteration + 1)])
                world.save(worker)
        while world.move_on():
            pass
        assert world.has_left or world.state.phase == "ended"
        world.drain()
        assert world.results() == expected, f"interrupted after event {index}"


def test_two_crashes_in_a_row_change_no_result() -> None:
    """The second controller dies before it has done anything."""
    undisturbed = make_world(ASHA, "tpe", 1)
    undisturbed.drain()
    for cut_at in range(2, len(undisturbed.journal), 3):
        world = make_world(ASHA, "tpe", 1)
        while len(world.journal) < cut_at:
            world.move_on()
        world.crash(cut_at)
        world.crash(len(world.journal) - 1)
        world.crash()
        world.drain()
        assert world.results() == undisturbed.results()
        assert world.state.controller.generation >= 4
