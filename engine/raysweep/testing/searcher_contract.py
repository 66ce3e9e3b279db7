"""The suite that every searcher must pass.

    class TestMine(SearcherContract):
        def make_searcher(self) -> Searcher: ...

It plays sweeps of several trials at once, some of which fail or never report, and rebuilds the searcher in
the middle of them, as a resume does.
"""

from __future__ import annotations

import copy
import random
from typing import Any, ClassVar

import orjson
import pytest

from raysweep.documents.json_values import plain
from raysweep.search.base import End, Result, Searcher, tell_earlier, tell_end

Told = tuple[int, Result | None, End]


class SearcherContract:
    """Inherit it, name the class `Test...`, and fill in `make_searcher`."""

    trials: ClassVar[int] = 24
    """The number of configs that are asked for, if the searcher has that many."""

    def make_searcher(self) -> Searcher:
        """A searcher before its first ask, made from the same options, setup and seed each time."""
        raise NotImplementedError

    def score(self, config: dict[str, Any]) -> float:
        """The result of a trial with this config; override it where the searcher wants a certain kind."""
        return sum(orjson.dumps(config, option=orjson.OPT_SORT_KEYS)) % 997 / 997

    def violations(self, config: dict[str, Any]) -> tuple[float, ...]:
        """A trial's distance from satisfying each constraint; override it to have some."""
        return ()

    def others(self, config: dict[str, Any]) -> tuple[float, ...]:
        """The values of the metrics after the first; override it to have several."""
        return ()

    def cost(self, config: dict[str, Any]) -> float | None:
        """The cost of a trial with this config; override it where the searcher goes by that."""
        return None

    def spread(self, config: dict[str, Any]) -> float | None:
        """The spread of this config's repeats; override it to play a sweep with `repeat`."""
        return None

    def test_it_says_what_the_engine_wants_to_know(self) -> None:
        searcher = self.make_searcher()
        assert isinstance(searcher.is_adaptive, bool)
        assert searcher.total is None or (type(searcher.total) is int and searcher.total >= 0)
        assert searcher.note is None or isinstance(searcher.note, str)

    def test_configs_are_plain_json(self) -> None:
        for config, _ in self._play(1):
            assert plain(config) == config
            assert orjson.loads(orjson.dumps(config)) == config

    def test_it_gives_as_many_as_it_says(self) -> None:
        searcher, given = self.make_searcher(), 0
        while given < self.trials and searcher.ask(given) is not None:
            given += 1
        assert given > 0
        if searcher.total is not None:
            assert given == min(searcher.total, self.trials)
        if given < self.trials:
            assert searcher.ask(given) is None, "after the last one there are no more"

    @pytest.mark.parametrize("width", [1, 3])
    def test_chance_comes_from_the_seed_alone(self, width: int) -> None:
        state = random.getstate()
        try:
            random.seed(1)
            first = self._play(width)
            random.seed(2)
            assert self._play(width) == first
        finally:
            random.setstate(state)

    @pytest.mark.parametrize("width", [1, 3])
    def test_rebuilt_it_goes_on_as_the_one_that_was_never_interrupted(self, width: int) -> None:
        played = self._play(width)
        for at in range(0, len(played), 3):
            rebuilt = self.make_searcher()
            told = {each[0]: each for _, before in played[:at] for each in before}
            # As a resume does: by number, whatever the order in which the trials ended.
            for number in range(at):
                rebuilt.restore(number, orjson.loads(orjson.dumps(played[number][0])))
                if number in told:
                    _tell(rebuilt, told[number])
            for each in played[at][1]:
                _tell(rebuilt, each)
            assert rebuilt.ask(at) == played[at][0], f"asked for config {at} after a resume there"

    def test_who_changes_a_config_changes_no_other(self) -> None:
        first = self._play(1)
        searcher = self.make_searcher()
        for number, (config, told) in enumerate(first):
            for each in told:
                _tell(searcher, each)
            given = searcher.ask(number)
            assert given == config
            for value in given.values():
                if isinstance(value, dict | list):
                    value.clear()
            given.clear()

    def test_one_that_does_not_adapt_is_not_moved_by_results(self) -> None:
        searcher = self.make_searcher()
        if searcher.is_adaptive:
            pytest.skip("it adapts")
        for number, (config, _) in enumerate(self._play(1)):
            assert searcher.ask(number) == config

    def test_a_trial_whose_config_could_not_be_made_is_told_as_failed(self) -> None:
        searcher = self.make_searcher()
        searcher.tell(0, None, "failed")
        assert searcher.total == 1 or searcher.ask(1) is not None

    def test_results_of_earlier_sweeps_come_before_the_first_ask(self) -> None:
        searcher = self.make_searcher()
        for config, _ in self._play(1)[:3]:
            tell_earlier(searcher, copy.deepcopy(config), self._result(config))
        assert searcher.ask(0) is not None

    def _play(self, width: int) -> list[tuple[dict[str, Any], list[Told]]]:
        """Each config that is asked for, and what is told right before that ask, `width` trials at a time."""
        searcher, chance = self.make_searcher(), random.Random(width)
        played: list[tuple[dict[str, Any], list[Told]]] = []
        running: list[Told] = []
        for number in range(self.trials):
            told = [running.pop(chance.randrange(len(running)))] if len(running) >= width else []
            for each in told:
                _tell(searcher, each)
            config = searcher.ask(number)
            if config is None:
                break
            played.append((copy.deepcopy(config), told))
            running.append(_end(number, self._result(config)))
        return played

    def _result(self, config: dict[str, Any]) -> Result:
        return Result(
            self.score(config),
            self.violations(config),
            self.others(config),
            self.cost(config),
            self.spread(config),
        )


def _end(number: int, result: Result) -> Told:
    """The end of trial `number`: every seventh fails, of these every second by its config; every fifth is
    stopped, the ninth before any report.
    """
    if number % 7 == 6:
        return number, None, "infeasible" if number % 14 == 6 else "failed"
    if number % 5 == 4:
        return number, None if number == 9 else result, "stopped"
    return number, result, "completed"


def _tell(searcher: Searcher, told: Told) -> None:
    number, result, end = told
    tell_end(searcher, number, result, state=end)
