"""Population based training: bad trials continue from good ones' checkpoints, with their configs explored.

Algorithm: Jaderberg et al., "Population Based Training of Neural Networks", 2017, arXiv:1711.09846, in
the form of `ray.tune.schedulers.PopulationBasedTraining`: the same quantiles, the same donors to choose
from, the same way to explore. What differs:

- all chance derives from the sweep's seed, the trial and how often it was replaced, so a replay agrees;
- `synch` decides once all are paused, when each donor's checkpoint is stored; there need not be a slot
  for each trial;
- a donor's checkpoint is kept by the engine until its taker has one of its own;
- explored values stay in their domains.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from math import ceil, floor
from typing import Annotated, Any, ClassVar, Final, Literal

from pydantic import BeforeValidator, Field

from raysweep.documents.validation import Problem
from raysweep.schedulers.base import (
    NOTHING,
    PAUSE,
    TRAINING_ITERATION,
    Config,
    Decisions,
    Exploit,
    Move,
    PolicySetup,
    Resume,
    Scheduler,
)
from raysweep.schedulers.machinery.saved import check_parameters
from raysweep.schedulers.options import (
    ComparingOptions,
    RungTimes,
    TimeAttr,
    as_tuple,
)
from raysweep.space.expressions import Relation, all_hold
from raysweep.space.parsed import parse_where
from raysweep.space.perturbation import Leaf, explore, mutable_leaves

EXPLORATIONS: Final = 100
"""The number of explored configs that are tried to find one that satisfies `where`."""


@dataclass(slots=True)
class Member:
    """One trial of the population: its present config, its last score (larger is better), and when.

    `since`: the time from which its next interval is counted. `replaced`: how often it took another's place.
    """

    config: dict[str, Any]
    score: float | None = None
    time: float = 0.0
    since: float = 0.0
    replaced: int = 0
    is_live: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Population:
    """The rules of a population; see `PbtOptions` of the spec, which has the defaults."""

    perturbation_interval: float
    burn_in_period: float = 0.0
    quantile_fraction: float = 0.25
    resample_probability: float = 0.25
    perturbation_factors: tuple[float, ...] = (1.2, 0.8)
    synch: bool = False
    leaves: tuple[Leaf, ...] = ()
    where: tuple[Relation, ...] = ()

    def to_json(self) -> dict[str, Any]:
        """All but leaves and relations, which follow from the spec."""
        names = (
            "perturbation_interval",
            "burn_in_period",
            "quantile_fraction",
            "resample_probability",
            "synch",
        )
        return {name: getattr(self, name) for name in names} | {
            "perturbation_factors": list(self.perturbation_factors)
        }


class PbtOptions(ComparingOptions):
    """Population based training (Jaderberg et al., 2017): all trials are the population."""

    is_population = True

    perturbation_interval: float = Field(default=5, gt=0)
    """Every so much time a trial is compared with the others; it needs a checkpoint there."""
    burn_in_period: float = Field(default=0, ge=0)
    """The time before which no trial is replaced."""
    hyperparam_mutations: Annotated[tuple[str, ...] | None, BeforeValidator(as_tuple)] = None
    """The parameters that are explored, by their dotted names; default: all that have a domain."""
    quantile_fraction: float = Field(default=0.25, ge=0, le=0.5)
    """This part of the population, the worst, continues from trials of the same part, the best."""
    resample_probability: float = Field(default=0.25, ge=0, le=1)
    """The probability that a parameter is drawn anew; else it is perturbed."""
    perturbation_factors: Annotated[
        tuple[Annotated[float, Field(gt=0)], ...], BeforeValidator(as_tuple), Field(min_length=1)
    ] = (1.2, 0.8)
    """The factors: a perturbed number is multiplied by one of them. A choice moves to a neighbour."""
    synch: bool = False
    """Let all trials wait for each other at each interval, paused; then they need no slot each.

    Set `max_t` too: a trial whose code does not restore its step restarts after each pause, and never ends.
    """
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
        _check_explored(space, self.hyperparam_mutations)

    def make(self, setup: PolicySetup) -> Scheduler:
        """The scheduler, without any trial."""
        population = Population(
            perturbation_interval=self.perturbation_interval,
            burn_in_period=self.burn_in_period,
            quantile_fraction=self.quantile_fraction,
            resample_probability=self.resample_probability,
            perturbation_factors=self.perturbation_factors,
            synch=self.synch,
            leaves=mutable_leaves(setup.param_space, self.hyperparam_mutations),
            where=parse_where(setup.where, setup.param_space),
        )
        return PbtScheduler(
            mode=setup.mode,
            population=population,
            max_t=self.max_t,
            seed=setup.seed,
            time_attr=self.time_attr,
        )


def _check_explored(space: Mapping[str, Any], names: tuple[str, ...] | None) -> None:
    try:
        leaves = mutable_leaves(space, names)
    except KeyError as error:
        raise Problem(
            f"{error.args[0]!r} is not a parameter with a domain in param_space",
            "name one by its dotted path, or leave it out: all are explored",
            ("scheduler", "pbt", "hyperparam_mutations"),
        ) from None
    if not leaves:
        raise Problem(
            "pbt has nothing to explore in it",
            'give a domain, as {"lr": {"uniform": [0, 1]}}',
            ("param_space",),
        )


class PbtScheduler(Scheduler):
    """Population based training over trial numbers (Jaderberg et al. 2017, arXiv:1711.09846).

    Args:
        mode: "min" or "max": the direction of the reported values.
        population: how it is trained.
        max_t: a trial that reports this time has completed; None: where its own code ends it.
        seed: decides, with the trial and how often it was replaced, whom it follows and what it explores.
        time_attr: the reported value that counts as time.
    """

    kind: ClassVar[str] = "pbt"
    pauses_again = True

    __slots__ = (
        "_members",
        "_parameters",
        "_population",
        "_ranked",
        "_seed",
        "_sign",
        "max_t",
        "moves",
        "time_attr",
    )

    def __init__(
        self,
        *,
        mode: Literal["min", "max"],
        population: Population,
        max_t: float | None = None,
        seed: int = 0,
        time_attr: str = TRAINING_ITERATION,
    ) -> None:
        self._parameters: dict[str, Any] = {"mode": mode, "max_t": max_t, "seed": seed} | population.to_json()
        self._population = population
        self._seed = seed
        self._sign = 1.0 if mode == "max" else -1.0
        self._members: dict[int, Member] = {}
        self._ranked: list[tuple[float, int]] = []
        """Score and number of the live trials that have a score, the worst first."""
        self.time_attr = time_attr
        self.max_t: float | None = None if max_t is None else float(max_t)
        self.moves: frozenset[Move] = frozenset({"pause", "exploit"} if population.synch else {"exploit"})

    def add(self, trial: int, config: Config) -> None:
        """Make a trial one of the population. One that was here before keeps its score."""
        member = self._members.get(trial)
        if member is None:
            self._members[trial] = Member(config=dict(config))
        elif not member.is_live:
            member.is_live, member.config = True, dict(config)
            self._rank(trial, member)

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide on one report: at the end of an interval, a trial of the lower quantile is replaced.

        With `synch` every trial is paused there, until `idle`.
        """
        population = self._population
        member = self._members.get(trial)
        if member is None:
            self.add(trial, {})
            member = self._members[trial]
        is_within = time < population.burn_in_period or time - member.since < population.perturbation_interval
        if is_within or (self.max_t is not None and time >= self.max_t):
            return NOTHING
        self._unrank(trial, member)
        member.score, member.time = float(value) * self._sign, time
        self._rank(trial, member)
        self._note(trial, member)
        if population.synch:
            return ((trial, PAUSE),)
        member.since = time
        place = bisect_left(self._ranked, (member.score, trial))
        if not member.is_live or place >= self._quantile_size():
            return NOTHING
        return ((trial, self._exploit(trial, self.quantiles()[1])),)

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Take a trial that has completed out of the population: it is no donor any more."""
        return self.remove(trial)

    def remove(self, trial: int) -> Decisions:
        """Take a trial out of the population."""
        member = self._members.get(trial)
        if member is not None:
            self._unrank(trial, member)
            member.is_live = False
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """All wait (`synch`): those of the lower quantile are replaced, and all continue."""
        lower, upper = self.quantiles()
        for trial in paused:
            if trial in self._members:
                self._members[trial].since = self._members[trial].time
        return tuple(
            (trial, self._exploit(trial, upper) if trial in lower else Resume()) for trial in sorted(paused)
        )

    def quantiles(self) -> tuple[list[int], list[int]]:
        """The live trials of the lower and of the upper quantile, each the worst first."""
        ranked, count = self._ranked, self._quantile_size()
        upper = ranked[len(ranked) - count :]
        return [trial for _, trial in ranked[:count]], [trial for _, trial in upper]

    def _quantile_size(self) -> int:
        live = len(self._ranked)
        count = ceil(live * self._population.quantile_fraction)
        return floor(live / 2) if count > live / 2 else count

    def _rank(self, trial: int, member: Member) -> None:
        if member.is_live and member.score is not None:
            insort(self._ranked, (member.score, trial))

    def _unrank(self, trial: int, member: Member) -> None:
        if member.is_live and member.score is not None:
            del self._ranked[bisect_left(self._ranked, (member.score, trial))]

    def to_json(self) -> dict[str, Any]:
        """Return parameters and members."""
        members = [
            [trial, dict(each.config), each.score, each.time, each.since, each.replaced, each.is_live]
            for trial, each in self._members.items()
        ]
        return {"parameters": dict(self._parameters), "members": members}

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned for the same parameters.

        Raises:
            SpecError: the parameters differ.
        """
        check_parameters(self.kind, state["parameters"], self._parameters)
        self._members = {
            trial: Member(
                config=dict(config), score=score, time=time, since=since, replaced=replaced, is_live=is_live
            )
            for trial, config, score, time, since, replaced, is_live in state["members"]
        }
        self._ranked = sorted(
            (each.score, trial)
            for trial, each in self._members.items()
            if each.is_live and each.score is not None
        )

    def _exploit(self, trial: int, upper: Sequence[int]) -> Exploit:
        member = self._members[trial]
        donor = upper[self._chance(trial, member.replaced, "donor") % len(upper)]
        source = self._members[donor]
        member.config = self._explored(donor, trial, member.replaced)
        member.replaced += 1
        member.since, member.time = source.since, source.time
        return Exploit(donor=donor, config=dict(member.config))

    def _note(self, trial: int, member: Member) -> None:
        """Take note of a score that a trial is compared by."""

    def _explored(self, donor: int, trial: int, replaced: int) -> dict[str, Any]:
        """The donor's config explored; as it is, where nothing found that way satisfies `where`."""
        population, config = self._population, self._members[donor].config
        for attempt in range(EXPLORATIONS if population.where else 1):
            found = explore(
                config,
                population.leaves,
                self._chance(trial, replaced, f"config{attempt or ''}"),
                resample_probability=population.resample_probability,
                factors=population.perturbation_factors,
            )
            if all_hold(population.where, found):
                return found
        return dict(config)

    def _chance(self, trial: int, replaced: int, what: str) -> int:
        digest = blake2b(
            f"{self.kind}:{self._seed}:{trial}:{replaced}:{what}".encode(), digest_size=8
        ).digest()
        return int.from_bytes(digest, "big")
