"""The core's state of one trial and of one slot."""

from __future__ import annotations

from collections import deque
from collections.abc import Collection, Container, Iterator
from copy import copy
from dataclasses import dataclass, field

from raysweep.core.state.trial_parts import (
    NO_ANCESTRY,
    NOT_CONTINUED,
    Ancestry,
    Attempt,
    Checkpoint,
    Continued,
    Metrics,
    Pace,
    Results,
    Turn,
)
from raysweep.core.vocabulary.failures import FailureKind
from raysweep.core.vocabulary.lifecycle import TrialState
from raysweep.core.vocabulary.stop_reasons import StopReason
from raysweep.space.amounts import USUAL, Needs


@dataclass(slots=True, kw_only=True, eq=False)
class Trial:
    """One trial.

    Attempts are numbered from 1. A number is given when a slot takes the trial, and never again: one that was
    taken back before it began leaves a gap.
    """

    number: int
    """Its number, in the order of suggestion."""
    config: Metrics
    """The config that it runs with."""
    state: TrialState = "pending"
    """Its state in the lifecycle table."""
    attempt: int = 0
    """The number of its present or last attempt; 0: no slot has taken it yet."""
    slot: int | None = None
    """The slot that has it."""
    node: str = ""
    """The node of its present or last attempt; empty for a gang on several."""
    stop_reason: StopReason | None = None
    """The reason why it was asked to end, while it has not."""
    turn: Turn | None = None
    """The scheduler's verdict, carried out once it comes off its slot."""
    attempts: tuple[Attempt, ...] = ()
    """Its attempts that have ended, in order."""
    is_unmade: bool = False
    """True if its config could not be made."""
    checkpoints: tuple[Checkpoint, ...] = ()
    """Its own checkpoints that are kept, in order."""
    started_at: float | None = None
    """The begin of its first attempt, in UTC seconds of the events' time."""
    attempt_started_at: float | None = None
    """The begin of its present attempt."""
    ended_at: float | None = None
    """The time at which it ended for good."""
    due_at: float | None = None
    """The time at which it is handed out again, where it backs off after a failure."""
    results: Results = field(default_factory=Results)
    """Its reports and results."""
    pace: Pace | None = None
    """The pace of its present attempt's reports; only where the sweep plans towards an end."""
    needs: Needs = USUAL
    """Its needs beyond the usual slot."""
    ancestry: Ancestry = NO_ANCESTRY
    """The configs and checkpoint that made it, where that was more than its own config."""
    continued: Continued = NOT_CONTINUED
    """The rules for it where it continued after its end."""

    def thawed(self) -> Trial:
        """A copy that can be changed while the trial itself stays as it is."""
        made = copy(self)
        made.results, made.pace = copy(self.results), copy(self.pace)
        return made

    def count_failures(self, *kinds: FailureKind, but_on: Collection[str] = ()) -> int:
        """The attempts that ended in these classes of failure, without those on the nodes `but_on`."""
        counted = self.attempts[self.continued.pardoned :]
        return sum(attempt.kind in kinds and attempt.node not in but_on for attempt in counted)

    @property
    def is_large(self) -> bool:
        """True if it needs another slot than the usual."""
        return self.needs is not USUAL and self.needs.are_large

    @property
    def checkpoint(self) -> Checkpoint | None:
        """The newest committed checkpoint that the trial can continue from."""
        return self.checkpoints[-1] if self.checkpoints else self.ancestry.origin

    @property
    def borrowed(self) -> Iterator[Checkpoint]:
        """The checkpoints of other trials that it needs."""
        if self.ancestry.origin is not None:
            yield self.ancestry.origin
        if self.turn is not None and self.turn.checkpoint is not None:
            yield self.turn.checkpoint

    @property
    def needed(self) -> Iterator[tuple[int, Checkpoint]]:
        """The checkpoints that must not be deleted for its sake, each with the trial that made it."""
        for checkpoint in (*self.checkpoints, *self.borrowed):
            yield self.number if checkpoint.owner is None else checkpoint.owner, checkpoint

    @property
    def has_gone_on_anew(self) -> bool:
        """True if it continued with another config or checkpoint, and has not reported since."""
        if self.results.last:
            return False
        return self.ancestry.origin is not None or self.ancestry.suggested is not None


@dataclass(slots=True, kw_only=True, eq=False)
class Slot:
    """One worker."""

    number: int
    """Its number, in the order of opening."""
    is_open: bool = False
    """True if its worker is ready."""
    is_hungry: bool = False
    """True if it is in the line of slots that can take another trial."""
    is_leaving: bool = False
    """True if a node of it is no good any more, so that it is closed when its trial has ended."""
    needs: Needs = USUAL
    """The needs beyond the usual that it was opened with."""
    heard_at: float = 0.0
    """The time at which its running trial was last heard of; 0: no trial has begun in it."""
    is_busy: bool = False
    """True if its trial stores or fetches a checkpoint, and cannot report."""
    node: str = ""
    """Its node; the first one of a gang."""
    others: tuple[str, ...] = ()
    """The other nodes of its gang."""
    recalling: tuple[tuple[int, int], ...] = ()
    """The (trial, attempt) pairs that it was asked to give back; some may have begun since."""
    queue: deque[int] = field(default_factory=deque)
    """The trials handed to it, the running one first."""

    @property
    def is_large(self) -> bool:
        """True if it is another than the usual."""
        return self.needs is not USUAL and self.needs.are_large

    def is_on(self, nodes: Container[str]) -> bool:
        """True if some of it is on one of these nodes."""
        return self.node in nodes or (self.others != () and any(node in nodes for node in self.others))


def is_preempted(trial: Trial) -> bool:
    """True if the trial runs until its next checkpoint, and continues from it elsewhere or later."""
    return trial.state == "stopping" and trial.stop_reason == "preempt"


def trial_id(number: int) -> str:
    """The public id of trial `number`: five digits or more, so that names sort."""
    return f"{number:05d}"
