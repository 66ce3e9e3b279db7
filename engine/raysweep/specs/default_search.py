"""Which search a sweep has whose spec does not say it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raysweep.search.random_then_auto import STARTUP
from raysweep.space.parsed import uses

if TYPE_CHECKING:
    from raysweep.specs.sweep import SweepSpec

_NUMBERS: Final = ("uniform", "loguniform", "randint", "lograndint")
_LEARNT: Final = ("choice", *_NUMBERS, *(f"q{word}" for word in _NUMBERS))


def can_learn(spec: SweepSpec) -> bool:
    """Whether `auto` would do anything else than `random`, and is a search for this space at all.

    Not where so few trials are wanted that all are drawn, for a grid, for a population, which finds its
    configs itself, nor where there is nothing to learn about.
    """
    if spec.num_samples is not None and spec.num_samples <= STARTUP:
        return False
    if spec.scheduler.options.is_population or uses(spec.param_space, "grid_search"):
        return False
    return any(uses(spec.param_space, word) for word in _LEARNT)
