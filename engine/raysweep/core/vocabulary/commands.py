"""Commands: the only output of the core. The shell carries them out and decides nothing.

| command | answered by exactly one |
|---|---|
| `OpenSlot` | `SlotOpened` or `SlotFailed`, perhaps after a `SlotDelayed` |
| `CloseSlot` | nothing: the core has forgotten the slot |
| `SuggestConfigs` | `ConfigsSuggested` |
| `TellSearch`, `TellRung` | nothing: they cannot change the state |
| `AnswerReport`, `DeleteCheckpoint`, `ExcludeNode` | nothing: as well |
| `StartTrial` | `TrialStarted`, then `TrialReturned`, `TrialStopped` or `TrialFailed`; or recalled, or lost |
| `StopTrial` | the trial's end, within `grace_s`, by force if need be |
| `RecallTrials` | `TrialsRecalled` |
| `SetTimer` | `TimerFired`; a later `SetTimer` replaces it |
| `EndSweep` | `SweepEnded` |
| `LeaveSweep` | nothing: the controller flushes the journal and goes |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from pydantic import JsonValue

from raysweep.core.state.values import hot_value
from raysweep.core.vocabulary.lifecycle import ToldEnd
from raysweep.core.vocabulary.stop_reasons import StopReason
from raysweep.space.amounts import USUAL, Needs

SweepStatus = Literal["completed", "deadline", "budget", "target", "plateau", "cancelled", "failed"]


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenSlot:
    """Start a worker in a placement group of the shape that trials with these needs have.

    The shell says why it has no place after `failure.placement_timeout_s`, and gives a worker up that has not
    loaded the trainable after `failure.start_timeout_s` in its place.
    """

    slot: int
    needs: Needs = USUAL


@dataclass(frozen=True, slots=True, kw_only=True)
class CloseSlot:
    """End a worker that is not needed any more, and give its placement group back."""

    slot: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ExcludeNode:
    """Place nothing more on this node."""

    node: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SuggestConfigs:
    """Ask the searcher for the configs of trials `first` … `first + count - 1`."""

    first: int
    count: int


@hot_value
class TellSearch:
    """Tell the searcher how a trial ended, or paused; `value` is its score, None where it has none.

    `violations`: how far it is from satisfying each constraint (0 or less: it does). `others`: its values of
    the metrics after the first. One of which any of these cannot be told has no value either. `cost`: what it
    took, where the search wants to know; None: that is not known. `end`: `infeasible` of a trial that
    failed by its config.
    """

    trial: int
    value: float | None
    end: ToldEnd
    violations: tuple[float, ...] = ()
    others: tuple[float, ...] = ()
    cost: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TellRung:
    """Tell the searcher what a trial had reached (`value`) when its scheduler compared it, at `time`."""

    trial: int
    time: float
    value: float


@hot_value
class StartTrial:
    """Hand a trial to a slot; it runs when those handed over before it have ended.

    `checkpoint` is the URI to resume from; `iteration` the number of reports that lie behind that checkpoint;
    `next_checkpoint` the number its next checkpoint gets. `has_older`: where `checkpoint` is damaged, it can
    resume from the one before. `saved`: how many of its checkpoints have counted, where they are evaluated.
    """

    slot: int
    trial: int
    attempt: int
    config: dict[str, JsonValue]
    seed: int
    checkpoint: str | None = None
    iteration: int = 0
    next_checkpoint: int = 0
    has_older: bool = False
    saved: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class StopTrial:
    """Make a running trial end: at its next report, by interruption after `grace_s`, then by killing it.

    `wants_checkpoint`: it continues until it has reported a checkpoint, and ends there. A second command for
    the same attempt replaces the first.
    """

    slot: int
    trial: int
    attempt: int
    reason: StopReason
    grace_s: float
    wants_checkpoint: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class RecallTrials:
    """Take trials that have not begun back from a slot's queue."""

    slot: int
    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerReport:
    """A trial waits for this: its report `report` is journaled, and it may continue.

    A stop is a command of its own, and comes first.
    """

    slot: int
    trial: int
    attempt: int
    report: int


@dataclass(frozen=True, slots=True, kw_only=True)
class DeleteCheckpoint:
    """No state needs this checkpoint any more: delete it once the journal has that durably."""

    trial: int
    number: int
    uri: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SetTimer:
    """Send `TimerFired` at `at` (Unix seconds); None: no timer."""

    at: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class EndSweep:
    """The sweep is over: take everything off the cluster, then say `SweepEnded`."""

    status: SweepStatus
    why: str


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaveSweep:
    """The controller was interrupted and nothing runs any more: flush and go."""

    why: str


Command = (
    OpenSlot
    | CloseSlot
    | ExcludeNode
    | SuggestConfigs
    | TellSearch
    | TellRung
    | StartTrial
    | StopTrial
    | RecallTrials
    | AnswerReport
    | DeleteCheckpoint
    | SetTimer
    | EndSweep
    | LeaveSweep
)
