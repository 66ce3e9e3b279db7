"""The parts of a sweep's state (`sweep.SweepState`), one for each subject.

Each part is plain data. All but `Work` are stored: `SweepState.to_json` writes the fields as they are here.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import Annotated, Literal

from pydantic import JsonValue, PlainValidator

from raysweep.core.state.index import Line
from raysweep.core.state.trial_parts import Metrics, Told
from raysweep.core.vocabulary.commands import SweepStatus
from raysweep.schedulers import Verdict

Fault = Literal["user", "infrastructure", "spec"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Note:
    """A line for the user."""

    text: str
    """The line without the rest of these."""
    trial: int | None = None
    """The trial that it is about, unless the text names it."""
    count: int = 0
    """The number of times that it was so; 0: that is not counted."""

    def __str__(self) -> str:
        head = "" if self.trial is None else f"trial {self.trial}: "
        times = f" ({self.count} time{'s' * (self.count > 1)})" if self.count else ""
        return f"{head}{self.text}{times}"


@dataclass(slots=True, kw_only=True, eq=False)
class TrialLine:
    """Trials that wait for a slot, slots that wait for a trial, and the number of trials in each state."""

    pending: deque[int] = field(default_factory=deque)
    """The trials to hand out, in the order of their numbers."""
    waiting: dict[int, float] = field(default_factory=dict)
    """The trials that back off after a failure, each with the moment when it is due."""
    active: dict[int, None] = field(default_factory=dict)
    """The trials that have not ended."""
    hungry: Annotated[Line, PlainValidator(Line)] = field(default_factory=Line)
    """The open slots that can take another trial, idle ones first."""
    hungry_for_memory: int = 0
    """The number of active trials that need another slot than the usual."""
    counts: dict[str, int] = field(default_factory=dict)
    """The number of trials in each state."""
    failed_kinds: dict[str, int] = field(default_factory=dict)
    """The number of failed trials by the class of their failure."""


@dataclass(slots=True, kw_only=True, eq=False)
class SweepEnd:
    """The end of the sweep, or its leaving, and what follows its end."""

    status: SweepStatus | None = None
    """The status that the sweep ends with; None while it runs."""
    why: str = ""
    """The reason why the sweep ends or is left."""
    fault: Fault | None = None
    """The place to look for the cause of a failure or an interruption."""
    fault_field: str = ""
    """The field of the spec that is at fault."""
    by: dict[str, JsonValue] | None = None
    """The rule that ended the sweep, its limit, and the value that reached it."""
    target_trial: int | None = None
    """The trial that reached the target."""
    has_cut: bool = False
    """True if a limit of the sweep has cut trials short."""
    is_interrupted: bool = False
    """True if the controller leaves, and all that has not ended runs again on a resume."""
    has_left: bool = False
    """True if the command to leave was given."""
    reopened: int = 0
    """The number of times that the sweep continued after it had ended."""
    extend_to: float | None = None
    """The time to which trials go once the sweep is complete, in the scheduler's unit."""
    extend_top: int = 0
    """The number of the best trials that go that far."""
    extend_trials: list[int] = field(default_factory=list)
    """The trials that are to go that far, where they were named."""
    of_search: dict[str, JsonValue] | None = None
    """Status, why and rule of a search that has ended for good, while trials of it go further."""


@dataclass(slots=True, kw_only=True, eq=False)
class Clock:
    """The moments of the sweep, in UTC seconds of the events' time."""

    started_at: float | None = None
    """The time at which the first controller started."""
    ended_at: float | None = None
    """The time at which the sweep ended."""
    last_at: float = 0.0
    """The time of the last event."""
    ahead_s: float = 0.0
    """Seconds that the wall clock is ahead of the events' time (`ClockMoved`)."""
    timer_at: float | None = None
    """The time at which the timer fires; None: it is not set."""
    deadline_at: float | None = None
    """The deadline of the sweep, by the wall clock."""
    deadline_text: str = ""
    """The deadline as ISO 8601 with its time zone, where an event named it."""


@dataclass(slots=True, kw_only=True, eq=False)
class ControllerRun:
    """The present controller, and how long those before it were at work."""

    generation: int = 0
    """The number of the controller, counted from 1; 0: none has started."""
    started_at: float = 0.0
    """The time at which it started."""
    active_before_s: float = 0.0
    """Seconds that controllers before it were at work."""
    code: str = ""
    """The digest of the trainable's code as it ran last."""
    is_stalled: bool = False
    """True if the journal lags behind, so that the trials' silence means nothing."""

    def active_s(self, at: float) -> float:
        """Seconds that controllers were at work on this sweep up to `at`, without the time between them."""
        return self.active_before_s + max(0.0, at - self.started_at)


