"""Schedulers as a user might write them, for the tests: they pause, resume and exploit."""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import blake2b
from math import ceil
from typing import Any

from pydantic import BaseModel, ConfigDict

from raysweep.schedulers import (
    NOTHING,
    Decisions,
    Exploit,
    Move,
    Pause,
    Resize,
    Resume,
    Scheduler,
    Stop,
    Verdict,
)
from raysweep.schedulers.base import TRAINING_ITERATION, Config


class _Options(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class _Quiet(Scheduler):
    """What most schedulers of the tests have in common: they decide on reports alone."""

    time_attr = TRAINING_ITERATION
    max_t: float | None = None
    moves: frozenset[Move] = frozenset()

    def __init__(self, options: Any, setup: Any) -> None:
        self.options = options
        self.sign = -1.0 if setup.mode == "max" else 1.0
        self.seed: int = setup.seed
        self.configs: dict[int, dict[str, Any]] = {}

    def add(self, trial: int, config: Config) -> None:
        self.configs.setdefault(trial, dict(config))

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        return self.remove(trial)

    def remove(self, trial: int) -> Decisions:
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        return {"configs": [list(item) for item in self.configs.items()]}

    def from_json(self, state: dict[str, Any]) -> None:
        self.configs = dict(state["configs"])


class Halving(_Quiet):
    """Synchronous successive halving: all are paused at each rung; the better half of those continues.

    `tweak` is added to the `x` of each trial that continues.
    """

    class Options(_Options):
        rungs: tuple[int, ...] = (2, 5)
        tweak: float = 0.0

    moves = frozenset({"stop", "pause"})

    def __init__(self, options: Options, setup: Any) -> None:
        super().__init__(options, setup)
        self.reached: dict[int, list[float]] = {}

    def report(self, trial: int, time: float, value: float) -> Decisions:
        scores, rungs = self.reached.setdefault(trial, []), self.options.rungs
        if len(scores) < len(rungs) and time >= rungs[len(scores)]:
            scores.append(self.sign * value)
            return ((trial, Pause()),)
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        lowest = min(len(self.reached[trial]) for trial in paused)
        rung = sorted((self.reached[n][-1], n) for n in paused if len(self.reached[n]) == lowest)
        going = {number for _, number in rung[: ceil(len(rung) / 2)]}
        return [(number, self._resume(number) if number in going else Stop()) for _, number in rung]

    def _resume(self, trial: int) -> Resume:
        if not self.options.tweak:
            return Resume()
        config = self.configs[trial] = self.configs[trial] | {
            "x": round(self.configs[trial]["x"] + self.options.tweak, 6)
        }
        return Resume(config)

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"reached": [list(item) for item in self.reached.items()]}

    def from_json(self, state: dict[str, Any]) -> None:
        super().from_json(state)
        self.reached = {trial: list(scores) for trial, scores in state["reached"]}


class Copycat(_Quiet):
    """Once, at a time, a trial that is worse than the best of the others continues from that one.

    `of_ended`: only those that have completed are donors.
    """

    class Options(_Options):
        at: int = 3
        of_ended: bool = False

    moves = frozenset({"exploit"})

    def __init__(self, options: Options, setup: Any) -> None:
        super().__init__(options, setup)
        self.donors: dict[int, float] = {}
        self.asked: set[int] = set()

    def report(self, trial: int, time: float, value: float) -> Decisions:
        score = self.sign * value
        if not self.options.of_ended:
            self.donors[trial] = score
        if time < self.options.at or trial in self.asked:
            return NOTHING
        self.asked.add(trial)
        best, donor = min(((s, n) for n, s in self.donors.items() if n != trial), default=(score, trial))
        if best >= score:
            return NOTHING
        half = round((self.configs[trial]["x"] + self.configs[donor]["x"]) / 2, 6)
        self.configs[trial] = self.configs[trial] | {"x": half}
        return ((trial, Exploit(donor, self.configs[trial])),)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        if value is not None:
            self.donors[trial] = self.sign * value
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        donors = [list(item) for item in self.donors.items()]
        return super().to_json() | {"donors": donors, "asked": sorted(self.asked)}

    def from_json(self, state: dict[str, Any]) -> None:
        super().from_json(state)
        self.donors = dict(state["donors"])
        self.asked = set(state["asked"])


class Whim(_Quiet):
    """Decides anything about anybody at any time, `left` times; the same after the same calls."""

    class Options(_Options):
        left: int = 20
        rate: int = 3
        resizes: bool = False

    moves = frozenset({"stop", "pause", "exploit"})

    def __init__(self, options: Options, setup: Any) -> None:
        super().__init__(options, setup)
        self.left = options.left
        self.calls = 0

    def report(self, trial: int, time: float, value: float) -> Decisions:
        return self._decide(trial)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        return self._decide(trial)

    def remove(self, trial: int) -> Decisions:
        return self._decide(trial)

    def idle(self, paused: Sequence[int]) -> Decisions:
        return self._decide(*paused, *paused)

    def _decide(self, *near: int) -> Decisions:
        self.calls += 1
        dice = blake2b(f"{self.seed}:{self.calls}".encode(), digest_size=16).digest()
        if not self.left or dice[0] % self.options.rate:
            return NOTHING
        self.left -= 1
        known = [*near, *self.configs]
        return [
            (known[dice[n] % len(known)], self._verdict(dice[n:], known)) for n in range(1, 2 + dice[1] % 3)
        ]

    def _verdict(self, dice: bytes, known: list[int]) -> Verdict:
        donor = known[dice[3] % len(known)]
        config = self.configs.get(donor, {}) | {"x": round(dice[4] / 256, 3)}
        verdicts = (Stop(), Pause(), Pause(), Resume(), Resume(config), Exploit(donor, config))
        # As a stored journal of it has it, unless it is told to resize.
        verdicts = (*verdicts, Resize(config)) if self.options.resizes else verdicts
        return verdicts[dice[5] % len(verdicts)]

    def to_json(self) -> dict[str, Any]:
        return super().to_json() | {"left": self.left, "calls": self.calls}

    def from_json(self, state: dict[str, Any]) -> None:
        super().from_json(state)
        self.left, self.calls = state["left"], state["calls"]
