"""falseyears: a year of nightly gates: how many promotions are false, and how soon a real gain is taken.

Each night a gate compares three candidates with the champion, with three seeds; scores are drawn as in
`falsepos`. From each thirtieth night on, one of the candidates is better by a real gain, until one such is
promoted: then it is the champion. With drift, the level of all configs wanders and jumps once, and each night
moves each config by a little of its own. What decides is the product's own code.

| rule | |
|---|---|
| `each night` | 90 % confidence in each gate |
| `budget` | `false_promotions_per_year: 2` |
| `fixed` | a test of each gate that may be wrong in 2 of 365: the same runs, the same false promotions |
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from statistics import fmean, median
from typing import Any, Final

import numpy as np

from benchmarks.measure import Json, target
from raysweep.numeric.comparison import LEVEL, critical
from raysweep.outcome import Confirmed
from raysweep.outcome.false_promotions import Account
from raysweep.pipeline.duel import decide_within, duel_seeds
from raysweep.specs.pipeline import GateSpec

YEARS: Final = 200
NIGHTS: Final = 365
EVERY: Final = 30
"""Nights from one real gain to the next."""
GAINS: Final = (0.0, 0.5, 1.0, 2.0)
"""In standard deviations of a score's noise; 0: no candidate is ever better."""
PER_YEAR: Final = 2.0
LATER: Final = 3
"""How many nights later a real gain of 1 sd may be taken, at the median."""
GATE: Final = GateSpec(false_promotions_per_year=PER_YEAR)
DAY_S: Final = 86400.0
_WANDERS: Final = 0.3
_JUMPS: Final = 5.0
_OWN: Final = 0.1
"""Of a night with drift: what it adds to each config's scores, in standard deviations of a score's noise."""


@dataclass(slots=True)
class Year:
    """What came of one year of gates."""

    false: int = 0
    waits: list[float] = field(default_factory=list)
    """Nights until a real gain was taken, the first one included; infinite where it was not."""


Rule = Callable[..., list[Year]]


def run(rounds: int, *, years: int = YEARS) -> Json:
    """Once, whatever `rounds` is: each year is drawn from a seed of its own.

    Args:
        rounds: Passed over.
        years: How many, of each kind.
    """
    rules: dict[str, Rule] = {
        "each night": partial(_tested, LEVEL),
        "budget": _all_budgeted,
        "fixed": partial(_tested, PER_YEAR / NIGHTS),
    }
    table = [
        {"rule": name, "gain": gain, "drift": drift, **_row(rule(gain, years, drift=drift))}
        for drift in (False, True)
        for gain in GAINS
        for name, rule in rules.items()
    ]
    return {
        "what": f"{years} years of {NIGHTS} gates: false promotions a year, nights until a gain is taken",
        "table": table,
        "targets": _targets(table),
    }


def _all_budgeted(gain: float, years: int, *, drift: bool) -> list[Year]:
    return [_budgeted(seed, gain, drift=drift) for seed in range(years)]


def _row(found: list[Year]) -> Json:
    waits = [wait for year in found for wait in year.waits]
    taken = [wait for wait in waits if math.isfinite(wait)]
    return {
        "false_a_year": round(sum(year.false for year in found) / len(found), 2),
        "median_nights": median(waits) if waits else None,
        "taken": round(len(taken) / len(waits), 2) if waits else None,
    }


def _targets(table: list[Json]) -> list[Json]:
    found = {(row["rule"], row["gain"], row["drift"]): row for row in table}
    targets = [
        target(
            f"false promotions a year, gain {gain:g} sd, drift {drift}", row["false_a_year"], at_most=PER_YEAR
        )
        for (rule, gain, drift), row in found.items()
        if rule == "budget"
    ]
    for drift in (False, True):
        later = (
            found["budget", 1.0, drift]["median_nights"] - found["each night", 1.0, drift]["median_nights"]
        )
        targets.append(target(f"nights later, gain 1 sd, drift {drift}", later, at_most=LATER))
    return targets


