"""The search of a spec that does not say it: `random` at first, and `auto` from then on.

The first trials of a model are drawn at random anyway. So until then nothing is imported, and a short sweep
has the very configs that `random` gives it.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any, Final

from raysweep.search.auto import AutoOptions
from raysweep.search.base import End, Result, Searcher, SearchSetup, TrialEnd, tell_earlier, tell_end
from raysweep.search.options import SearchOptions
from raysweep.search.variants import RandomOptions

STARTUP: Final = 10
"""The number of trials that each of the models of `auto` draws at random first."""
Told = tuple[Result | None, End]


class OpenRandomOptions(RandomOptions):
    """Those of a spec that does not say how to search, and whose sweep would learn nothing."""

    is_open = True


class OpenAutoOptions(AutoOptions):
    """Those of a spec that does not say how to search, and whose sweep can learn."""

    is_open = True

    def make(self, setup: SearchSetup) -> Searcher:
        """Random configs at first; the libraries of `auto` are imported only then."""
        first = RandomOptions(distinct=True).make(setup)
        return OpenSearcher(first, STARTUP, lambda: AutoOptions.make(self, setup))


LEFT_OPEN: Final[Mapping[str, SearchOptions]] = {"auto": OpenAutoOptions(), "random": OpenRandomOptions()}
"""The options of a search that is left open, by kind. What adapts is for a sweep that can learn."""


class OpenSearcher(Searcher):
    """Asks one searcher for the first configs, and another for all that follow, which learns of these then.

    Args:
        first: who is asked at first; does not adapt.
        after: how many configs that is.
        make: makes the other.
    """

    is_adaptive = True

    def __init__(self, first: Searcher, after: int, make: Callable[[], Searcher]) -> None:
        self._first, self._after, self._make = first, after, make
        self._later: Searcher | None = None
        self._configs: dict[int, dict[str, Any]] = {}
        self._told: dict[int, Told] = {}
        self.total = first.total

    @property
    def note(self) -> str | None:  # type: ignore[override]
        """See `Searcher`."""
        return self._first.note

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`."""
        if self._later is None and number < self._after:
            config = self._first.ask(number)
            if config is not None:
                self._configs[number] = copy.deepcopy(config)
            return config
        return self._learnt().ask(number)

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that an earlier run asked for."""
        if self._later is not None:
            self._later.restore(number, config)
            return
        self._first.restore(number, config)
        self._configs[number] = copy.deepcopy(config)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended."""
        if self._later is not None:
            self._later.tell(number, value, state)
        else:
            self._told[number] = (None if value is None else Result(value)), state

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """The same, with what there is to know of constraints and other metrics."""
        if self._later is not None:
            tell_end(self._later, number, result, state=state)
        else:
            self._told[number] = result, state

    def tell_infeasible(self, number: int) -> None:
        """Report a trial that failed by its config."""
        if self._later is not None:
            tell_end(self._later, number, None, state="infeasible")
        else:
            self._told[number] = None, "infeasible"

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep: there is something to learn from at once."""
        self.tell_earlier_result(config, Result(float(value)))

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """The same, with what there is to know of constraints and other metrics."""
        tell_earlier(self._learnt(), config, result)

    def _learnt(self) -> Searcher:
        if self._later is None:
            self._later = self._make()
            for number, config in self._configs.items():
                self._later.restore(number, config)
                if number in self._told:
                    result, state = self._told[number]
                    tell_end(self._later, number, result, state=state)
        return self._later
