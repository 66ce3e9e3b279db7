"""Policies and functions that raise at one place what a test wants; else they do what is needed."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raysweep.schedulers import NOTHING, Scheduler
from raysweep.search import Searcher

RAISES: dict[str, BaseException] = {}
"""By hook, the exception to raise there."""


def at(hook: str) -> None:
    """The hook is called."""
    if hook in RAISES:
        raise RAISES[hook]


class Search(Searcher):
    """A searcher."""

    is_adaptive = True
    total: int | None = None
    note: str | None = None

    def __init__(self, options: Any, setup: Any) -> None:
        at("search.__init__")

    def ask(self, number: int) -> dict[str, Any]:
        at("search.ask")
        return {"x": 0.1 + number / 100}

    def restore(self, number: int, config: dict[str, Any]) -> None:
        at("search.restore")

    def tell(self, number: int, value: float | None, state: str) -> None:
        at("search.tell")

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        at("search.tell_earlier")


class Schedule(Scheduler):
    """A scheduler."""

    time_attr = "training_iteration"
    max_t = None
    moves = frozenset({"stop"})

    def __init__(self, options: Any, setup: Any) -> None:
        at("scheduler.__init__")

    def add(self, trial: int, config: dict[str, Any]) -> None:
        at("scheduler.add")

    def report(self, trial: int, time: float, value: float) -> Any:
        at("scheduler.report")
        return NOTHING

    def end(self, trial: int, time: float | None, value: float | None) -> Any:
        at("scheduler.end")
        return NOTHING

    def remove(self, trial: int) -> Any:
        at("scheduler.remove")
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Any:
        at("scheduler.idle")
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        at("scheduler.to_json")
        return {}

    def from_json(self, state: dict[str, Any]) -> None:
        at("scheduler.from_json")


def judge(history: list[dict[str, Any]]) -> bool:
    """For `stop.trial_if`."""
    at("trial_if")
    return False


def sample(config: dict[str, Any]) -> float:
    """For `sample_from`."""
    at("sample_from")
    return 0.5


def read(config: dict[str, Any]) -> Any:
    """For `datasets` of a training."""
    at("datasets")


def trainer(loop: Any, **arguments: Any) -> Any:
    """For `framework` of a training."""
    at("framework")


def progress(seen: Any) -> None:
    """For `on_progress`."""
    at("on_progress")