@dataclass(slots=True, kw_only=True, eq=False)
class Room:
    """The room of the cluster, and its unusable nodes and slots."""

    capacity: int = 0
    """The number of slots that the cluster has room for."""
    share: int | None = None
    """The number of slots that other sweeps leave this one; None: as many as it likes."""
    beside: int = 0
    """The number of other sweeps that share the cluster."""
    is_hurried: bool = False
    """True if a sweep with a nearer deadline waits for the slots beyond the share."""
    kept: dict[str, int] = field(default_factory=dict)
    """The slots that may stay on each node that is cleared for another sweep; nodes not named: all."""
    nodes: int = 1
    """The number of nodes in the cluster."""
    largest_memory: int = 0
    """Bytes that the largest node offers a trial; 0: not known."""
    beyond: tuple[str, ...] = ()
    """The sizes that no node can hold."""
    no_room_since: float | None = None
    """The time from which on no node can hold a usual trial."""
    no_room_problem: str = ""
    """The reason why no node can hold one."""
    no_memory_since: float | None = None
    """The time from which on nothing is left to do but trials that no node has room for."""
    next_slot: int = 0
    """The number of the next slot to open."""
    slot_failures: int = 0
    """The number of slots in a row that could not be started."""
    draining: list[str] = field(default_factory=list)
    """The nodes that are about to go: they get no more trials."""
    excluded: list[str] = field(default_factory=list)
    """The nodes that failed too many trials: they get no more."""
    node_failures: dict[str, list[int]] = field(default_factory=dict)
    """By node, the trials that failed there."""


@dataclass(slots=True, kw_only=True, eq=False)
class Search:
    """The asks to the search, its configs, and the results that it received."""

    suggested: int = 0
    """The number of configs that the search has suggested."""
    asked: int = 0
    """Up to which number configs were asked for."""
    is_exhausted: bool = False
    """True if the search has no more configs."""
    log: list[int] = field(default_factory=list)
    """Of a logged search, the order of results and asks: n is the end of trial n, `~n` an ask from n on."""
    rungs: list[tuple[int, float, float]] = field(default_factory=list)
    """Trial, time and value whenever the scheduler compared one; of a search that learns from rungs."""
    paused: dict[int, Told] = field(default_factory=dict)
    """The results that the search received of trials that paused, until they end."""


@dataclass(slots=True, kw_only=True, eq=False)
class Meter:
    """The use of the slots, and the durations of trials."""

    open_slots: int = 0
    """The number of slots that were open from `slot_s_at` on."""
    slot_s: float = 0.0
    """Seconds that all slots were open up to `slot_s_at`."""
    slot_s_at: float = 0.0
    """The time up to which `slot_s` counts."""
    first_reports_s: tuple[float, ...] = ()
    """The newest times from an attempt's start to its first report, in seconds."""
    saves_s: tuple[float, ...] = ()
    """The newest times between two checkpoints of a trial, in seconds."""
    mean_duration_s: float | None = None
    """The mean duration of trials in seconds; newer ones weigh more."""


@dataclass(slots=True, kw_only=True, eq=False)
class Ranking:
    """The best trials that have ended."""

    best_ended: int | None = None
    """The best trial that has ended."""
    best_group: int | None = None
    """The best config of which all repeats have completed, where configs race."""
    reference: int | None = None
    """The best trial that has completed, with which `stop.trial_wilcoxon` compares."""
    top: list[int] = field(default_factory=list)
    """The ended trials whose checkpoints `keep_top_k` keeps, the best first."""
    plateau_best: float | None = None
    """The best score that the plateau of the sweep counts from."""
    plateau_since: int = 0
    """The number of trials that have completed since without a gain."""


@dataclass(slots=True, kw_only=True, eq=False)
class Reports:
    """The reports of trials, as far as later events look at them."""

    keys: tuple[str, ...] = ()
    """The names of the values in the newest report."""
    seen_names: tuple[str, ...] = ()
    """The names of `Rules.named` that were reported, or noted as never reported."""
    has_scored: bool = False
    """True if some trial has reported the metric."""
    has_timed: bool = False
    """True if some trial has reported the scheduler's time."""
    curves: dict[int, list[tuple[int, float]]] = field(default_factory=dict)
    """By trial, iteration and value of each report: of the reference, and of trials that may continue."""
    histories: dict[int, list[tuple[int, Metrics]]] = field(default_factory=dict)
    """By trial, iteration and values of each report, for `stop.trial_if`; of trials that may continue."""


@dataclass(slots=True, kw_only=True, eq=False)
class Work:
    """The work that is left of the present event: empty between events, and never stored."""

    undecided: deque[tuple[int, Verdict | None]] = field(default_factory=deque)
    """Trials and verdicts to carry out; None: the trial's own `turn`."""
    unranked: list[int] = field(default_factory=list)
    """The trials that the event ended, which are not ranked yet."""
