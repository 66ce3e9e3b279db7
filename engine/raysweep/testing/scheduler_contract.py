"""The suite that every scheduler must pass.

    class TestMine(SchedulerContract):
        def make_scheduler(self) -> Scheduler: ...

It plays sweeps as the engine does, carries the verdicts out, and compares what a scheduler that was written
down and read back decides in the middle of them.
"""

from __future__ import annotations

import copy
import json
import random
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, ClassVar

import pytest

from raysweep.documents.json_values import plain
from raysweep.schedulers.base import Decisions, Exploit, Pause, Resize, Resume, Scheduler, Stop

Call = tuple[str, tuple[Any, ...]]
MOVES = {Stop: "stop", Pause: "pause", Resume: "pause", Exploit: "exploit", Resize: "exploit"}


class SchedulerContract:
    """Inherit it, name the class `Test...`, and fill in `make_scheduler`."""

    trials: ClassVar[int] = 16
    slots: ClassVar[int] = 4
    reports: ClassVar[int] = 12
    """The number of reports of a trial that nothing ends earlier."""
    resumes_every: ClassVar[int] = 5
    """After how many calls its state is read back and the rest decided again, all that follow each time."""

    def make_scheduler(self) -> Scheduler:
        """A scheduler without trials, made from the same options, setup and seed each time."""
        raise NotImplementedError

    def config(self, trial: int) -> dict[str, Any]:
        """The config of a trial; override it where the scheduler looks at configs."""
        return {"lr": 0.1 * (trial + 1)}

    def value(self, chance: random.Random, trial: int, time: int) -> float:
        """The report of a trial; some trials are better than others, and all get better."""
        return (trial * 7 % self.trials + chance.random()) / time

    def test_it_says_what_the_engine_wants_to_know(self) -> None:
        scheduler = self.make_scheduler()
        assert isinstance(scheduler.time_attr, str)
        assert scheduler.time_attr
        assert scheduler.max_t is None or scheduler.max_t > 0
        assert set(scheduler.moves) <= {"stop", "pause", "exploit"}

    @pytest.mark.parametrize("seed", [1, 2])
    def test_it_decides_what_it_said_it_would(self, seed: int) -> None:
        moves = self.make_scheduler().moves
        for _, decisions, _ in self._play(seed):
            for trial, verdict in decisions:
                assert type(trial) is int
                assert 0 <= trial < self.trials
                assert MOVES[type(verdict)] in moves, f"{verdict} is none of its moves"
                if isinstance(verdict, Exploit):
                    assert 0 <= verdict.donor < self.trials
                if isinstance(verdict, Exploit | Resume | Resize) and verdict.config is not None:
                    assert plain(verdict.config) == verdict.config

    @pytest.mark.parametrize("seed", [1, 2])
    def test_the_same_reports_give_the_same_verdicts(self, seed: int) -> None:
        state = random.getstate()
        try:
            random.seed(1)
            first = [(call, tuple(decisions)) for call, decisions, _ in self._play(seed)]
            random.seed(2)
            assert [(call, tuple(decisions)) for call, decisions, _ in self._play(seed)] == first
        finally:
            random.setstate(state)

    @pytest.mark.parametrize("seed", [1, 2])
    def test_written_down_and_read_back_it_decides_as_before(self, seed: int) -> None:
        played = list(self._play(seed))
        for at in range(0, len(played), self.resumes_every):
            restored = self.make_scheduler()
            restored.from_json(json.loads(json.dumps(played[at][2], allow_nan=False)))
            for (method, arguments), decisions, _ in played[at + 1 :]:
                found = getattr(restored, method)(*copy.deepcopy(arguments))
                assert tuple(found or ()) == tuple(decisions), f"{method}{arguments} after a resume"

    def test_its_state_is_json_and_shares_nothing(self) -> None:
        for _, _, state in self._play(1):
            text = json.dumps(state, allow_nan=False)
            assert json.loads(text) == state, "keys are strings, and tuples are lists"
            restored = self.make_scheduler()
            restored.from_json(json.loads(text))
            assert json.dumps(restored.to_json(), allow_nan=False) == text
            restored.to_json().clear()
            assert json.dumps(restored.to_json(), allow_nan=False) == text

    def test_a_trial_that_comes_back_reports_again(self) -> None:
        scheduler = self.make_scheduler()
        scheduler.add(0, self.config(0))
        scheduler.report(0, 3, 0.5)
        scheduler.report(0, 1, 0.5)
        scheduler.remove(0)
        scheduler.add(0, self.config(0))
        scheduler.add(0, self.config(0))
        scheduler.report(0, 2, 0.5)
        scheduler.end(0, 3, 0.5)

    def test_a_trial_may_end_before_its_first_report(self) -> None:
        scheduler = self.make_scheduler()
        for trial in range(2):
            scheduler.add(trial, self.config(trial))
        scheduler.end(0, None, None)
        scheduler.remove(1)

    def test_extreme_values_are_taken(self) -> None:
        """NaN and infinity are none of them: the engine takes no report of these to a scheduler."""
        scheduler = self.make_scheduler()
        for trial, value in enumerate([1e308, -1e308, -0.0, 5e-324]):
            scheduler.add(trial, self.config(trial))
            scheduler.report(trial, 1, value)
            json.dumps(scheduler.to_json(), allow_nan=False)

    def _play(self, seed: int) -> Iterator[tuple[Call, Decisions, dict[str, Any]]]:
        """Each call of a sweep, what was decided, and the scheduler's state then."""
        scheduler, sweep = self.make_scheduler(), _Sweep(suite=self, chance=random.Random(seed))
        while (call := sweep.next_call(scheduler.max_t)) is not None:
            method, arguments = call
            decisions = getattr(scheduler, method)(*copy.deepcopy(arguments)) or ()
            sweep.carry_out(decisions)
            yield call, decisions, copy.deepcopy(scheduler.to_json())


