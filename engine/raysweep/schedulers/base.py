"""The interface of a scheduler: reports in, verdicts on trials out, state as plain JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, Literal

from pydantic import JsonValue

from raysweep.documents.mode import Mode
from raysweep.space.parsed import Space, parse

TRAINING_ITERATION: Final = "training_iteration"
"""The time of a scheduler that names no other: the number of a trial's report, counted by the engine."""

Config = Mapping[str, JsonValue]
Move = Literal["stop", "pause", "exploit"]
"""The decisions of a scheduler; one that pauses may also resume, and one that exploits resize."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The trial ends for good: it is not promising."""


@dataclass(frozen=True, slots=True)
class Pause:
    """The trial gives its slot back and keeps its newest checkpoint, from which a later `Resume` continues.

    What it reports past this verdict does not count; it makes those reports again when it is resumed. One
    that has no checkpoint starts over then.
    """


@dataclass(frozen=True, slots=True)
class Resume:
    """A paused trial continues from its newest checkpoint; None: with the config that it has."""

    config: Config | None = None


@dataclass(frozen=True, slots=True)
class Exploit:
    """The trial continues from the newest checkpoint of trial `donor`, with this config.

    It gives up its own checkpoints and results. A donor without a checkpoint changes the config alone: the
    trial continues from its own newest checkpoint. `donor` may be the trial itself.
    """

    donor: int
    config: Config


@dataclass(frozen=True, slots=True)
class Resize:
    """The trial continues from its own newest checkpoint with this config, by which it takes other resources.

    It is the same experiment: its results and checkpoints stay. One that has no checkpoint starts over.
    """

    config: Config


Verdict = Stop | Pause | Resume | Exploit | Resize
Decisions = Sequence[tuple[int, Verdict]]
"""Trials and what becomes of them. A trial that is not named continues."""

NOTHING: Final[Decisions] = ()
STOP: Final = Stop()
PAUSE: Final = Pause()


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicySetup:
    """The facts that a policy is made from, beside its options: no resume of the sweep can change them.

    `mode`: the direction of the metric. `seed`: the sweep's own; all chance is to derive from it. `where`:
    relations that each config satisfies. `modes`: of all metrics, `mode` first.
    """

    mode: Mode
    seed: int
    param_space: Mapping[str, Any]
    where: tuple[str, ...] = ()
    modes: tuple[Mode, ...] = ()

    @property
    def space(self) -> Space:
        """`param_space`, parsed, with `where`: its `sample` and `draw` give what satisfies that."""
        return parse(self.param_space, self.where)


class Scheduler:
    """A pure policy over trial numbers: the base of every scheduler. As it is, each trial runs to its end.

    No method reads a clock, a random generator or the environment: the same calls give the same
    decisions, in this process or after `from_json(to_json())` in another. `value` is the raw metric; its
    direction was given at construction. Decisions may concern any trial, not only the one that reported;
    those on trials that have ended are passed over. A trial that was paused or exploited may report times
    again that it has reported before, as after any restart from a checkpoint.
    """

    time_attr: str = TRAINING_ITERATION
    """The reported value that counts as time."""
    max_t: float | None = None
    """A trial that reports this time has done all its work; None: there is no such time."""
    moves: frozenset[Move] = frozenset()
    """The decisions that it may make. A scheduler without any is never asked."""
    pauses_again: bool = False
    """True if it pauses a trial again whenever that makes the report again at which it was paused.

    So one whose checkpoint of that moment was lost can make it again before others want to continue from it.
    """

    def add(self, trial: int, config: Config) -> None:
        """Make a trial known before its first report. A second `add` changes nothing."""

    def report(self, trial: int, time: float, value: float) -> Decisions:
        """Decide what follows from a report of `value` at `time` (units: time attribute).

        Called for every report: one that changes nothing returns `NOTHING`, at the cost of a comparison.
        """
        return NOTHING

    def report_several(self, trial: int, time: float, values: Sequence[float]) -> Decisions:
        """The same in place of `report` in a sweep of several metrics; `values` in their order."""
        return NOTHING

    def end(self, trial: int, time: float | None, value: float | None) -> Decisions:
        """Take the last report of a trial that has completed into account, and forget the trial.

        None: it never reported.
        """
        return NOTHING

    def end_several(self, trial: int, time: float | None, values: Sequence[float]) -> Decisions:
        """The same in place of `end` in a sweep of several metrics."""
        return self.remove(trial)

    def remove(self, trial: int) -> Decisions:
        """Forget a trial that was stopped, failed or was cancelled; what it recorded stays recorded."""
        return NOTHING

    def idle(self, paused: Sequence[int]) -> Decisions:
        """Decide what becomes of the paused trials, now that nothing else can run.

        Where none of them is resumed, all of them are stopped: no sweep waits for ever.
        """
        return NOTHING

    def to_json(self) -> dict[str, Any]:
        """Return the whole state as JSON types (no NaN or infinity as numbers)."""
        return {}

    def from_json(self, state: dict[str, Any]) -> None:
        """Replace the state by one that `to_json` returned.

        Raises:
            SpecError: the state belongs to a scheduler with other parameters.
        """


def tell_report(
    scheduler: Scheduler, trial: int, time: float, value: float, others: Sequence[float | None]
) -> Decisions:
    """Tell a scheduler of a report, as much of it as it wants to know.

    Args:
        scheduler: who is told.
        trial: the trial's number.
        time: units of the scheduler's time attribute.
        value: of the first metric.
        others: of the metrics after it; empty in a sweep of one. Where one is None there is nothing to tell.
    """
    if not others:
        return scheduler.report(trial, time, value)
    known = [each for each in others if each is not None]
    if len(known) < len(others):
        return NOTHING
    return scheduler.report_several(trial, time, (value, *known))


def tell_end(
    scheduler: Scheduler,
    trial: int,
    time: float | None,
    value: float | None,
    others: Sequence[float | None],
) -> Decisions:
    """Tell a scheduler that a trial has completed; see `tell_report`. Without all values it is removed."""
    if not others:
        return scheduler.end(trial, time, value)
    known = [each for each in (value, *others) if each is not None]
    if len(known) <= len(others):
        return scheduler.remove(trial)
    return scheduler.end_several(trial, time, known)
