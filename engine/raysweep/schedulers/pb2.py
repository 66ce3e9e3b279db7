"""PB2: population based training whose configs are explored by a bandit, a Gaussian process of its progress.

Algorithm: Parker-Holder et al., "Provably Efficient Online Hyperparameter Optimization with Population-Based
Bandits", NeurIPS 2020, arXiv:2002.02518, in the form of `ray.tune.schedulers.pb2.PB2`: who is replaced, by
whom and when, is as with PBT; the process is told how much a score changed in each interval, per unit of
time, with the time, the score before and the config. What differs from Ray's:

- it has the newest 40 changes, Ray's 1,000 at most, and takes results to be noisy;
- the kernel's parameters and the config are the best of some, not the ends of a descent;
- a parameter with a logarithmic domain is scaled so;
- the arithmetic (see `bandit`) and all chance derive from the sweep alone, so a replay agrees.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from raysweep.documents.validation import Problem
from raysweep.schedulers.base import TRAINING_ITERATION, Exploit, PolicySetup, Scheduler
from raysweep.schedulers.machinery.bandit import Row, fit, scaled, standardised, upper_bound
from raysweep.schedulers.options import (
    ComparingOptions,
    RungTimes,
    TimeAttr,
    as_tuple,
)
from raysweep.schedulers.pbt import Member, PbtScheduler, Population
from raysweep.space.domains import Float, Integer
from raysweep.space.expressions import all_hold
from raysweep.space.parsed import parse_where
from raysweep.space.perturbation import (
    BoundedLeaf,
    bounded_leaves,
    value_at,
    with_values,
)
from raysweep.space.units import from_unit, to_unit, within

MOST_CHANGES: Final = 40
"""The most changes of scores that make the process, as its cost is their cube."""
CANDIDATES: Final = 64
"""The number of places that are drawn anywhere, and then as many near the best of them."""
NEAR: Final = 0.1


@dataclass(frozen=True, slots=True)
class Change:
    """The change of a score in an interval: `rate`, per unit of time, from `before` to time `time`."""

    trial: int
    time: float
    before: float
    rate: float
    places: tuple[float, ...]


class Pb2Options(ComparingOptions):
    """Population based bandits (Parker-Holder et al., 2020): PBT with a Gaussian process that explores."""

    is_population = True

    perturbation_interval: float = Field(default=5, gt=0)
    """Every so much time a trial is compared with the others; it needs a checkpoint there."""
    hyperparam_bounds: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    """The parameters that are explored, by their dotted names; default: all numbers within bounds."""
    quantile_fraction: float = Field(default=0.25, ge=0, le=0.5)
    """This part of the population, the worst, continues from trials of the same part, the best."""
    synch: bool = False
    """Let all trials wait for each other at each interval, paused; then they need no slot each."""
    max_t: Annotated[int, Field(ge=1)] | None = None
    """The most time that a trial gets; default: until its own code ends."""
    time_attr: TimeAttr = "training_iteration"
    """The reported value that is the time; `training_iteration` counts the reports."""

    @property
    def can_wait(self) -> bool:
        """See `synch`."""
        return self.synch

    def rung_times(self) -> RungTimes:
        """It decides at each interval."""
        return RungTimes(attr=self.time_attr, interval=self.perturbation_interval, max_t=self.max_t)

    def check_space(self, space: Mapping[str, Any]) -> None:
        """See that the parameters to explore are there. Raises Problem."""
        _check_bounded(space, self.hyperparam_bounds)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        population = Population(
            perturbation_interval=self.perturbation_interval,
            quantile_fraction=self.quantile_fraction,
            synch=self.synch,
            where=parse_where(setup.where, setup.param_space),
        )
        return Pb2Scheduler(
            mode=setup.mode,
            population=population,
            leaves=bounded_leaves(setup.param_space, self.hyperparam_bounds),
            max_t=self.max_t,
            seed=setup.seed,
            time_attr=self.time_attr,
        )


def _check_bounded(space: Mapping[str, Any], names: tuple[str, ...] | None) -> None:
    try:
        leaves = bounded_leaves(space, names)
    except KeyError as error:
        raise Problem(
            f"{error.args[0]!r} is not a number within bounds that every config has",
            "name one by its dotted path, or leave it out: all are explored",
            ("scheduler", "pb2", "hyperparam_bounds"),
        ) from None
    if not leaves:
        raise Problem(
            "pb2 has nothing to explore in it: it explores numbers within bounds",
            'give a domain, as {"lr": {"uniform": [0, 1]}}, or use pbt',
            ("param_space",),
        )


class Pb2Scheduler(PbtScheduler):
    """Population based bandits over trial numbers (Parker-Holder et al. 2020, arXiv:2002.02518).

    Args: as `PbtScheduler`, and
        leaves: the parameters that are explored, in this order.
    """

    kind: ClassVar[str] = "pb2"

    __slots__ = ("_changes", "_explored_at", "_leaves", "_pending", "_starts")

    def __init__(
        self,
        *,
        mode: Literal["min", "max"],
        population: Population,
        leaves: Sequence[BoundedLeaf],
        max_t: float | None = None,
        seed: int = 0,
        time_attr: str = TRAINING_ITERATION,
    ) -> None:
        super().__init__(mode=mode, population=population, max_t=max_t, seed=seed, time_attr=time_attr)
        self._leaves = tuple(leaves)
        self._changes: list[Change] = []
        # Of each trial: the time and the score from which its next change is counted, and its places then.
        self._starts: dict[int, tuple[float, float, tuple[float, ...]]] = {}
        # What was explored since the newest time at which anything was known: it runs.
        self._pending: list[tuple[float, ...]] = []
        self._explored_at = 0.0

    def to_json(self) -> dict[str, Any]:
        """Return parameters, members, and what the process is told."""
        return super().to_json() | {
            "changes": [[c.trial, c.time, c.before, c.rate, list(c.places)] for c in self._changes],
            "starts": [[trial, time, score, list(at)] for trial, (time, score, at) in self._starts.items()],
            "pending": [list(each) for each in self._pending],
            "explored_at": self._explored_at,
        }

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned for the same parameters.

        Raises:
            SpecError: the parameters differ.
        """
        super().from_json(state)
        self._changes = [
            Change(trial, time, before, rate, tuple(places))
            for trial, time, before, rate, places in state["changes"]
        ]
        self._starts = {trial: (time, score, tuple(at)) for trial, time, score, at in state["starts"]}
        self._pending = [tuple(each) for each in state["pending"]]
        self._explored_at = state["explored_at"]

    def _note(self, trial: int, member: Member) -> None:
        places = self._places(member.config)
        if places is None or member.score is None:
            return
        score = _sound(member.score)
        time, before, at = self._starts.get(trial, (member.time, score, places))
        if at == places and time < member.time:
            rate = _sound((score - before) / (member.time - time))
            self._changes = [*self._changes, Change(trial, member.time, before, rate, places)][-MOST_CHANGES:]
        if at != places or time <= member.time:
            self._starts[trial] = member.time, score, places

    def _exploit(self, trial: int, upper: Sequence[int]) -> Exploit:
        verdict = super()._exploit(trial, upper)
        start, places = self._starts.get(verdict.donor), self._places(verdict.config)
        if places is not None and start is not None:
            self._starts[trial] = start[0], start[1], places
        return verdict

    def _explored(self, donor: int, trial: int, replaced: int) -> dict[str, Any]:
        """The donor's config with the values that the bound prefers; as it is, where nothing is known."""
        config = dict(self._members[donor].config)
        newest = max((start[0] for start in self._starts.values()), default=0.0)
        if newest > self._explored_at:
            self._explored_at, self._pending = newest, []
        known = [change for change in self._changes if change.trial == donor]
        if known and self._places(config) is not None:
            config = self._preferred(config, max(known, key=lambda change: change.time), trial, replaced)
        self._pending += filter(None, [self._places(config)])
        return config

    def _preferred(self, config: dict[str, Any], at: Change, trial: int, replaced: int) -> dict[str, Any]:
        changes = sorted(self._changes, key=lambda change: change.time)
        times, befores = [each.time for each in changes], [each.before for each in changes]
        fixed = scaled(at.time, times), scaled(at.before, befores)
        rows: list[Row] = [
            (scaled(each.time, times), scaled(each.before, befores), *each.places) for each in changes
        ]
        process = fit(rows, standardised([each.rate for each in changes]))
        process = process.with_pending([(*fixed, *places) for places in self._pending])

        def bounded(places: tuple[float, ...]) -> tuple[float, tuple[float, ...]]:
            return upper_bound(*process.at((*fixed, *places)), len(rows)), places

        anywhere = [bounded(places) for places in self._drawn(trial, replaced, "any")]
        best = max(anywhere)[1]
        near = [bounded(_near(best, each)) for each in self._drawn(trial, replaced, "near")]
        for _, places in sorted([*anywhere, *near], reverse=True):
            found = with_values(config, self._values(places))
            if all_hold(self._population.where, found):
                return found
        return config

    def _drawn(self, trial: int, replaced: int, what: str) -> Iterator[tuple[float, ...]]:
        """Places from 0 to 1, with so few digits that no rounding error of a machine matters."""
        for number in range(CANDIDATES):
            yield tuple(
                self._chance(trial, replaced, f"{what}{number}.{place}") % 10**6 / 10**6
                for place in range(len(self._leaves))
            )

    def _values(self, places: Row) -> dict[tuple[str, ...], Any]:
        return {
            path: _plain(domain, from_unit(domain, min(place, 1 - 1e-9)))
            for (path, domain), place in zip(self._leaves, places, strict=True)
        }

    def _places(self, config: Any) -> tuple[float, ...] | None:
        """The places of a config's explored values in their domains, from 0 to 1; None: it lacks one."""
        try:
            places = [to_unit(domain, value_at(config, path)) for path, domain in self._leaves]
        except (LookupError, TypeError, ValueError):
            return None
        return tuple(round(min(max(place, 0.0), 1.0), 6) for place in places)


def _near(places: Row, drawn: Row) -> tuple[float, ...]:
    """Places that are no further than `NEAR` from others, by what was drawn from 0 to 1."""
    moved = (at + NEAR * (2 * by - 1) for at, by in zip(places, drawn, strict=True))
    return tuple(min(max(place, 0.0), 1.0) for place in moved)


def _sound(number: float) -> float:
    """A number whose square is one, too."""
    return min(max(number, -1e150), 1e150)


def _plain(domain: Float | Integer, value: Any) -> Any:
    if isinstance(domain, Integer):
        return value
    return within(domain, float(f"{value:.6g}"))
