"""The events that callbacks receive: one class for each hook. Plain values, the same in every delivery.

`id` orders the events of a sweep, and is the same when an event is delivered a second time. `at` is when it
happened, in Unix seconds.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Final, Literal

from pydantic import JsonValue

Values = dict[str, JsonValue]
EndState = Literal["completed", "stopped", "failed", "cancelled"]
NoticeKind = Literal["stalled", "deadline"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """The fields of all events."""

    id: str
    """`<record of the journal>.<number in it>`, with leading zeros: sorts as the events happened."""
    at: float
    """The time of the event, in Unix seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepStart(Event):
    """The sweep begins. `on_sweep_start` is called once, however often the sweep is resumed."""

    sweep_id: str
    name: str
    uri: str
    """The sweep's folder."""
    metric: str
    """Empty: nothing is ranked."""
    mode: str
    num_samples: int | None
    tags: dict[str, str]
    spec: Values
    """The spec as it is stored, without secrets."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialRef(Event):
    """The fields of all events of a trial."""

    trial_id: str
    number: int
    attempt: int
    """Counted from 1; 0: no attempt has begun."""
    config: Values


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStart(TrialRef):
    """An attempt of a trial begins: a trial that is retried or resumed has several."""

    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Report(TrialRef):
    """A trial has reported."""

    iteration: int
    """Reports on the way to this one, from 1; after a retry, counted on from the checkpoint."""
    metrics: Values
    """Non-finite numbers are the texts `NaN`, `Infinity` and `-Infinity`."""
    counts: bool = True
    """False: it came after the trial was stopped, and counts for nothing."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointSaved(TrialRef):
    """A trial has a new checkpoint."""

    checkpoint: int
    """Its number."""
    iteration: int
    """The number of reports before it."""
    uri: str
    size_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialEnd(TrialRef):
    """A trial has ended."""

    state: EndState
    score: float | None
    """Its value of the sweep's metric."""
    metrics: Values
    """Its last report that counts."""
    reports: int
    """Its reports that count, over all attempts."""
    started_at: float | None
    failed: int = 0
    """The number of the sweep's trials that have failed up to now."""
    error: str = ""
    """Of one that failed: class and message, in one line."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnd(Event):
    """The sweep has ended. Called again where an ended sweep was continued, and ends once more."""

    sweep_id: str
    name: str
    uri: str
    status: str
    why: str
    """One sentence: how many trials, why it ended, what the best is."""
    counts: dict[str, int]
    """Trials by state."""
    best_trial: str | None
    best_score: float | None
    best_config: Values = field(default_factory=dict)


@dataclass(frozen=True, slots=True, kw_only=True)
class Notice(Event):
    """A fact that a person should know before the sweep ends."""

    kind: NoticeKind
    """`stalled`: nothing can run at present. `deadline`: at this pace the deadline cuts the sweep."""
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Promoted(Event):
    """A gate has promoted a config. It comes from the process that decided, and not from the journal."""

    why: str
    """One sentence: by how much it is better, and than what."""


HOOKS: Final[dict[type[Event], str]] = {
    SweepStart: "on_sweep_start",
    TrialStart: "on_trial_start",
    Report: "on_report",
    CheckpointSaved: "on_checkpoint",
    TrialEnd: "on_trial_end",
    SweepEnd: "on_sweep_end",
    Notice: "on_notice",
}
"""The method of a callback that an event is given to."""
