"""The durations of things in a simulation, and the times when they are due."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

from raysweep.simulate.clock import Call, Clock


@dataclass(frozen=True, slots=True, kw_only=True)
class Costs:
    """The durations of things in a simulation, in virtual seconds.

    `jitter` adds up to that part at random; of `hiccups` in all things, up to `hiccup_s` more.
    """

    start_worker_s: float = 1.0
    message_s: float = 0.0005
    save_s: float = 0.02
    load_s: float = 0.0
    place_s: float = 0.0
    notice_death_s: float = 0.2
    put_s: float = 0.005
    commit_interval_s: float = 0.25
    restart_s: float = 5.0
    jitter: float = 0.0
    hiccups: float = 0.0
    hiccup_s: float = 0.0


class Delays:
    """Calls things after as long as they take, drawn by `random`."""

    def __init__(self, costs: Costs, clock: Clock, random: Random) -> None:
        self.costs = costs
        self.clock = clock
        self._random = random

    def after(self, seconds: float, call: Call) -> None:
        """Call `call` after about `seconds`."""
        self.clock.after(self.drawn(seconds), call)

    def drawn(self, seconds: float) -> float:
        """`seconds` with jitter, and now and then with a hiccup."""
        costs, random = self.costs, self._random
        seconds *= 1.0 + costs.jitter * random.random()
        if costs.hiccups and random.random() < costs.hiccups:
            seconds += costs.hiccup_s * random.random()
        return seconds
