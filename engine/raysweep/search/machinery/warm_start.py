"""Results of earlier sweeps for tonight's searcher, as far as they fit tonight's space."""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final

from raysweep.documents.json_values import leaves
from raysweep.documents.tuples import as_lists
from raysweep.search.base import Result, Searcher, TrialEnd, tell_earlier, tell_end
from raysweep.search.machinery.agreement import Entry
from raysweep.search.machinery.anchors import AnchoredSearcher, Anchors
from raysweep.search.machinery.cells import LeafPath
from raysweep.search.machinery.points import FirstPoints, holds
from raysweep.space.branches import switch_of
from raysweep.space.parsed import Space, has_domain
from raysweep.space.scales import Scale, is_at
from raysweep.space.simplex import Simplex
from raysweep.space.vocabulary import word_of

_ABSENT: Final = object()


@dataclass(frozen=True, slots=True, kw_only=True)
class WarmStart:
    """The start of a sweep; recorded at its first start, so that a resume begins with the same."""

    first: dict[str, Any] | None = None
    """The config that is run first: the champion's."""
    told: tuple[tuple[dict[str, Any], float], ...] = ()
    """Configs of earlier sweeps and their scores."""
    violations: tuple[tuple[float, ...], ...] = ()
    """For each of these, how far it is from satisfying tonight's constraints; empty without constraints."""
    others: tuple[tuple[float, ...], ...] = ()
    """For each of these, its values of the metrics after the first; empty in a sweep of one."""
    costs: tuple[float | None, ...] = ()
    """For each of these, what it took; empty where the search does not ask for that."""
    sources: tuple[str, ...] = ()
    """The sweeps that they come from."""
    left_out: tuple[str, ...] = field(default=())
    """Earlier results that do not fit the space any more, a line each."""
    anchors: Anchors | None = None
    """Configs that run again to see how far the told ones still hold; None: they are told as they are."""

    @property
    def first_configs(self) -> tuple[dict[str, Any], ...]:
        """The configs that run before all others: the champion, then the anchors."""
        champion = () if self.first is None else (self.first,)
        return champion if self.anchors is None else (*champion, *self.anchors.configs)

    def at_scale(self, scale: Scale, *, is_first: bool) -> WarmStart | None:
        """The start of the search of one scale: its own trials, and the champion where it is the first.
        None: it has neither.
        None: with nothing.
        """
        first = {**self.first, **scale} if is_first and self.first is not None else None
        here = [place for place, (config, _) in enumerate(self.told) if is_at(config, scale)]
        if first is None and not here:
            return None
        return replace(
            self,
            first=first,
            told=tuple(self.told[place] for place in here),
            violations=tuple(self.violations[place] for place in here if self.violations),
            costs=tuple(self.costs[place] for place in here if self.costs),
        )

    @property
    def results(self) -> tuple[Result, ...]:
        """Those of the told configs."""
        none: tuple[tuple[float, ...], ...] = ((),) * len(self.told)
        costs = self.costs or (None,) * len(self.told)
        scores = (score for _, score in self.told)
        known = zip(scores, self.violations or none, self.others or none, costs, strict=True)
        return tuple(Result(*each) for each in known)


class WarmSearcher(Searcher):
    """A searcher that knows what was found before, and runs some configs first.

    The champion's, the anchors, then points. These take the place of the search's first; of a grid, none may
    be missing, so there they come in addition.
    """

    def __init__(
        self, inner: Searcher, warm: WarmStart, *, points: FirstPoints | None = None, has_grid: bool
    ) -> None:
        self._inner = inner
        self._configs = warm.first_configs
        self._points = points or FirstPoints.none()
        self._count = len(self._configs) + len(self._points)
        self._shift = self._count if has_grid else 0
        for (config, _), result in zip(warm.told, warm.results, strict=True):
            tell_earlier(inner, config, result)
        self.is_adaptive = inner.is_adaptive

    @property
    def total(self) -> int | None:  # type: ignore[override]
        """The number of configs that there will be."""
        total = self._inner.total
        return None if total is None else total + self._shift

    @property
    def note(self) -> str | None:  # type: ignore[override]
        """See `Searcher`."""
        return self._inner.note

    @property
    def substitution(self) -> str | None:  # type: ignore[override]
        """See `Searcher.substitution`."""
        return self._inner.substitution

    def take_remark(self) -> str | None:
        """See `Searcher.take_remark`."""
        return self._inner.take_remark()

    def ask(self, number: int) -> dict[str, Any] | None:
        """Return the config of trial `number`; None if there are no more."""
        total = self.total
        if total is not None and number >= total:
            return None
        if number < self._count:
            config = self._first(number)
            if not self._shift:
                self._inner.take_given(number, config)
            return config
        return self._inner.ask(number - self._shift)

    def restore(self, number: int, config: dict[str, Any]) -> None:
        """Take note of a config that an earlier run asked for."""
        if number >= self._count:
            self._inner.restore(number - self._shift, config)
        elif not self._shift:
            self._inner.take_given(number, config)

    def replay_failed(self, number: int) -> None:
        """See `Searcher.replay_failed`. What runs first is no suggestion."""
        if number >= self._count:
            self._inner.replay_failed(number - self._shift)

    def tell(self, number: int, value: float | None, state: TrialEnd) -> None:
        """Report how a trial ended."""
        if number >= self._shift:
            self._inner.tell(number - self._shift, value, state)

    def tell_result(self, number: int, result: Result, state: TrialEnd) -> None:
        """Report how a trial ended, with what there is to know of constraints."""
        if number >= self._shift:
            tell_end(self._inner, number - self._shift, result, state=state)

    def tell_infeasible(self, number: int) -> None:
        """Report a trial that failed by its config."""
        if number >= self._shift:
            tell_end(self._inner, number - self._shift, None, state="infeasible")

    def tell_rung(self, number: int, time: float, value: float) -> None:
        """Report what a trial had reached."""
        if number >= self._shift:
            self._inner.tell_rung(number - self._shift, time, value)

    def tell_earlier_result(self, config: dict[str, Any], result: Result) -> None:
        """Report a trial of an earlier sweep, with what there is to know of constraints."""
        tell_earlier(self._inner, config, result)

    def tell_earlier(self, config: dict[str, Any], value: float) -> None:
        """Report a trial of an earlier sweep."""
        self._inner.tell_earlier(config, value)

    def _first(self, number: int) -> dict[str, Any]:
        if number < len(self._configs):
            return copy.deepcopy(self._configs[number])
        return self._points.build(number - len(self._configs))


