"""Short trials that fail and are retried at once, in many orders: the world finds what goes in circles."""

from __future__ import annotations

from random import Random

import pytest

from tests.unit.core.toys import make_spec
from tests.unit.core.world import World

AT_ONCE = {"max_failures": 2, "backoff_initial_s": 0.0, "backoff_max_s": 0.0}


@pytest.mark.parametrize("seed", range(60))
def test_retries_of_short_trials(seed: int) -> None:
    random = Random(seed)
    world = World(
        make_spec(
            num_samples=random.randint(3, 12),
            max_concurrent_trials=random.randint(2, 3),
            failure=AT_ONCE | {"bad_node_failures": 0, "breaker_trials": 0},
        ),
        length=random.randint(1, 3),
        tick_s=0.001,
    )
    world.start(3)
    for _ in range(400):
        running = [worker for worker in world.workers.values() if worker.job is not None]
        if running and random.random() < 0.1:
            world.finish(random.choice(running), "failed")
        else:
            world.move_on()
        if world.state.phase != "running":
            break
    world.drain()
