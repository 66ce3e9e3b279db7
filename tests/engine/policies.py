"""A scheduler and a searcher of a user's own, in one file; what they decide depends on all results."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import BaseModel, Field

from raysweep.schedulers import NOTHING, Decisions, Move, PolicySetup, Scheduler, Stop
from raysweep.schedulers.base import Config
from raysweep.search import Searcher, SearchSetup, TrialEnd
from raysweep.search.base import derived_rng


class Median(Scheduler):
    """Stops a trial that reports worse than the median of what others reported at the same time."""

    class Options(BaseModel):
        max_t: int = Field(default=9, ge=1)

    time_attr = "step"
    moves: frozenset[Move] = frozenset({"stop"})

    def __init__(self, options: Options, setup: PolicySetup) -> None:
        self.max_t: float | None = options.max_t
        self._sign = 1 if setup.mode == "max" else -1
        self._seen: dict[str, dict[str, float]] = {}

    def add(self, trial: int, config: Config) -> None:
        pass

    def report(self, trial: int, time: float, value: float) -> Decisions:
        seen = self._seen.setdefault(f"{time:g}", {})
        others = sorted(other for number, other in seen.items() if number != str(trial))
        seen[str(trial)] = self._sign * value
        return [(trial, Stop())] if others and self._sign * value < others[len(others) // 2] else NOTHING

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        return NOTHING

    def remove(self, trial: int) -> Decisions:
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        return {"seen": self._seen}

    def from_json(self, state: dict[str, Any]) -> None:
        self._seen = {time: dict(values) for time, values in state["seen"].items()}


class Climber(Searcher):
    """Every second config is near the best so far; the others are random."""

    is_adaptive = True
    note: str | None = None

    def __init__(self, options: BaseModel, setup: SearchSetup) -> None:
        self.total: int | None = setup.num_samples
        self._setup = setup
        self._configs: dict[int, dict[str, Any]] = {}
        self._told: dict[int, float] = {}

    def ask(self, number: int) -> dict[str, Any] | None:
        if number >= self._setup.num_samples:
            return None
        config = self._setup.space.sample(derived_rng(self._setup.seed, number))
        if number % 2 and self._told:
            best = min(self._told, key=lambda trial: (self._told[trial], trial))
            config |= {"x": 0.9 * self._configs[best]["x"] + 0.1 * config["x"]}
        self._configs[number] = config
        return config

    def restore(self, number: int, config: dict[str, Any]) -> None:
        self._configs[number] = config

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        if value is not None:
            self._told[number] = value

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        pass


class Quits(Searcher):
    """Raises SystemExit for trial 2: `at` its ask, or when it is told of its end."""

    class Options(BaseModel):
        at: str = "ask"

    is_adaptive = True
    total: int | None = None
    note: str | None = None

    def __init__(self, options: Options, setup: SearchSetup) -> None:
        self._at = options.at
        self._space = setup.space
        self._seed = setup.seed

    def ask(self, number: int) -> Config | None:
        if (self._at, number) == ("ask", 2):
            raise SystemExit(0)
        return self._space.sample(derived_rng(self._seed, number)) if number < 4 else None

    def restore(self, number: int, config: Config) -> None:
        pass

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        if (self._at, number) == ("tell", 2):
            raise SystemExit(0)

    def tell_earlier(self, config: Config, value: float) -> None:
        pass
