"""A search for each scale, the smaller ones first; each begins with what the scale below has found.

The first configs of a larger scale are the best one of the scale below and, for a search that learns, anchors
beside it. Once these have run at both scales, the results from below are told to the search as far as the
anchors show that they hold (`agreement`), at the level of the larger scale.

What a search is told depends on what has ended, and not on when it was asked: a result of the scale below
that comes late has the search made anew, and told in the order of numbers, as after a restart. There are at
most as many of these as run at once. So an ask costs what it costs in the search.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

from raysweep.errors import SampleFromError
from raysweep.search.base import End, Result, Searcher, TrialEnd, result_of, tell_earlier, tell_end
from raysweep.search.machinery.agreement import LEAST_COMMON, Entry, judge, key_of
from raysweep.search.machinery.anchors import choose_anchors
from raysweep.space.scales import Scale, place_of, show_scale

FEWEST: Final = 2 * LEAST_COMMON
"""With so many configs or fewer, a scale spends none on anchors."""


@dataclass(frozen=True, slots=True)
class Part:
    """One scale: its values, how many configs run at it, and what makes its search."""

    scale: Scale
    count: int
    make: Callable[[], Searcher]


@dataclass(slots=True)
class _Search:
    """The search of one scale; its configs are numbered from 0."""

    part: Part
    given: int
    """The number of its configs that come from the scale below."""
    searcher: Searcher | None = None
    is_told: bool = True
    """True if the searcher has all that there is from the scale below."""
    is_exhausted: bool = False
    numbers: int = 0
    """The number of its configs that were asked for, with those that could not be made."""
    configs: dict[int, dict[str, Any]] = field(default_factory=dict)
    failed: set[int] = field(default_factory=set)
    results: dict[int, tuple[Result | None, End]] = field(default_factory=dict)
    has_past: bool = False
    """True if the searcher has results of the scale below."""
    remark: str = ""

    @property
    def completed(self) -> list[Entry]:
        """Its trials that completed with a number, and satisfy the constraints."""
        found = []
        for place, (result, end) in sorted(self.results.items()):
            is_number = result is not None and math.isfinite(result.value) and not result.penalty
            if result is not None and is_number and end == "completed" and place in self.configs:
                found.append(Entry(without(self.configs[place], self.part.scale), result, 0))
        return found


def without(config: Mapping[str, Any], scale: Scale) -> dict[str, Any]:
    """The parameters of a config."""
    return {name: value for name, value in config.items() if name not in scale}


class ScaledSearcher(Searcher):
    """Asks the search of the smallest scale that has configs left.

    Args:
        parts: the scales, the smallest first.
        learns: whether the searches learn from final results, so that anchors are of use.
        is_max: whether larger scores are better.

    Raises:
        SpecError: the search cannot walk this space.
    """

    is_adaptive = True

    def __init__(self, parts: Sequence[Part], *, learns: bool, is_max: bool) -> None:
        self._searches = [
            _Search(part, 0 if not place else LEAST_COMMON if learns and part.count > FEWEST else 1)
            for place, part in enumerate(parts)
        ]
        self._is_max = is_max
        self._places: dict[int, tuple[int, int]] = {}  # by number: which search, and the number in it
        self._searches[0].searcher = parts[0].make()

    @property
    def total(self) -> int | None:  # type: ignore[override]
        """See `Searcher`."""
        return sum(map(_total, self._searches))

    @property
    def note(self) -> str | None:  # type: ignore[override]
        """See `Searcher`."""
        found = (each.searcher.note for each in self._searches if each.searcher is not None)
        return next((note for note in found if note), None)

    @property
    def substitution(self) -> str | None:  # type: ignore[override]
        """See `Searcher.substitution`."""
        first = self._searches[0].searcher
        return first.substitution if first is not None else None

    def take_remark(self) -> str | None:
        """See `Searcher.take_remark`: how much a scale says of the next one."""
        found = []
        for each in self._searches:
            found += [each.remark, each.searcher.take_remark() if each.searcher is not None else ""]
            each.remark = ""
        return "; ".join(text for text in found if text) or None

    def ask(self, number: int) -> dict[str, Any] | None:
        """See `Searcher`."""
        while (at := self._open()) is not None:
            search = self._searches[at]
            place = search.numbers
            config = self._below(at, place)
            is_given = config is not None
            try:
                config = config or self._searcher(at).ask(place)
            except SampleFromError as error:
                if error.config:  # which `restore` gets next
                    error.config = {**error.config, **search.part.scale}
                else:
                    self._note_failed(number, at)
                raise
            except Exception:
                self._note_failed(number, at)
                raise
            if config is None:
                search.is_exhausted = True
                continue
            self._note(number, at, config, is_given=is_given)
            return copy.deepcopy(config)
        return None

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """See `Searcher`."""
        found = place_of(config, (each.part.scale for each in self._searches))
        at = found if found is not None else self._open()
        if at is None:
            return
        search = self._searches[at]
        is_given = search.numbers < search.given
        if not is_given:
            self._searcher(at).restore(search.numbers, config)
        self._note(number, at, config, is_given=is_given)

    def replay_failed(self, number: int) -> None:
        """See `Searcher.replay_failed`."""
        at = self._open()
        if at is not None:
            search = self._searches[at]
            if search.searcher is not None:
                search.searcher.replay_failed(search.numbers)
            self._note_failed(number, at)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """See `Searcher`."""
        self._end(number, result_of(value), state)

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """See `Searcher.tell_result`."""
        self._end(number, result, state)

    def tell_infeasible(self, number: int) -> None:
        """See `Searcher.tell_infeasible`."""
        self._end(number, None, "infeasible")

    def tell_rung(self, number: int, time: float, value: float) -> None:
        """See `Searcher.tell_rung`."""
        at, place = self._places.get(number, (0, -1))
        searcher = self._searches[at].searcher
        if searcher is not None and place >= 0:
            searcher.tell_rung(place, time, value)

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep, to the search of its scale."""
        self.tell_earlier_result(config, Result(float(value)))

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """The same, with what there is to know of constraints."""
        at = place_of(config, (each.part.scale for each in self._searches))
        if at is not None:
            tell_earlier(self._searcher(at), config, result)

    def _open(self) -> int | None:
        """The smallest scale that has configs left."""
        for at, each in enumerate(self._searches):
            if each.numbers < each.part.count and not each.is_exhausted:
                return at
        return None

    def _note(self, number: int, at: int, config: dict[str, Any], *, is_given: bool) -> None:
        search = self._searches[at]
        place = search.numbers
        self._places[number] = at, place
        search.configs[place] = copy.deepcopy(config)
        search.numbers += 1
        if is_given and search.searcher is not None:
            search.searcher.take_given(place, config)

    def _note_failed(self, number: int, at: int) -> None:
        search = self._searches[at]
        self._places[number] = at, search.numbers
        search.failed.add(search.numbers)
        search.numbers += 1

    def _below(self, at: int, place: int) -> dict[str, Any] | None:
        """The config from the scale below that runs at this place; None: there is none."""
        search = self._searches[at]
        if place >= search.given:
            return None
        known = self._searches[at - 1].completed
        best = min(known, key=self._cost, default=None)
        if best is None:
            return None
        ran = [without(config, search.part.scale) for config in search.configs.values()]
        wanted = [best.config]
        if ran:
            wanted = list(choose_anchors(known, ran[0], search.given))
        found = next((config for config in wanted if config not in ran), None)
        return None if found is None else {**copy.deepcopy(found), **search.part.scale}

    def _cost(self, entry: Entry) -> float:
        return -entry.result.value if self._is_max else entry.result.value

    def _end(self, number: int, result: Result | None, state: End) -> None:
        if number not in self._places:
            return
        at, place = self._places[number]
        search = self._searches[at]
        before = search.results.get(place)
        if before is not None and before[1] != "paused":
            return
        search.results[place] = result, state
        if search.searcher is not None:
            tell_end(search.searcher, place, result, state=state)
        if place < search.given:
            search.is_told = False
        if at + 1 < len(self._searches) and state != "paused":
            self._searches[at + 1].is_told = False

    def _searcher(self, at: int) -> Searcher:
        """The search of a scale, told what the scale below has found."""
        search = self._searches[at]
        if search.searcher is not None and (search.is_told or search.given < LEAST_COMMON):
            return search.searcher
        told = self._told(at)
        if search.searcher is None or told or search.has_past:
            search.searcher = self._made(search, told)
        search.is_told, search.has_past = True, bool(told)
        return search.searcher

    def _told(self, at: int) -> Sequence[tuple[dict[str, Any], Result]]:
        """The results from the scale below that hold at this one, at its level."""
        search = self._searches[at]
        firsts = [search.results.get(place) for place in range(search.given)]
        if search.given < LEAST_COMMON or any(each is None or each[1] == "paused" for each in firsts):
            return ()
        scores = {
            key_of(without(search.configs[place], search.part.scale)): each[0].value
            for place, each in enumerate(firsts)
            if each is not None and each[0] is not None and each[1] == "completed"
        }
        found = judge(self._searches[at - 1].completed, scores, None, is_max=self._is_max)
        if found.told:
            below, here = (show_scale(each.part.scale) for each in self._searches[at - 1 : at + 1])
            count = f"{len(found.told)} results of {below} count, corrected"
            search.remark = f"{here}: {count} (agreement {found.agreeing[0]:.2f})"
        return found.told

    def _made(self, search: _Search, told: Sequence[tuple[dict[str, Any], Result]]) -> Searcher:
        searcher = search.part.make()
        for config, result in told:
            tell_earlier(searcher, {**config, **search.part.scale}, result)
        for place in range(search.numbers):
            if place in search.failed:
                searcher.replay_failed(place)
                continue
            config = search.configs[place]
            if told or place < search.given:
                searcher.take_given(place, copy.deepcopy(config))
            else:
                searcher.restore(place, copy.deepcopy(config))
            if place in search.results:
                ended, state = search.results[place]
                tell_end(searcher, place, ended, state=state)
        return searcher


def _total(search: _Search) -> int:
    if search.is_exhausted:
        return search.numbers
    total = search.searcher.total if search.searcher is not None else None
    return search.part.count if total is None else min(total, search.part.count)
