"""A list of configs instead of a search: what a gate runs again."""

from __future__ import annotations

import copy
from typing import Any

from raysweep.search.base import TrialEnd, derived_seed
from raysweep.specs.search import ConfigsOptions


class ConfigSearcher:
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
