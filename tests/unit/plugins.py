"""Policies of the user's own, good and bad ones, for the tests that name them by import path."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from raysweep.schedulers import NOTHING, Decisions, Exploit, Move, Pause, PolicySetup, Scheduler, Stop
from raysweep.schedulers.base import Config
from raysweep.search import Searcher, SearchSetup, TrialEnd
from raysweep.search.base import derived_rng


class Options(BaseModel):
    at: int = Field(default=2, ge=1)
    does: str = ""


class StopsOdd(Scheduler):
    """Stops trials of odd number at a report; `does` one odd thing of its own."""

    Options = Options
    time_attr = "training_iteration"
    max_t: float | None = None
    moves: frozenset[Move] = frozenset({"stop", "exploit"})

    def __init__(self, options: Options, setup: PolicySetup) -> None:
        self.options, self.setup = options, setup
        self.reports = 0
        if options.does == "raises at once":
            raise RuntimeError("no\nluck")

    def add(self, trial: int, config: Config) -> None:
        pass

    def report(self, trial: int, time: float, value: float) -> Decisions:
        self.reports += 1
        odd: Any = {
            "raises": lambda: 1 / 0,
            "nothing": lambda: None,
            "word": lambda: [(trial, "stop")],
            "pair": lambda: [Stop()],
            "pauses": lambda: [(trial, Pause())],
            "sets": lambda: [(trial, Exploit(donor=0, config={"x": {1}}))],  # type: ignore[dict-item]
        }.get(self.options.does)
        if odd is not None:
            found: Decisions = odd()
            return found
        return [(trial, Stop())] if trial % 2 and time >= self.options.at else NOTHING

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        return NOTHING

    def remove(self, trial: int) -> Decisions:
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        reports: Any = {self.reports} if self.options.does == "keeps a set" else self.reports
        return {"reports": reports}

    def from_json(self, state: dict[str, Any]) -> None:
        self.reports = state["reports"]


class Temporary(StopsOdd):
    resumable = False


class Timeless(StopsOdd):
    time_attr = ""


class Mover(StopsOdd):
    moves = frozenset({"jump"})  # type: ignore[arg-type]


class LooksLikeOne:
    def add(self, trial: int, config: Config) -> None: ...


class Silent(Searcher):
    """Suggests nothing."""


class Draws(Searcher):
    """Random configs; `does` one odd thing of its own."""

    Options = Options
    is_adaptive = True
    note: str | None = None

    def __init__(self, options: Options, setup: SearchSetup) -> None:
        self.options, self.setup = options, setup
        self.total: int | None = None if options.does == "no total" else setup.num_samples

    def ask(self, number: int) -> Any:
        if number >= self.setup.num_samples:
            return None
        if self.options.does == "raises" and number >= self.options.at:
            raise RuntimeError("no luck")
        if self.options.does == "raises first":
            raise RuntimeError("no luck")
        config = self.setup.space.sample(derived_rng(self.setup.seed, number))
        return {"set": config | {"x": {1}}, "list": [config]}.get(self.options.does, config)

    def restore(self, number: int, config: dict[str, Any]) -> None:
        pass

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        if self.options.does == "raises when told":
            raise RuntimeError("no luck")

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        pass


class Undecided(Draws):
    is_adaptive = None  # type: ignore[assignment]


not_a_class = 7


def function() -> None: ...
