"""What the core knows of one trial and of one slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterator
from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

from raysweep.core.state.values import hot_value
from raysweep.core.vocabulary.failures import Failure, FailureKind
from raysweep.core.vocabulary.lifecycle import Cause, ToldEnd, TrialState
from raysweep.core.vocabulary.stop_reasons import StopReason

Metrics = dict[str, JsonValue]
Lineage = tuple[tuple[int, Metrics], ...]
"""Configs, each with the number of reports that lay behind it when it took over (see `lineage`)."""
NO_METRICS: Final[Metrics] = {}


@hot_value
class Attempt:
    """One ended attempt: `end` is the cause in the lifecycle table.

    `config`: what it ran with, where the trial went on with another. `donor`: the trial whose checkpoint this
    one went on from afterwards.
    """

    attempt: int
    started_at: float | None
    ended_at: float
    end: Cause
    node: str = ""
    kind: FailureKind | None = None
    failure: Failure | None = None
    config: Metrics | None = None
    donor: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """A committed checkpoint: `iteration` reports lie behind it, `score` is the last one's metric.

    `owner`: the trial that made it, where another one goes on from it. `rank`: what `keep_best` ranks it by,
    where that is another metric. `is_nth`: `every_n` keeps it.
    """

    number: int
    iteration: int
    uri: str
    score: float | None
    size_bytes: int = 0
    owner: int | None = None
    rank: float | None = None
    is_nth: bool = False


@hot_value
class Told:
    """What the searcher is told of a trial, and how it ended: see `TellSearch`."""

    end: ToldEnd
    value: float | None
    violations: tuple[float, ...] = ()
    others: tuple[float, ...] = ()
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Turn:
    """What a scheduler wants of a trial that is on a slot: it is done when the trial comes off it.

    It goes on with `config` (None: its own), from `checkpoint`, which is one of trial `donor` (None: from its
    own newest). `lineage`: what made that checkpoint; `result`: what was reported with it, if that is known.
    `keeps_results`: its config is another only in what it takes of the cluster.
    """

    reason: Literal["scheduler", "pause", "resume", "exploit"]
    config: Metrics | None = None
    donor: int | None = None
    checkpoint: Checkpoint | None = None
    lineage: Lineage = ()
    keeps_results: bool = False
    result: Metrics = field(default_factory=lambda: NO_METRICS)


@dataclass(slots=True, kw_only=True, eq=False)
class Trial:
    """One trial. `reports` counts all reports, `iteration` those on the way to the present result.

    Attempts are numbered from 1. A number is given when a slot takes the trial, and never again: one that was
    taken back before it began leaves a gap. `memory_bytes`: it ran out of memory, and needs so much; `size`:
    what else its config asks for (`spec.amounts.Size`). `step_s` and `save_s` are the seconds from report to
    report and from checkpoint to checkpoint, last seen in this attempt; kept where the sweep plans towards
    an end.
    The results are those of the present `config`; `suggested` is what the searcher had suggested, where that
    was another. `origin` is another trial's checkpoint, from which this one goes on until it has its own.
    The first `pardoned` attempts do not count any more where failures are counted. `is_unmade`: its config
    could not be made. `max_t`: how far it goes where it is extended; its scheduler has no say any more.
    `saved`: how many checkpoints of it have counted, those that are gone included. `recent` (where
    `stop.trial_plateau` looks) and `improved` (`stop.trial_patience`) are iterations with their values.
    `lineage`: the configs that made it what it is, where there was more than one.
    `inherited`: what was reported with the checkpoint from which it goes on with another config; its result
    where it makes no report of its own.
    `told`: what the searcher was told once and for all, of one that went on after its end.
    """

    number: int
    config: Metrics
    state: TrialState = "pending"
    attempt: int = 0
    slot: int | None = None
    node: str = ""
    stop_reason: StopReason | None = None
    reports: int = 0
    attempt_reports: int = 0
    attempt_iteration: int = 0
    iteration: int = 0
    overrun: int = 0
    last: Metrics = field(default_factory=lambda: NO_METRICS)
    best: Metrics = field(default_factory=lambda: NO_METRICS)
    last_score: float | None = None
    best_score: float | None = None
    checkpoints: tuple[Checkpoint, ...] = ()
    next_checkpoint: int = 0
    attempts: tuple[Attempt, ...] = ()
    started_at: float | None = None
    attempt_started_at: float | None = None
    ended_at: float | None = None
    due_at: float | None = None
    memory_bytes: int | None = None
    size: str = ""
    reported_at: float | None = None
    step_s: float | None = None
    saved_at: float | None = None
    save_s: float | None = None
    turn: Turn | None = None
    origin: Checkpoint | None = None
    suggested: Metrics | None = None
    pardoned: int = 0
    is_unmade: bool = False
    max_t: float | None = None
    saved: int = 0
    recent: tuple[tuple[int, float], ...] = ()
    improved: tuple[int, float] | None = None
    lineage: Lineage = ()
    inherited: Metrics = field(default_factory=lambda: NO_METRICS)
    told: Told | None = None

    def count_failures(self, *kinds: FailureKind, but_on: Collection[str] = ()) -> int:
        """How many attempts ended in these classes of failure, those on the nodes `but_on` left out."""
        counted = self.attempts[self.pardoned :]
        return sum(attempt.kind in kinds and attempt.node not in but_on for attempt in counted)

    @property
    def is_large(self) -> bool:
        """Whether it needs another slot than the usual."""
        return self.memory_bytes is not None or bool(self.size)

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest committed checkpoint that the trial can go on from."""
        return self.checkpoints[-1] if self.checkpoints else self.origin

    @property
    def borrowed(self) -> Iterator[Checkpoint]:
        """The checkpoints of other trials that it needs."""
        if self.origin is not None:
            yield self.origin
        if self.turn is not None and self.turn.checkpoint is not None:
            yield self.turn.checkpoint

    @property
    def needed(self) -> Iterator[tuple[int, Checkpoint]]:
        """The checkpoints that must not be deleted for its sake, each with the trial that made it."""
        for checkpoint in (*self.checkpoints, *self.borrowed):
            yield self.number if checkpoint.owner is None else checkpoint.owner, checkpoint

    @property
    def has_gone_on_anew(self) -> bool:
        """Whether it went on with another config or checkpoint, and has not reported since."""
        return not self.last and (self.origin is not None or self.suggested is not None)


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One worker: `queue` holds the trials handed to it, the running one first.

    `recalling` holds the (trial, attempt) pairs that it was asked to give back; some may have begun since.
    `others`: the nodes of its gang beside `node`. `is_leaving`: a node of it is no good any more, so it is
    closed when its trial has ended. `memory_bytes`, `size`: it was opened for trials that need this.
    `heard_at`: when its running trial was last heard of; `is_busy`: that stores or fetches a checkpoint, and
    cannot report.
    """

    number: int
    is_open: bool = False
    is_hungry: bool = False
    is_leaving: bool = False
    memory_bytes: int | None = None
    size: str = ""
    heard_at: float = 0.0
    is_busy: bool = False
    node: str = ""
    others: tuple[str, ...] = ()
    recalling: tuple[tuple[int, int], ...] = ()
    queue: deque[int] = field(default_factory=deque)

    @property
    def is_large(self) -> bool:
        """Whether it is another than the usual."""
        return self.memory_bytes is not None or bool(self.size)

    def is_on(self, nodes: Container[str]) -> bool:
        """Whether some of it is on one of these nodes."""
        return self.node in nodes or (self.others != () and any(node in nodes for node in self.others))


def trial_id(number: int) -> str:
    """The public id of trial `number`: five digits or more, so that names sort."""
    return f"{number:05d}"
