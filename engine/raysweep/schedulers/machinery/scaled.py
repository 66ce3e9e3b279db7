"""A scheduler for each scale of a sweep, so that trials of different scales are never compared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from raysweep.schedulers.base import NOTHING, Config, Decisions, Move, Scheduler
from raysweep.space.scales import Scale, place_of


class ScaledScheduler(Scheduler):
    """Asks the scheduler of a trial's scale.

    Args:
        scales: the values of each scale; the config of a trial has those of one.
        inner: a scheduler for each, all made from the same options.
    """

    __slots__ = ("_inner", "_places", "_scales", "max_t", "moves", "pauses_again", "time_attr")

    def __init__(self, scales: Sequence[Scale], inner: Sequence[Scheduler]) -> None:
        self._scales, self._inner = tuple(scales), tuple(inner)
        self._places: dict[int, int] = {}  # by trial, which scale
        self.time_attr: str = inner[0].time_attr
        self.max_t: float | None = inner[0].max_t
        self.moves: frozenset[Move] = inner[0].moves
        self.pauses_again: bool = inner[0].pauses_again

    def add(self, trial: int, config: Config) -> None:
        """Make a trial known to the scheduler of its scale; one without a scale could not be made."""
        place = place_of(config, self._scales)
        if place is not None:
            self._places[trial] = place
            self._inner[place].add(trial, config)

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide what follows from a report, beside trials of the same scale."""
        place = self._places.get(trial)
        return NOTHING if place is None else self._inner[place].report(trial, time, value)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Take the last report of a trial that has completed into account, and forget the trial."""
        place = self._places.pop(trial, None)
        return NOTHING if place is None else self._inner[place].end(trial, time, value)

    def remove(self, trial: int) -> Decisions:
        """Forget a trial; what it recorded stays recorded."""
        place = self._places.pop(trial, None)
        return NOTHING if place is None else self._inner[place].remove(trial)

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Decide what becomes of the paused trials of each scale."""
        by_scale: dict[int, list[int]] = {}
        for trial in paused:
            if trial in self._places:
                by_scale.setdefault(self._places[trial], []).append(trial)
        decided = (self._inner[place].idle(tuple(trials)) for place, trials in sorted(by_scale.items()))
        return tuple(each for decisions in decided for each in decisions)

    def to_json(self) -> dict[str, Any]:
        """Return the states of all, and which scale each trial has that has not ended."""
        return {
            "scales": [inner.to_json() for inner in self._inner],
            "places": [list(each) for each in self._places.items()],
        }

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned.

        Raises:
            SpecError: the state belongs to schedulers with other parameters.
        """
        for inner, saved in zip(self._inner, state["scales"], strict=True):
            inner.from_json(saved)
        self._places = dict(state["places"])