def start_warm(
    make: Callable[[], Searcher], warm: WarmStart, points: FirstPoints, *, has_grid: bool, is_max: bool
) -> WarmSearcher:
    """Return a searcher, of those that `make` makes, that knows what was found before."""
    anchors = warm.anchors
    if anchors is None:
        return WarmSearcher(make(), warm, points=points, has_grid=has_grid)
    known = zip(warm.told, warm.results, anchors.runs, strict=True)
    entries = [Entry(config, result, run) for (config, _), result, run in known]
    inner = AnchoredSearcher(make, warm.first_configs, entries, anchors.half_life, is_max=is_max)
    # Told by the searcher inside, when it knows what is true of them.
    warm = replace(warm, told=(), violations=(), others=(), costs=())
    return WarmSearcher(inner, warm, points=points, has_grid=has_grid)


def refit(space: Space, config: dict[str, Any]) -> dict[str, Any]:
    """An earlier config as tonight's space has it: its values, tonight's constants and functions.

    Raises:
        ValueError: it does not fit; names the parameter, its value, and why.
    """
    values: dict[LeafPath, Any] = {}
    config = as_lists(config)
    for path, domain in space.searched:
        name = ".".join(path)
        if not space.is_reached(path, values):
            continue
        try:
            value = space.value_at(config, path)
        except (KeyError, IndexError, TypeError, ValueError):
            raise ValueError(f"has no {name}") from None
        if not holds(domain, value):
            raise ValueError(f"{name}={value!r} is outside tonight's space")
        values[path] = domain.own(value) if isinstance(domain, Simplex) else value
    if not space.allows(values):
        broken = next(relation.text for relation in space.where if not relation.holds(config))
        raise ValueError(f"does not satisfy {broken!r}")
    fitted = space.build(values)
    gone = sorted(dict(leaves(config)).keys() - dict(leaves(fitted)).keys())
    if gone:
        raise ValueError(f"has {gone[0]}, which tonight's space has not")
    return fitted


def at_constants(param_space: Mapping[str, Any], config: Mapping[str, Any]) -> dict[str, Any]:
    """An earlier config with tonight's constants, and otherwise as it was, inside tonight's space or not.

    Parameters that tonight's space does not know stay; ones that it has newly got stay out. What a function
    drew is the earlier value: the function need not be importable here.
    """
    now = {name: _now(node, config.get(name, _ABSENT)) for name, node in param_space.items()}
    return {**config, **{name: value for name, value in now.items() if value is not _ABSENT}}


def _now(node: Any, earlier: Any) -> Any:
    """A part of a normalised space as an earlier config has it; `_ABSENT` where that has nothing."""
    if not has_domain(node):
        return node
    branches = switch_of(node)
    if branches is not None:
        if not isinstance(earlier, Mapping) or len(earlier) != 1:
            return earlier
        taken, below = next(iter(earlier.items()))
        return {taken: _now(branches[taken], below)} if taken in branches else earlier
    if isinstance(node, Mapping):
        if word_of(node) is None:
            return at_constants(node, earlier if isinstance(earlier, Mapping) else {})
        return as_lists(node.get("const", earlier))
    known = earlier if isinstance(earlier, list) and len(earlier) == len(node) else [None] * len(node)
    return [_now(item, value) for item, value in zip(node, known, strict=True)]
