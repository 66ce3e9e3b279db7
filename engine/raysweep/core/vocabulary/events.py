"""Events of a sweep: the only input of the core, and what the journal keeps.

Every event is frozen, named in the past tense and carries its own time (`at`, Unix seconds): the core
reads no clock. Replaying a sweep's events in order rebuilds its state exactly.

| event | who saw it |
|---|---|
| `ControllerStarted` | the controller, right after it claimed a generation |
| `SpecChanged` | the controller, when a safe change of the spec was accepted |
| `CapacityChanged` | the cluster shell: how many slots the cluster can hold |
| `ShareChanged` | the cluster shell: how many slots other sweeps leave this one |
| `SlotOpened`, `SlotDelayed`, `SlotFailed`, `SlotLost` | the cluster shell, about one worker in its group |
| `NodeDraining`, `DemandStuck` | the cluster shell, about the cluster |
| `ConfigsSuggested` | the search shell, in answer to `SuggestConfigs` |
| `StorageStalled`, `ClockMoved` | the controller, about its journal and its machine's clock |
| `TrialStarted`, `TrialReported`, `TrialBusy`, `CheckpointCommitted`, `CheckpointFailed` | a worker |
| `CheckpointDamaged`, `TrialNoted` | a worker |
| `TrialReturned`, `TrialStopped`, `TrialFailed`, `TrialsRecalled` | a worker, or the shell in its stead |
| `TimerFired` | the clock, in answer to `SetTimer` |
| `CancelRequested`, `InterruptRequested` | a person |
| `SweepEnded` | the controller, after `EndSweep` was carried out |
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pydantic import JsonValue

from raysweep.core.state.values import hot_value
from raysweep.core.vocabulary.failures import Failure

Row = list[JsonValue]

BEHAVIOUR: Final = 1
"""The number of the core's rules. Raise it when the same events lead to other decisions than before.