class _World:
    """The true gains of a year, and scores that they give."""

    def __init__(self, draw: Any, gain: float, *, drift: bool) -> None:
        self.draw, self.gain, self.drift = draw, gain, drift
        self.since: int | None = None
        self.night = -1
        self.level = 0.0

    def begin(self) -> list[float]:
        """The next night: the true gains of its candidates over the champion."""
        self.night += 1
        if self.gain and self.night % EVERY == EVERY - 1 and self.since is None:
            self.since = self.night
        if self.drift:
            jump = _JUMPS if self.night == NIGHTS // 2 else 0.0
            self.level += _WANDERS * self.draw.standard_normal() + jump
        gains = [0.0] * GATE.confirm_top_k
        if self.since is not None:
            gains[int(self.draw.integers(len(gains)))] = self.gain
        return gains

    def scores(self, gains: list[float], seeds: int) -> list[list[float]]:
        """By config; the champion comes last."""
        means = np.array([*gains, 0.0]) + self.level
        if self.drift:
            means = means + _OWN * self.draw.standard_normal(len(means))
        seed_levels = 2.0 * self.draw.standard_normal(seeds)
        noise = self.draw.standard_normal((len(means), seeds))
        return (means[:, None] + seed_levels[None, :] + noise).tolist()  # type: ignore[no-any-return]

    def end(self, year: Year, promoted: float | None) -> None:
        """A night that promoted a config with this true gain; None: none."""
        if promoted is None:
            return
        if promoted <= 0:
            year.false += 1
        else:
            year.waits.append(self.night - (self.since or 0) + 1)
            self.since = None


def _tested(level: float, gain: float, years: int, *, drift: bool) -> list[Year]:
    """By a test of each night alone, which needs no memory: all years at once."""
    count, seeds = GATE.confirm_top_k, GATE.seeds
    needed = critical(count, count * (seeds - 1), level)
    draw, rows = np.random.default_rng([int(1000 * level), int(10 * gain), drift]), np.arange(years)
    found, since = [Year() for _ in range(years)], np.full(years, -1)
    for night in range(NIGHTS):
        if gain and night % EVERY == EVERY - 1:
            since = np.where(since < 0, night, since)
        true = np.zeros((years, count + 1))
        true[rows, draw.integers(count, size=years)] = np.where(since >= 0, gain, 0.0)
        means = true + (_OWN * draw.standard_normal(true.shape) if drift else 0.0)
        # Levels of nights and seeds are common to all configs: they cancel.
        scores = means[:, :, None] + draw.standard_normal((*true.shape, seeds))
        passed = _gains(scores, needed)
        best = passed.argmax(axis=1)
        for year in np.flatnonzero(passed[rows, best] > -math.inf):
            if true[year, best[year]] > 0:
                found[year].waits.append(int(night - since[year] + 1))
                since[year] = -1
            else:
                found[year].false += 1
    for each, begun in zip(found, since.tolist(), strict=True):
        _close(each, begun)
    return found


def _gains(scores: Any, needed: float) -> Any:
    """`paired_gains` of many gates: the gain of each candidate that passes, else minus infinity."""
    seeds = scores.shape[2]
    left = scores - scores.mean(axis=2, keepdims=True) - scores.mean(axis=1, keepdims=True)
    left = left + scores.mean(axis=(1, 2), keepdims=True)
    freedom = (scores.shape[1] - 1) * (seeds - 1)
    noise = 2 * (left**2).sum(axis=(1, 2)) / freedom
    differences = scores[:, :-1] - scores[:, -1:]
    gains = differences.mean(axis=2)
    own = differences.var(axis=2, ddof=1)
    error = np.sqrt(np.maximum(noise[:, None], own) / seeds)
    return np.where(gains > needed * error, gains, -np.inf)


def _budgeted(seed: int, gain: float, *, drift: bool) -> Year:
    draw = np.random.default_rng([seed, int(10 * gain), drift])
    year, world = Year(), _World(draw, gain, drift=drift)
    account, champion, true = Account(), ("0", 0.0), 0.0
    for night in range(NIGHTS):
        at, gains = night * DAY_S, world.begin()
        account = account.opened(at, PER_YEAR, champion)
        tested = account.challenger
        ran = gains if tested is None else [true]
        *candidates, theirs = world.scores(ran, GATE.seeds if tested is None else duel_seeds(GATE))
        confirmed = [
            _confirmed(scores, trial_id=str(place), sweep_id=str(night))
            for place, scores in enumerate(candidates)
        ]
        beside = _confirmed(theirs)
        verdict = decide_within(GATE, "max", confirmed, beside, account, tested)
        assert verdict.budget is not None
        account = account.after(verdict.budget, at, champion)
        if verdict.promoted:
            champion = (str(night), at)
        if tested is None and verdict.budget.found is not None:
            true = gains[int(verdict.budget.found.trial_id)]
        world.end(year, true if verdict.promoted else None)
    _close(year, -1 if world.since is None else world.since)
    return year


def _confirmed(scores: list[float], **fields: str) -> Confirmed:
    return Confirmed(config={}, scores=tuple(scores), mean=fmean(scores), n=len(scores), **fields)


def _close(year: Year, since: int) -> None:
    """A gain that was not taken by the end, though there was time."""
    if since >= 0 and NIGHTS - since > EVERY:
        year.waits.append(math.inf)
