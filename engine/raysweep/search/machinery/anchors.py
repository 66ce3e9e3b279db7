"""Anchors: earlier configs that run again to compare tonight by, and the search that waits for them."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from raysweep.search.base import End, Result, Searcher, TrialEnd, tell_earlier, tell_end
from raysweep.search.machinery.agreement import Agreement, Entry, judge, key_of
from raysweep.search.machinery.distance import Grid, Place, apart


@dataclass(frozen=True, slots=True, kw_only=True)
class Anchors:
    """The part of a warm start that `warm_start` with anchors adds.

    `configs` run first, after the champion. `runs` says of each trial that is told which run it is from (0:
    the newest). `half_life`: see `raysweep.specs.sweep_parts.Memory`.
    """

    configs: tuple[dict[str, Any], ...] = ()
    runs: tuple[int, ...] = ()
    half_life: float | None = None


def choose_anchors(
    entries: Sequence[Entry], first: Mapping[str, Any] | None, count: int
) -> tuple[dict[str, Any], ...]:
    """Return configs of the newest run that are worth a second look.

    Those that most earlier runs have run as well, so that all of these can be compared; then, one after the
    other, those that are farthest from these, from `first` and from each other, by their parameters and by
    their scores (Gonzalez, Theoretical Computer Science 38, 1985). Wherever the best place moves to, some of
    them gain by it and others lose; and they have an order that can be compared.

    Args:
        entries: the completed trials of earlier runs.
        first: the config that runs before them, which is no anchor.
        count: how many.
    """
    runs: dict[str, set[int]] = {}
    for entry in entries:
        runs.setdefault(key_of(entry.config), set()).add(entry.run)
    newest = {key_of(entry.config): entry for entry in entries if entry.run == 0}
    seen = {key: {"config": entry.config, "score": entry.result.value} for key, entry in newest.items()}
    grid = Grid(seen.values())
    places = {key: grid.place(seen[key]) for key in sorted(seen)}
    taken: list[Place] = []
    if first is not None:
        taken.append(places.pop(key_of(first), grid.place({"config": first})))
    known = [key for key in newest if key in places and len(runs[key]) > 1]
    chosen = sorted(known, key=lambda key: -len(runs[key]))[:count]
    taken += [places.pop(key) for key in chosen]
    chosen += _farthest(places, taken, count - len(chosen))
    return tuple(newest[key].config for key in chosen)


def _farthest(places: Mapping[str, Place], taken: list[Place], count: int) -> list[str]:
    """The names of `count` places, each as far as can be from those that are taken by then."""
    left = dict(places)
    found: list[str] = []
    while left and len(found) < count:
        name = max(left, key=lambda name: min((apart(left[name], each) for each in taken), default=0.0))
        taken.append(left.pop(name))
        found.append(name)
    return found


class AnchoredSearcher(Searcher):
    """A searcher that receives earlier runs once the anchors have ended, as far as they agree.

    Until then it searches without a past. Then another one is made, told what is worth it, and told again
    what tonight has found, by number: as after a restart, so that a restart gives the same.

    Args:
        make: makes the searcher, the same each time.
        first: the configs that run first, by number: those that tonight is compared by.
        entries: the trials of earlier runs.
        half_life, is_max: see `judge`.

    Raises:
        SpecError: It cannot learn from earlier runs.
    """

    def __init__(
        self,
        make: Callable[[], Searcher],
        first: Sequence[Mapping[str, Any]],
        entries: Sequence[Entry],
        half_life: float | None,
        *,
        is_max: bool,
    ) -> None:
        self._make, self._inner = make, make()
        self._entries, self._half_life, self._is_max = entries, half_life, is_max
        self._awaited = {number: key_of(config) for number, config in enumerate(first)} if entries else {}
        self._scores: dict[str, float] = {}
        self._configs: dict[int, dict[str, Any]] = {}
        self._told: dict[int, tuple[Result | None, End]] = {}
        self._remark: str | None = None
        self.is_adaptive = self._inner.is_adaptive
        if entries and self._inner.knows_givens:
            # Whether such a class can be told is better known now than when the anchors have run.
            tell_earlier(make(), entries[0].config, entries[0].result)

    @property
    def total(self) -> int | None:  # type: ignore[override]
        """See `Searcher`."""
        return self._inner.total

    @property
    def note(self) -> str | None:  # type: ignore[override]
        """See `Searcher`."""
        return self._inner.note

    @property
    def substitution(self) -> str | None:  # type: ignore[override]
        """See `Searcher.substitution`."""
        return self._inner.substitution

    def take_remark(self) -> str | None:
        """See `Searcher.take_remark`: how much the past agrees, and what its searcher says."""
        remark, self._remark = self._remark, None
        return "; ".join(text for text in (remark, self._inner.take_remark()) if text) or None

    def ask(self, number: int) -> dict[str, Any] | None:
        """See `Searcher`."""
        config = self._inner.ask(number)
        if config is not None:
            self._note(number, config)
        return config

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """See `Searcher`."""
        self._inner.restore(number, config)
        self._note(number, config)

    def replay_failed(self, number: int) -> None:
        """See `Searcher.replay_failed`."""
        self._inner.replay_failed(number)

    def take_given(self, number: int, config: dict[str, Any]) -> None:
        """See `Searcher.take_given`."""
        self._inner.take_given(number, config)
        self._note(number, config)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """See `Searcher`."""
        self._end(number, None if value is None else Result(float(value)), state)

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """See `Searcher.tell_result`."""
        self._end(number, result, state)

    def tell_infeasible(self, number: int) -> None:
        """See `Searcher.tell_infeasible`."""
        self._end(number, None, "infeasible")

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep that needs no comparison."""
        self._inner.tell_earlier(config, value)

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """The same, with what there is to know of constraints."""
        tell_earlier(self._inner, config, result)

    def _note(self, number: int, config: dict[str, Any]) -> None:
        if self._awaited:
            self._configs[number] = copy.deepcopy(config)

    def _end(self, number: int, result: Result | None, state: End) -> None:
        tell_end(self._inner, number, result, state=state)
        if not self._awaited:
            return
        before = self._told.get(number)
        if before is None or before[1] == "paused":
            self._told[number] = result, state
        key = self._awaited.pop(number, None) if state != "paused" else None
        # One that was stopped had another budget than its earlier run.
        if key is not None and result is not None and state == "completed":
            self._scores[key] = result.value
        if key is not None and not self._awaited:
            self._begin(judge(self._entries, self._scores, self._half_life, is_max=self._is_max))

    def _begin(self, found: Agreement) -> None:
        """Have a searcher with a past take the place of the one without."""
        # What the searcher before has still to say is said with it.
        self._remark = "; ".join(text for text in (self._inner.take_remark(), str(found)) if text)
        if found.told:
            self._inner = self._make()
            for config, result in found.told:
                tell_earlier(self._inner, config, result)
            for number, config in sorted(self._configs.items()):
                # Also what the one before suggested: this one did not.
                self._inner.take_given(number, config)
                if number in self._told:
                    tonight, state = self._told[number]
                    tell_end(self._inner, number, tonight, state=state)
        self._configs, self._told, self._entries = {}, {}, ()