A journal says by which rules it was written; one that was written by others is refused (`codec.decode`).
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStarted:
    """A controller claimed `generation`; whatever an earlier one had running is gone.

    `behaviour` is the number of the rules that it follows (`BEHAVIOUR`). `deadline` is the sweep's, in
    ISO 8601 with its offset; empty: none. `seen_at`: when the controller before it was last
    seen at work (its heartbeat). `is_reopening`: the sweep had ended, and continues. `code`: the digest of
    the trainable's code (see `specs.code_digest`); empty where that is not known.

    `retried`: the failed trials that run again. `extend_to`: how far trials continue once the sweep is
    complete: those of `extend_trials`, or the `extend_top` best; None: none is asked for. `released`: (trial,
    number) of checkpoints that an ended sweep releases for a budget.
    """

    at: float
    generation: int
    host: str = ""
    pid: int = 0
    behaviour: int = BEHAVIOUR
    deadline: str = ""
    seen_at: float | None = None
    is_reopening: bool = False
    code: str = ""
    retried: tuple[int, ...] = ()
    extend_to: float | None = None
    extend_top: int = 0
    extend_trials: tuple[int, ...] = ()
    released: tuple[tuple[int, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SpecChanged:
    """From here on the sweep runs under `spec` (plain JSON); `changes` says how it differs.

    `deadline` is that of the new spec, as in `ControllerStarted`. Comes right after that event, before any
    slot is open.
    """

    at: float
    spec: dict[str, JsonValue]
    changes: tuple[str, ...] = ()
    deadline: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class CapacityChanged:
    """The cluster can hold `slots` placement groups of this sweep's shape at once, on its usable nodes.

    `memory_bytes` is what the largest of them offers a trial (0: not known); `problem` says why `slots` is 0.
    `beyond`: of the sizes that active trials need, those that these nodes cannot hold. `note`: how trials
    share what these nodes have, for the sweep's notes.
    """

    at: float
    slots: int
    nodes: int = 1
    memory_bytes: int = 0
    problem: str = ""
    beyond: tuple[str, ...] = ()
    note: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareChanged:
    """The sweep shares the cluster (`share`), and may have `slots` slots; None: as many as it likes.

    `beside`: how many other sweeps share the cluster. `is_hurried`: a sweep with a nearer deadline waits for
    the slots beyond that, so trials that have a checkpoint give theirs back before they end. `kept`: how
    many slots it may keep on the nodes that are cleared for a slot of another sweep; nodes not named: all.
    """

    at: float
    slots: int | None = None
    beside: int = 0
    is_hurried: bool = False
    kept: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotOpened:
    """A worker is up and can take trials; `others`: the nodes of its gang beside that of rank 0."""

    at: float
    slot: int
    node: str = ""
    others: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotDelayed:
    """A worker still waits for its placement group; `problem` says for what, and who has it."""

    at: float
    slot: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotFailed:
    """A worker could not be started: the slot's first, or another in the place of one that had worked."""

    at: float
    slot: int
    failure: Failure
    node: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class SlotLost:
    """A worker is gone, with whatever it was running (`failure` says how it went).

    `was_handed`: whether it had been handed a trial. The death of one before that is charged to no trial.
    """

    at: float
    slot: int
    failure: Failure
    was_handed: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeDraining:
    """The node is about to go (at `deadline`, Unix seconds, if known); nothing new is placed on it."""

    at: float
    node: str
    deadline: float | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class DemandStuck:
    """A demand of trials on Ray (tasks, actors, placement groups) has waited for long.

    `can_never`: nothing that ends by itself would make room: the trials hold what they wait for, or no node
    has so much.
    """

    at: float
    problem: str
    can_never: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedConfig:
    """A config that could not be made: its trial's number, and why."""

    number: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigsSuggested:
    """The searcher's next configs, numbered `first`, `first + 1`, …; `is_exhausted`: there are no more.

    Those named in `failed` are only what had been drawn when a function of the search space raised.
    """

    at: float
    first: int
    configs: tuple[dict[str, JsonValue], ...]
    is_exhausted: bool = False
    note: str = ""
    failed: tuple[FailedConfig, ...] = ()


@hot_value
class TrialStarted:
    """User code of this attempt began to run."""

    at: float
    trial: int
    attempt: int


@hot_value
class TrialReported:
    """A batch of reports of one attempt: `rows[i][j]` is metric `keys[j]` of report number `first + i`.

    `first` counts the reports of this attempt from 0. `is_waiting`: the trial waits for an answer to the
    last row; with no rows at all, to report `first - 1`. Non-finite numbers travel as `"NaN"`, `"Infinity"`
    and `"-Infinity"`.
    """

    at: float
    trial: int
    attempt: int
    first: int
    keys: tuple[str, ...]
    rows: tuple[Row, ...]
    is_waiting: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialBusy:
    """The trial stores or fetches a checkpoint and cannot report meanwhile; or has done so (`is_over`).

    What was stored says so itself: `CheckpointCommitted`, `CheckpointFailed`.
    """

    at: float
    trial: int
    attempt: int
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class StorageStalled:
    """The journal lags behind: reports wait unseen, and trials that wait for an answer get none; or did
    (`is_over`).
    """

    at: float
    is_over: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ClockMoved:
    """The wall clock is `ahead_s` ahead of the time that events carry: it was set, or the machine slept.

    Within a generation `at` goes by the monotonic clock, so durations hold. Deadlines go by the wall clock.
    """

    at: float
    ahead_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointCommitted:
    """The manifest of checkpoint `number` is in the store; it belongs to the attempt's report `report`.

    `score`: the metric of that report, where the checkpoint was stored in the background: later reports may
    have overtaken it. `rank`: what `checkpoint.keep_best` ranks by there, if that is another metric.
    """

    at: float
    trial: int
    attempt: int
    number: int
    report: int
    uri: str
    size_bytes: int = 0
    score: float | None = None
    rank: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFailed:
    """A checkpoint could not be stored; the trial continues without it."""

    at: float
    trial: int
    attempt: int
    number: int
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointDamaged:
    """The checkpoint that the attempt was to resume from is damaged; it ends, since there is an older one."""

    at: float
    trial: int
    attempt: int
    uri: str
    problem: str


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialNoted:
    """A note about this attempt for the sweep's user; nothing follows from it.

    `count`: how often that was so up to now; the highest one is noted. `is_shared`: a sweep notes it once,
    with the first trial that reports it.
    """

    at: float
    trial: int
    attempt: int
    text: str
    count: int = 0
    is_shared: bool = False


@hot_value
class TrialReturned:
    """User code of this attempt returned by itself."""

    at: float
    trial: int
    attempt: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialStopped:
    """User code of this attempt ended because it was asked to (or was made to).

    `where` is the traceback of the place where it was interrupted, if it was.
    """

    at: float
    trial: int
    attempt: int
    was_killed: bool = False
    where: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialFailed:
    """This attempt failed; `failure` holds the facts, the core makes the class of them."""

    at: float
    trial: int
    attempt: int
    failure: Failure


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialsRecalled:
    """The worker gave back `trials` of its queue, none of which had begun."""

    at: float
    slot: int
    trials: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TimerFired:
    """The time set by `SetTimer` has come."""

    at: float


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelRequested:
    """A person or an orchestrator wants the sweep ended for good."""

    at: float
    reason: str = "cancelled"


@dataclass(frozen=True, slots=True, kw_only=True)
class InterruptRequested:
    """The controller is asked to leave; the sweep stays as it is and can be resumed."""

    at: float
    reason: str = "interrupted"


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepEnded:
    """Everything of the sweep is off the cluster."""

    at: float


Event = (
    ControllerStarted
    | SpecChanged
    | CapacityChanged
    | ShareChanged
    | SlotOpened
    | SlotDelayed
    | SlotFailed
    | SlotLost
    | NodeDraining
    | DemandStuck
    | StorageStalled
    | ClockMoved
    | ConfigsSuggested
    | TrialStarted
    | TrialReported
    | TrialBusy
    | CheckpointCommitted
    | CheckpointFailed
    | CheckpointDamaged
    | TrialNoted
    | TrialReturned
    | TrialStopped
    | TrialFailed
    | TrialsRecalled
    | TimerFired
    | CancelRequested
    | InterruptRequested
    | SweepEnded
)
