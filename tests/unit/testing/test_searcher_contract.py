"""The contract suite of searchers finds each fault that it looks for."""

from __future__ import annotations

import random
from typing import Any

import pytest

from raysweep.search import Searcher
from raysweep.testing.searcher_contract import SearcherContract


class Counting(Searcher):
    """A searcher with one fault at a time."""

    def __init__(self, fault: str) -> None:
        self.fault = fault
        self.is_adaptive = fault == "in order"
        self.total: int | None = 12
        self.note: str | None = None
        self._told = 0
        self._shared = [{"x": number} for number in range(12)]

    def ask(self, number: int) -> dict[str, Any] | None:
        if number >= 12 - (self.fault == "fewer"):
            return None
        if self.fault == "not json":
            return {"x": {number}}
        if self.fault == "chance":
            return {"x": random.random()}
        if self.fault == "shared":
            return self._shared[(number + 1) // 2]
        return {"x": number, "told": self._told if self.fault in ("in order", "adapts") else 0}

    def restore(self, number: int, config: dict[str, Any]) -> None:
        pass

    def tell(self, number: int, value: float | None, state: str) -> None:
        if self.fault == "wants its config" and state == "failed":
            raise KeyError(number)
        if state != "failed" and value is not None:
            self._told = self._told * (2 if self.fault == "in order" else 1) + number

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        pass


@pytest.mark.parametrize(
    ("fault", "test"),
    [
        ("fewer", "test_it_gives_as_many_as_it_says"),
        ("not json", "test_configs_are_plain_json"),
        ("chance", "test_chance_comes_from_the_seed_alone"),
        ("adapts", "test_one_that_does_not_adapt_is_not_moved_by_results"),
        ("shared", "test_who_changes_a_config_changes_no_other"),
        ("wants its config", "test_a_trial_whose_config_could_not_be_made_is_told_as_failed"),
    ],
)
def test_the_suite_notices(fault: str, test: str) -> None:
    """Each of its tests passes a sound searcher, and fails one with the fault that it looks for."""

    class Suite(SearcherContract):
        made = "none"

        def make_searcher(self) -> Searcher:
            return Counting(self.made)

    suite = Suite()
    arguments = [1] if "width" in getattr(suite, test).__code__.co_varnames[:2] else []
    getattr(suite, test)(*arguments)
    suite.made = fault
    with pytest.raises((AssertionError, KeyError, TypeError)):
        getattr(suite, test)(*arguments)


def test_the_suite_notices_results_that_count_by_the_order_in_which_they_came() -> None:
    """A resume tells them by number."""

    class Suite(SearcherContract):
        made = "adapts"

        def make_searcher(self) -> Searcher:
            return Counting(self.made)

    suite = Suite()
    suite.test_rebuilt_it_goes_on_as_the_one_that_was_never_interrupted(3)
    suite.made = "in order"
    suite.test_rebuilt_it_goes_on_as_the_one_that_was_never_interrupted(1)
    with pytest.raises(AssertionError, match="after a resume"):
        suite.test_rebuilt_it_goes_on_as_the_one_that_was_never_interrupted(3)
