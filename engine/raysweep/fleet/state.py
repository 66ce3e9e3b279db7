"""The fleet's state of one slot, one worker, one placement group, and one trial that a slot was handed."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

from raysweep.core.vocabulary.failures import Failure
from raysweep.fleet.lifecycle import (
    GROUPS,
    HANDED,
    WORKERS,
    GroupCause,
    GroupState,
    HandedCause,
    HandedState,
    WorkerCause,
    WorkerState,
)
from raysweep.fleet.reduction import GangReports
from raysweep.messages import End, Job, ToWorker, TrialFailed
from raysweep.space.amounts import USUAL, Needs


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """A placement group. `returns` counts how often it was given back. `is_usual`: of the sweep's shape."""

    number: int
    is_usual: bool = True
    state: GroupState = "held"
    returns: int = 0

    def move(self, cause: GroupCause) -> None:
        """Along a row of the table."""
        self.state = GROUPS[self.state, cause]


@dataclass(slots=True, kw_only=True, eq=False)
class Worker:
    """One actor, member `rank` of its slot.

    `has_link`: its connection is open; `failure`: how it died, once Ray has said so. `has_run`: it was handed
    a trial (with `isolation="actor"` it gets no second one). `trials`: how many attempts it has begun.
    `is_loaded`: it was ready once.
    `is_ending`: with its trial, which has said so; no other trial is charged. `is_spent`: it begins no other
    trial (see `messages.Spent`). `host`, `devices`: see `messages.Ready`.
    """

    number: int
    group: Group
    rank: int = 0
    state: WorkerState = "starting"
    node: str = ""
    has_link: bool = False
    has_run: bool = False
    trials: int = 0
    is_loaded: bool = False
    is_ending: bool = False
    is_spent: bool = False
    host: str = ""
    devices: str | None = None
    failure: Failure | None = None

    def load(self, node: str) -> None:
        """It has the trainable, on this node."""
        self.move("loaded")
        self.node, self.is_loaded = node, True

    def move(self, cause: WorkerCause) -> None:
        """Along a row of the table."""
        self.state = WORKERS[self.state, cause]


@dataclass(slots=True, kw_only=True, eq=False)
class Handed:
    """A trial that a slot was handed. `stop_reasons` counts how often it was asked to end.

    Of a gang: `attempts`, by rank, in the order in which they came; `is_disbanding`: all are to end;
    `is_damaged`: it goes back to an older checkpoint; `is_busy`: rank 0 stores or fetches one; `ports`, by
    rank, where each has one; `reports`, where they are reduced; `fault`: why they could not be.
    """

    job: Job
    state: HandedState = "unsent"
    stops: int = 0
    is_interrupted: bool = False
    ends: dict[int, End] = field(default_factory=dict)
    is_disbanding: bool = False
    is_damaged: bool = False
    is_busy: bool = False
    ports: dict[int, int] = field(default_factory=dict)
    reports: GangReports | None = None
    fault: TrialFailed | None = None

    @property
    def trial(self) -> int:
        """Its number."""
        return self.job.trial

    def move(self, cause: HandedCause) -> None:
        """Along a row of the table."""
        self.state = HANDED[self.state, cause]


@dataclass(slots=True, kw_only=True, eq=False)
class FleetSlot:
    """A slot: its members, and what it was handed, in order, the running one first.

    It has one member, or those of a gang, by rank; `worker`, of rank 0, speaks for them (see `gang`).

    `asked_back`: for each request to give trials back that the worker has not answered, which. `recalled`:
    what was taken back here, until then. `others`: the nodes that it is on beside `node`. `forced`: the
    worker was killed for this trial. `held_bytes`: the most that the running trial's process was seen to
    hold.
    """

    number: int
    members: tuple[Worker, ...]
    needs: Needs = USUAL
    held_bytes: int | None = None
    is_open: bool = False
    node: str = ""
    others: tuple[str, ...] = ()
    handed: dict[int, Handed] = field(default_factory=dict)
    outgoing: list[ToWorker] = field(default_factory=list)
    recalled: list[int] = field(default_factory=list)
    asked_back: deque[tuple[int, ...]] = field(default_factory=deque)
    forced: Handed | None = None
    spare: Worker | None = None

    @property
    def worker(self) -> Worker:
        """The member of rank 0."""
        return self.members[0]

    @property
    def is_ready(self) -> bool:
        """True if all its members take trials."""
        if len(self.members) == 1:
            return self.members[0].state == "ready"
        return all(member.state == "ready" for member in self.members)

    @property
    def is_spent(self) -> bool:
        """True if one of its members begins no other trial, and none runs in the others."""
        if len(self.members) == 1 and not self.members[0].is_spent:
            return False
        return any(member.is_spent for member in self.members) and self.begun is None

    @property
    def begun(self) -> Handed | None:
        """The trial whose user code runs."""
        return next((handed for handed in self.handed.values() if handed.state == "begun"), None)

    def find(self, trial: int, attempt: int) -> Handed | None:
        """This attempt, while the slot has it."""
        handed = self.handed.get(trial)
        return handed if handed is not None and handed.job.attempt == attempt else None
