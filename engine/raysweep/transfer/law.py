"""A fitted law: what it says of a target scale, with a verdict and its reasons."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final, Literal

import numpy as np

from raysweep.documents.mode import Mode
from raysweep.documents.validation import Problem, spec_error
from raysweep.space.parsed import Space, normalise, parse
from raysweep.transfer.agreement import AGREE, Agreement, agreement_of
from raysweep.transfer.drift import with_drift
from raysweep.transfer.levels import Mixture
from raysweep.transfer.parameters import parameters_of
from raysweep.transfer.point import PART, Point
from raysweep.transfer.surface import fit_surface
from raysweep.transfer.table import Table, coordinates_of, is_useful, table_of
from raysweep.transfer.trials import read_scale, read_trials

Verdict = Literal["carries", "edge", "does not carry", "too few"]
EDGE: Final = 0.25
"""From this probability on that the optimum is at a bound or beyond, the verdict is `edge`."""
STILL: Final = 0.75
"""From this probability on that scores still improve at a bound, the verdict is `edge`."""
FEWEST: Final = 6
"""A law requires so many trials beyond one for each scale, and two for each number beyond two."""


@dataclass(frozen=True, slots=True)
class Reason:
    """One reason of a verdict. `about`: what it is about; `values`: what the sentence says of it."""

    verdict: Verdict
    about: str
    values: Mapping[str, float]
    sentence: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Carried:
    """The prediction of a law for a target scale.

    `config`: the optimum there; on any verdict but `carries`, that of the best trial at the largest proxy
    scale. `intervals`: by parameter (`a.b` where nested), the ends of 80 % of the optimum's probability,
    inside the space. `score`, `score_low`, `score_high`: of `config` at the target, with 80 %. `reasons`:
    the sentences of `facts`. `optimum`: by parameter, what the law gives, not held to bounds or verdict;
    `optima`: the same at each proxy scale, the smallest first.
    """

    config: dict[str, Any]
    intervals: dict[str, tuple[Any, Any]]
    score: float
    score_low: float
    score_high: float
    verdict: Verdict
    reasons: list[str]
    facts: list[Reason] = field(repr=False)
    optimum: dict[str, float] = field(repr=False)
    optima: list[tuple[dict[str, float], dict[str, float]]] = field(repr=False)


def fit_law(trials: Iterable[Mapping[str, Any]], space: Mapping[str, Any] | Space, mode: Mode) -> Law:
    """See `raysweep.transfer.fit`."""
    parsed = space if isinstance(space, Space) else _parsed(space)
    names, runs = read_trials(trials, mode)
    return Law(names, table_of(runs, parameters_of(parsed)), mode)


def _parsed(space: Mapping[str, Any]) -> Space:
    try:
        return parse(normalise(space))
    except Problem as problem:
        raise spec_error(Problem.of(problem.issues, ("space",)).issues) from None


class Law:
    """One model of the scores at all proxy scales; made by `raysweep.transfer.fit`."""

    def __init__(self, names: Sequence[str], table: Table, mode: Mode) -> None:
        self.names = tuple(names)
        self.mode = mode
        self._table, self._surface = with_drift(table, fit_surface(table.design()))

    @property
    def scales(self) -> list[dict[str, float]]:
        """Tonight's proxy scales, the smallest first."""
        found = {run.scale: run.size for run in self._table.runs if run.night == 0}
        order = sorted(found, key=lambda scale: (found[scale], scale))
        return [dict(zip(self.names, scale, strict=True)) for scale in order]

    @property
    def nights(self) -> int:
        """The number of earlier nights that have trials in it."""
        return len(self._table.nights)

    @cached_property
    def agreement(self) -> Agreement:
        """The quality with which the proxy scales predict each other."""
        return agreement_of(self._table, self._surface)

    def optimum_at(self, scale: Mapping[str, float]) -> dict[str, float]:
        """By parameter, the optimum at a scale, not held to any bounds. Raises SpecError as `at` does."""
        return self._point(scale).optima

    def bands_at(self, scale: Mapping[str, float]) -> dict[str, tuple[float, float, float]]:
        """By parameter, the optimum at a scale and the ends of 80 % of its probability, not held to bounds.

        Raises SpecError as `at` does.
        """
        return self._point(scale).bands

    def at(self, target: Mapping[str, float]) -> Carried:
        """The config at a target scale, such as `{"rows": 336776}`.

        Raises:
            SpecError: the target has not the same names of scales as the trials, or one is not positive.
        """
        point = self._point(target)
        facts = list(self._doubts(point))[:1] or [self._support()]
        facts += [fact for fact in list(self._doubts(point))[1:] if fact.verdict == facts[0].verdict]
        verdict = facts[0].verdict
        best = self._best
        x = point.inside if verdict == "carries" else self._table.x[best]
        score, low, high = self._ends(point.score(x))
        copied = copy.deepcopy(dict(self._table.runs[best].config))
        return Carried(
            config=point.config if verdict == "carries" else copied,
            intervals=point.intervals,
            score=score,
            score_low=low,
            score_high=high,
            verdict=verdict,
            reasons=[fact.sentence for fact in facts],
            facts=facts,
            optimum=point.optima,
            optima=[(scale, self.optimum_at(scale)) for scale in self.scales],
        )

    def scored(self, said: Carried, target: Mapping[str, float], config: Mapping[str, Any]) -> Carried:
        """The same, with the score of another config at the target, which need not be inside the space.

        Raises: SpecError as `at`, and where the config has not the space's parameters.
        """
        x, places = coordinates_of(config, self._table.parameters, "config")
        score, low, high = self._ends(self._point(target).score(np.array(x), places))
        return replace(said, score=score, score_low=low, score_high=high)

    def _ends(self, mixture: Mixture) -> tuple[float, float, float]:
        """The mean, and the ends of 80 %, in the metric's own direction."""
        sign = 1.0 if self.mode == "min" else -1.0
        low, high = sorted(sign * mixture.quantile(part) for part in ((1 - PART) / 2, (1 + PART) / 2))
        return sign * mixture.mean, low, high

    def _point(self, scale: Mapping[str, float]) -> Point:
        return Point(self._table, self._surface, read_scale(scale, self.names, "target"))

    @cached_property
    def _best(self) -> int:
        """The place of tonight's best trial of the largest proxy scale."""
        runs = self._table.runs
        ended = [
            at for at, run in enumerate(runs) if run.has_score and run.progress == 1.0 and run.night == 0
        ]
        return min(ended, key=lambda at: (-runs[at].size, runs[at].score))

    def _doubts(self, point: Point) -> Iterator[Reason]:
        yield from self._too_few(point)
        yield from self._disagreements()
        for at, number in point.numbers:
            for bound, side in ((0.0, "at or below"), (1.0, "at or above")):
                share = point.outside(at)[int(bound)]
                value, end = point.optima[number.name], number.raw(bound)
                values = {"optimum": value, "bound": end, "probability": share}
                if share > EDGE and point.matters(at):
                    sentence = (
                        f"{number.name}: the optimum, {value:.3g}, is {side} the bound {end:.3g} "
                        f"with a probability of {share:.0%}; widen its domain"
                    )
                    yield Reason("edge", number.name, values, sentence)
                elif (share := point.improving(at, bound)) > STILL:
                    sentence = (
                        f"{number.name}: scores still improve at the bound {end:.3g} "
                        f"with a probability of {share:.0%}; widen its domain"
                    )
                    yield Reason("edge", number.name, values | {"probability": share}, sentence)

    def _too_few(self, point: Point) -> Iterator[Reason]:
        table = self._table
        useful = int(is_useful(table).sum())
        required = max(FEWEST, 2 * len(table.parameters.numbers) + 2) + len(table.cells)
        if useful < required:
            yield Reason(
                "too few",
                "trials",
                {"trials": useful, "required": required},
                f"{useful} trials are near the best of their scale; at least {required} are required",
            )
        for place, name in enumerate(self.names):
            values = {run.scale[place] for run in table.runs}
            if len(values) == 1 and values != {point.scale[place]}:
                value = next(iter(values))
                yield Reason(
                    "too few",
                    name,
                    {"trials": value, "target": point.scale[place]},
                    f"{name} is {value:g} in all trials and {point.scale[place]:g} at the target; "
                    f"run trials at a second {name}",
                )

    def _disagreements(self) -> Iterator[Reason]:
        found = self.agreement
        if not found.agrees:
            yield Reason(
                "does not carry",
                "ranks",
                {"deviate": found.ranks, "required": AGREE},
                f"the ranks of configs do not agree between scales (deviate {found.ranks:.1f}, "
                f"{AGREE} or more is required)",
            )
        if found.is_worse:
            yield Reason(
                "does not carry",
                "misfit",
                {"law": found.law, "copy": found.copy},
                f"a scale that is left out is predicted worse by the law (misfit {found.law:.3g}) "
                f"than by copying ({found.copy:.3g})",
            )

    def _support(self) -> Reason:
        found = self.agreement
        return Reason(
            "carries",
            "ranks",
            {"deviate": found.ranks, "law": found.law, "copy": found.copy},
            f"the ranks of configs agree between scales (deviate {found.ranks:.1f}); left-out scales are "
            f"predicted with a misfit of {found.law:.3g}, by copying of {found.copy:.3g}",
        )
