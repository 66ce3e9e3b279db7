"""The parts of a trial (`trial.Trial`), and the values that it is made of."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from raysweep.core.state.values import hot_value
from raysweep.core.vocabulary.failures import Failure, FailureKind
from raysweep.core.vocabulary.lifecycle import Cause, ToldEnd

Metrics = dict[str, JsonValue]
Lineage = tuple[tuple[int, Metrics], ...]
"""Configs, each with the number of reports that lay behind it when it took over (see `lineage`)."""
NO_METRICS: Final[Metrics] = {}


# -- values: replaced as a whole ----------------------------------------------------------------------------


@hot_value
class Attempt:
    """One attempt that has ended."""

    attempt: int
    """Its number, counted from 1."""
    started_at: float | None
    """The time at which its user code began; None: it never did."""
    ended_at: float
    """The time at which it ended."""
    end: Cause
    """The cause of its end in the lifecycle table."""
    node: str = ""
    """The node that it ran on."""
    kind: FailureKind | None = None
    """The class of its failure."""
    failure: Failure | None = None
    """Its failure."""
    config: Metrics | None = None
    """The config that it ran with, where the trial continued with another."""
    donor: int | None = None
    """The trial whose checkpoint this one continued from afterwards."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint."""

    number: int
    """Its number in the trial that made it."""
    iteration: int
    """The number of reports before it."""
    uri: str
    """The address at which it is stored."""
    score: float | None
    """The metric in the last report before it."""
    size_bytes: int = 0
    """Its size."""
    owner: int | None = None
    """The trial that made it, where another one resumes from it."""
    rank: float | None = None
    """The value that `keep_best` ranks it by, where that is not the metric."""
    is_nth: bool = False
    """True if `every_n` keeps it."""


@hot_value
class Told:
    """The facts about a trial that the searcher receives (`TellSearch`)."""

    end: ToldEnd
    """The end of the trial."""
    value: float | None
    """Its score; None: it has none that is true of its config."""
    violations: tuple[float, ...] = ()
    """Its distance from satisfying each constraint."""
    others: tuple[float, ...] = ()
    """Its values of the metrics after the first."""
    cost: float | None = None
    """Its cost, in the unit of the search."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """A scheduler's verdict on a trial that is on a slot: carried out when the trial comes off the slot."""

    reason: Literal["scheduler", "pause", "resume", "exploit"]
    """The reason why the trial comes off its slot."""
    config: Metrics | None = None
    """The config to continue with; None: its own."""
    donor: int | None = None
    """The trial whose checkpoint it resumes from; None: its own newest."""
    checkpoint: Checkpoint | None = None
    """That checkpoint."""
    lineage: Lineage = ()
    """The configs that made that checkpoint."""
    keeps_results: bool = False
    """True if the new config differs only in the resources that it takes."""
    result: Metrics = field(default_factory=lambda: NO_METRICS)
    """The report that was made with that checkpoint; empty: not known."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ancestry:
    """The origin of a trial that continued with another config, or from another trial's checkpoint."""

    suggested: Metrics | None = None
    """The config that the searcher had suggested, where the present one is another."""
    lineage: Lineage = ()
    """The configs that made the trial what it is, where there was more than one."""
    origin: Checkpoint | None = None
    """Another trial's checkpoint, from which this one resumes until it has its own."""
    inherited: Metrics = field(default_factory=lambda: NO_METRICS)
    """The report of the checkpoint that it continued from: its result until it reports itself."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Continued:
    """The rules for a trial that continued after its end: retried, or extended."""

    pardoned: int = 0
    """The number of its first attempts that do not count any more where failures are counted."""
    max_t: float | None = None
    """The time to which it goes where it is extended; its scheduler then decides nothing about it."""
    told: Told | None = None
    """The facts that the searcher received of its end, once and for all."""


NO_ANCESTRY: Final = Ancestry()
NOT_CONTINUED: Final = Continued()


# -- parts: changed in place, copied by `Trial.thawed` ------------------------------------------------------


@dataclass(slots=True, kw_only=True, eq=False)
class Results:
    """The reports and checkpoints of a trial; the values are those of its present config."""

    reports: int = 0
    """The number of reports that it has made in all."""
    attempt_reports: int = 0
    """The number of reports that its present attempt has made."""
    iteration: int = 0
    """The number of reports on the way to its present result."""
    attempt_iteration: int = 0
    """The number of these before the checkpoint that its attempt continued from."""
    overrun: int = 0
    """The number of reports after it was to end, which count for nothing."""
    next_checkpoint: int = 0
    """The number from which its present attempt numbers its next checkpoint."""
    saved: int = 0
    """The number of checkpoints of it that have counted, those that are gone included."""
    last: Metrics = field(default_factory=lambda: NO_METRICS)
    """Its last report."""
    best: Metrics = field(default_factory=lambda: NO_METRICS)
    """Its best report."""
    last_score: float | None = None
    """The metric as it reported it last."""
    best_score: float | None = None
    """The metric in its best report."""
    recent: tuple[tuple[int, float], ...] = ()
    """Iteration and value of its newest reports, for `stop.trial_plateau`."""
    improved: tuple[int, float] | None = None
    """Iteration and value of its last improvement, for `stop.trial_patience`."""


@dataclass(slots=True, kw_only=True, eq=False)
class Pace:
    """The pace of a trial's present attempt, where the sweep plans towards an end."""

    reported_at: float | None = None
    """The time of its last report."""
    step_s: float | None = None
    """Seconds from report to report."""
    saved_at: float | None = None
    """The time of its last checkpoint."""
    save_s: float | None = None
    """Seconds from checkpoint to checkpoint."""
