"""Each config several times in a row, and its searcher told the mean of the results and their spread."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from math import sqrt
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from raysweep.documents.base import SpecModel
from raysweep.search.base import (
    End,
    Result,
    Searcher,
    TrialEnd,
    derived_seed,
    result_of,
    tell_earlier,
    tell_end,
)

Told = tuple[Result | None, End]


class Race(SpecModel):
    """A config that is worse than the best one, repeat by repeat, gets no more (Wilcoxon, 1945)."""

    p_threshold: float = Field(default=0.1, gt=0, lt=1)
    """It is dropped when it is worse with a p-value below this: by 4 repeats at the earliest with 0.1."""


def _race(given: Any) -> Any:
    return {} if given is True or given == "wilcoxon" else None if given is False else given


class Repeat(SpecModel):
    """Each config runs several times, with as many seeds, the same for all configs (Ray Tune's Repeater)."""

    times: int = Field(ge=2)
    """The number of runs of each config."""
    seed_param: Annotated[str, Field(min_length=1)] | None = None
    """A parameter that gets the seed too, for trainables that take theirs from the config."""
    race: Annotated[Race | None, BeforeValidator(_race, json_schema_input_type=Race | str | bool | None)] = (
        None
    )
    """Drop configs early: `wilcoxon`, or its options; default: all repeats run."""


def without_seed(config: Mapping[str, Any], name: str | None) -> dict[str, Any]:
    """A config without its seed parameter: what its repeats have in common."""
    return {key: value for key, value in config.items() if key != name}


class RepeatSearcher(Searcher):
    """Wraps a searcher: its config n is that of the trials from n * times on.

    It receives a config once all repeats have ended: mean and spread of those that completed; as failed,
    or failed by its config, where one of them did; as stopped, where the config was dropped.

    Args:
        inner: who suggests configs.
        repeat: how often each runs, and the parameter that gets the seed.
        seed: the seed of the sweep.
    """

    def __init__(self, inner: Searcher, repeat: Repeat, seed: int) -> None:
        self._inner = inner
        self._repeat = repeat
        self._times = repeat.times
        self._seed = seed
        self._configs: dict[int, dict[str, Any]] = {}
        self._told: dict[int, dict[int, Told]] = {}

    @property
    def is_adaptive(self) -> bool:  # type: ignore[override]
        """As the searcher in it."""
        return self._inner.is_adaptive

    @property
    def total(self) -> int | None:  # type: ignore[override]
        """The number of trials that there will be; None where that is not known."""
        return None if self._inner.total is None else self._inner.total * self._times

    @property
    def note(self) -> str | None:  # type: ignore[override]
        """See `Searcher`."""
        return self._inner.note

    @property
    def substitution(self) -> str | None:  # type: ignore[override]
        """See `Searcher.substitution`."""
        return self._inner.substitution

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None if there are no more.

        Of a config that could not be made, the next repeat asks again: no note was taken of it.
        """
        index, repeat = divmod(number, self._times)
        config = self._configs.get(index)
        if config is None:
            config = self._inner.ask(index)
        if config is None:
            return None
        self._keep(index, repeat, config)
        given = copy.deepcopy(config)
        if self._repeat.seed_param is not None:
            # What seeds C libraries is often a signed 32-bit number.
            given[self._repeat.seed_param] = derived_seed(self._seed, repeat) % 2**31
        return given

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that an earlier run asked for."""
        index, repeat = divmod(number, self._times)
        drawn = without_seed(config, self._repeat.seed_param)
        if index not in self._configs:
            self._inner.restore(index, drawn)
        self._keep(index, repeat, drawn)

    def replay_failed(self, number: int) -> None:
        """See `Searcher.replay_failed`: each repeat of a config that could not be made asks again."""
        index = number // self._times
        if index not in self._configs:
            self._inner.replay_failed(index)

    def take_remark(self) -> str | None:
        """See `Searcher.take_remark`."""
        return self._inner.take_remark()

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended; a second report on the same trial changes nothing."""
        self._end(number, result_of(value), state)

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """Report how a trial ended, with what it cost."""
        self._end(number, result, state)

    def tell_infeasible(self, number: int) -> None:
        """Report a trial that failed by its config."""
        self._end(number, None, "infeasible")

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep."""
        self.tell_earlier_result(config, Result(value))

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """Report a trial of an earlier sweep, with what it cost."""
        tell_earlier(self._inner, without_seed(config, self._repeat.seed_param), result)

    def _end(self, number: int, result: Result | None, state: End) -> None:
        index, repeat = divmod(number, self._times)
        told = self._told.setdefault(index, {})
        told.setdefault(repeat, (result, state))
        if len(told) == self._times:
            mean, end = _summary([told[each] for each in sorted(told)])
            tell_end(self._inner, index, mean, state=end)
            # A second report on it changes nothing, in any searcher.
            del self._told[index]

    def _keep(self, index: int, repeat: int, config: dict[str, Any]) -> None:
        if repeat < self._times - 1:
            self._configs[index] = config
        else:
            self._configs.pop(index, None)


def _summary(told: list[Told]) -> Told:
    """The result of a config, from those of its repeats."""
    results = [result for result, state in told if state == "completed" and result is not None]
    if any(state == "infeasible" for _, state in told):
        return None, "infeasible"
    if not results or any(state == "failed" for _, state in told):
        return None, "failed"
    count = len(results)
    mean = sum(result.value for result in results) / count
    costs = [result.cost for result in results if result.cost is not None]
    summary = Result(
        mean,
        cost=sum(costs) / count if len(costs) == count else None,
        spread=_spread([result.value - mean for result in results]),
    )
    return summary, "completed" if count == len(told) else "stopped"


def _spread(distances: list[float]) -> float | None:
    """The standard deviation of the values that are so far from their mean, as of a sample; None for one."""
    if len(distances) < 2:
        return None
    # Not by a power, which raises where this is infinite.
    return sqrt(sum(each * each for each in distances) / (len(distances) - 1))
