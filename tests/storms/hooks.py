"""Hooks of a user that end as none should: with what is no Exception, in the middle of a sweep."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any, Final

from pydantic import BaseModel

from raysweep.search import Searcher, SearchSetup
from raysweep.search.base import derived_rng


class RustPanic(BaseException):
    """As pyo3's PanicException: no Exception."""


KINDS: Final[Mapping[str, type[BaseException]]] = {
    "SystemExit": SystemExit,
    "CancelledError": asyncio.CancelledError,
    "RustPanic": RustPanic,
    "GeneratorExit": GeneratorExit,
    "RuntimeError": RuntimeError,
}


class Options(BaseModel):
    """Where and what it raises."""

    raises: str
    where: str = "ask"
    at: int = 2
    is_adaptive: bool = True


class BadSearcher(Searcher):
    """Draws `x` at random; raises in `ask` or `tell` of one trial."""

    Options = Options
    note = None

    def __init__(self, options: Options, setup: SearchSetup) -> None:
        self.options, self.is_adaptive = options, options.is_adaptive
        self.total = setup.num_samples
        self._setup = setup

    def ask(self, number: int) -> dict[str, Any]:
        self._act("ask", number)
        return self._setup.space.sample(derived_rng(self._setup.seed, number))

    def tell(self, number: int, value: float | None, state: Any) -> None:
        self._act("tell", number)

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        pass

    def restore(self, number: int, config: dict[str, Any]) -> None:
        self._act("restore", number)

    def _act(self, where: str, number: int) -> None:
        if self.options.where == where and self.options.at == number:
            raise KINDS[self.options.raises](f"in {where} of {number}")


def stops_badly(reports: list[dict[str, Any]]) -> bool:
    """A `trial_if` that exits at the second report of some trials."""
    if len(reports) > 1 and reports[-1].get("of", 0) % 3 == 1:
        raise SystemExit(3)
    return False


def stops(reports: list[dict[str, Any]]) -> bool:
    """A `trial_if` that stops every fifth trial."""
    return bool(reports[-1].get("of", 0) % 5 == 4)


def _exits(progress: Any) -> None:
    raise SystemExit(4)


def _raises(progress: Any) -> None:
    raise RuntimeError("on_progress")


ON_PROGRESS: Final[Mapping[str, Callable[[Any], None]]] = {"exits": _exits, "raises": _raises}
