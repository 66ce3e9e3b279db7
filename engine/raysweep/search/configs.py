"""A list of configs instead of a search: what a gate runs again."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Annotated, Any

from pydantic import BeforeValidator, Field

from raysweep.documents.json_values import plain
from raysweep.documents.validation import Problem, show
from raysweep.search.base import Searcher, SearchSetup, TrialEnd, derived_seed
from raysweep.search.options import SearchOptions


def _configs(given: Any) -> Any:
    if not isinstance(given, list | tuple) or not given:
        raise Problem(f"expected a list of configs, got {show(given)}", 'write [{"lr": 0.1}, {"lr": 0.2}]')
    for number, config in enumerate(given):
        if not isinstance(config, Mapping) or not config:
            raise Problem(f"expected a config, got {show(config)}", 'write {"lr": 0.1}', (number,))
    return tuple(plain(dict(config), (number,)) for number, config in enumerate(given))


class ConfigsOptions(SearchOptions):
    """These configs, in turn, each with the same seeds; `param_space` and `num_samples` are not used."""

    metrics = "none"
    is_listed = True

    configs: Annotated[tuple[dict[str, Any], ...], BeforeValidator(_configs)]
    """The configs, as a trial gets them."""
    seeds: int = Field(default=1, ge=1)
    """Runs of each config: every config gets the same seeds."""
    seed_param: Annotated[str, Field(min_length=1)] | None = None
    """A parameter that gets the seed too, for trainables that take theirs from the config."""

    @property
    def configs_per_seed(self) -> int:
        """All configs get the first seed, then all the second."""
        return len(self.configs)

    def make(self, setup: SearchSetup) -> Searcher:
        """The searcher, before its first ask."""
        return ConfigSearcher(self, setup.seed)


class ConfigSearcher(Searcher):
    """All configs under the first seed, then all under the second, …

    Args:
        options: the configs, how many seeds, and the parameter that gets the seed.
        seed: the seed of the sweep.
    """

    is_adaptive = False
    note: str | None = None

    def __init__(self, options: ConfigsOptions, seed: int) -> None:
        self._options = options
        self._seed = seed
        self.total: int | None = len(options.configs) * options.seeds

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None past the last."""
        repeat, index = divmod(number, len(self._options.configs))
        if repeat >= self._options.seeds:
            return None
        config: dict[str, Any] = copy.deepcopy(self._options.configs[index])
        if self._options.seed_param is not None:
            # What seeds C libraries is often a signed 32-bit number.
            config[self._options.seed_param] = derived_seed(self._seed, repeat) % 2**31
        return config

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Do nothing: the list says what each trial gets."""

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Do nothing, as above."""

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Do nothing, as above."""