@dataclass(kw_only=True)
class _Sweep:
    """The engine's part in a scheduler's verdicts, in a few lines."""

    suite: SchedulerContract
    chance: random.Random
    times: dict[int, int] = field(default_factory=dict)
    last: dict[int, float] = field(default_factory=dict)
    waiting: list[int] = field(default_factory=list)
    running: list[int] = field(default_factory=list)
    paused: list[int] = field(default_factory=list)
    calls: list[Call] = field(default_factory=list)
    has_asked: bool = False

    def next_call(self, max_t: float | None) -> Call | None:
        """The engine's next call of the scheduler; None: the sweep is over."""
        if self.calls:
            return self.calls.pop(0)
        if len(self.times) < self.suite.trials:
            trial = len(self.times)
            self.times[trial] = 0
            self.waiting.append(trial)
            return "add", (trial, self.suite.config(trial))
        while self.waiting and len(self.running) < self.suite.slots:
            self.running.append(self.waiting.pop(0))
        if self.running:
            self.has_asked = False
            return self._report(max_t)
        if self.paused and not self.has_asked:
            self.has_asked = True
            return "idle", (list(self.paused),)
        if self.paused:
            return "remove", (self.paused.pop(),)
        return None

    def _report(self, max_t: float | None) -> Call:
        trial = self.chance.choice(self.running)
        self.times[trial] += 1
        time = self.times[trial]
        self.last[trial] = self.suite.value(self.chance, trial, time)
        if self.chance.random() < 0.02:  # it failed, and continues from an earlier checkpoint
            self.times[trial] = max(0, time - 2)
        elif time >= min(max_t or self.suite.reports, self.suite.reports):
            self._end(trial, ("end", (trial, time, self.last[trial])))
        return "report", (trial, time, self.last[trial])

    def _end(self, trial: int, call: Call) -> None:
        for line in (self.waiting, self.running, self.paused):
            if trial in line:
                line.remove(trial)
                self.calls.append(call)

    def carry_out(self, decisions: Decisions) -> None:
        """Do with the trials what was decided; those that have ended are passed over."""
        for trial, verdict in decisions:
            if isinstance(verdict, Stop):
                self._end(trial, ("remove", (trial,)))
            elif isinstance(verdict, Pause) and trial in self.running:
                self.running.remove(trial)
                self.paused.append(trial)
            elif isinstance(verdict, Resume) and trial in self.paused:
                self.paused.remove(trial)
                self.waiting.append(trial)
            elif isinstance(verdict, Exploit) and trial in self.running:
                self.times[trial] = self.times.get(verdict.donor, 0)
