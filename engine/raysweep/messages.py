"""Messages between a controller and its workers. `worker.wire` knows how they travel.

A message is a JSON array whose first item is the name of its type, in lower case. A field that is added comes
last and has a default.

A message of a worker that says the same as an event of the core has the event's name, and its fields but the
time (`fleet.message_events`). Two say less than their events: `TrialFailed` has the facts of a failure, which
the fleet completes and shortens; `TrialsRecalled` does not name the slot. The other messages of workers are
for the fleet alone.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Message(Struct, frozen=True, array_like=True, kw_only=True, tag=str.lower):
    """One message."""


class AttemptMessage(Message, frozen=True):
    """A message about one attempt of one trial."""

    trial: int
    attempt: int

    @property
    def who(self) -> tuple[int, int]:
        """(trial, attempt)."""
        return self.trial, self.attempt


class Gang(Struct, frozen=True, kw_only=True):
    """The place of one member of a gang among all. `host`: where rank 0 can be reached.

    `group`: what connects them, such as `gloo`, or nothing. `devices`: the GPUs that those on its node may
    see, as CUDA_VISIBLE_DEVICES; `device`: its own first one among these. `nodes`: of each rank, which node
    it is on, counted from 0.
    """

    world_size: int
    local_rank: int = 0
    local_world_size: int = 1
    node_rank: int = 0
    host: str = ""
    group: str = ""
    devices: str | None = None
    device: int = 0
    nodes: tuple[int, ...] = ()


class FailureFacts(Struct, frozen=True, kw_only=True):
    """A failure in the worker: the fields of `core.vocabulary.failures.Failure` that it can know."""

    origin: Literal["exception", "infeasible", "process", "memory", "gpu_memory", "start"]
    type: str = ""
    message: str = ""
    traceback: str = ""
    bases: tuple[str, ...] = ()
    exit_code: int | None = None
    is_fatal: bool = False
    memory_bytes: int | None = None
    is_of_program: bool = False
    """A program of the trial failed: the trial's own process lives."""


# -- from the worker -----------------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """The first frame, alone: who connects (Ray's id of the actor), and that it may (the sweep's token)."""

    token: str
    worker: str


class Ready(Message, frozen=True, kw_only=True):
    """The trainable is loaded. `node`: Ray's id of it; empty where there is no Ray.

    `host`: the address that this end of the link has; `devices`: CUDA_VISIBLE_DEVICES.
    """

    node: str
    pid: int
    host: str = ""
    devices: str | None = None


class Unready(Message, frozen=True, kw_only=True):
    """The trainable cannot be loaded, and the worker ends."""

    failure: FailureFacts
    node: str


class Memory(Message, frozen=True, kw_only=True):
    """The most that the trial's process has held so far."""

    held_bytes: int


class TrialStarted(AttemptMessage, frozen=True):
    """User code runs. Leaves at once, with all messages before it."""


class TrialReported(AttemptMessage, frozen=True):
    """Reports: `rows[i][j]` is metric `keys[j]` of report `first + i`; see `TrialReported`.

    Non-finite numbers are the strings `NaN`, `Infinity` and `-Infinity`.
    """

    first: int
    keys: tuple[str, ...]
    rows: list[list[Any]]
    is_waiting: bool = False


class TrialBusy(AttemptMessage, frozen=True):
    """The trial stores or fetches a checkpoint and cannot report. `is_over`: it can again."""

    is_over: bool


class CheckpointCommitted(AttemptMessage, frozen=True):
    """Checkpoint `number` holds the state after report `report` of this attempt.

    `score`: the metric of that report, where later reports may have overtaken the checkpoint. `rank`: what
    `checkpoint.keep_best` ranks by, where that is another metric.
    """

    number: int
    report: int
    uri: str
    size_bytes: int
    score: float | None = None
    rank: float | None = None


class CheckpointFailed(AttemptMessage, frozen=True):
    """A checkpoint could not be stored; the trial continues without it."""

    number: int
    problem: str


class CheckpointDamaged(AttemptMessage, frozen=True):
    """The checkpoint that the attempt was to resume from is damaged: it ends, to resume from an older one."""

    uri: str
    problem: str


class TrialNoted(AttemptMessage, frozen=True):
    """A note about this attempt for the sweep's user; the trial continues.

    `count`: how often that was so up to now; the highest one is noted. `is_shared`: a sweep notes it once,
    with the first trial that reports it.
    """

    text: str
    count: int = 0
    is_shared: bool = False


class TrialReturned(AttemptMessage, frozen=True):
    """The trainable returned."""


class TrialStopped(AttemptMessage, frozen=True):
    """The attempt ended because it was told to. `where`: the traceback of one that was hung."""

    was_killed: bool = False
    where: str = ""


class TrialFailed(AttemptMessage, frozen=True):
    """The attempt raised, died, or took too much memory. The event has a `Failure` in place of the facts.

    `is_echo`: it raised because another member of its gang had gone.
    """

    failure: FailureFacts
    is_echo: bool = False


class Spent(AttemptMessage, frozen=True):
    """Right before the end of this attempt: the worker begins no other, and waits to be replaced.

    `leftover`: what the attempt has left behind in its process that cannot be put back; empty: it was the
    last of as many as a worker runs.
    """

    leftover: str


class Met(AttemptMessage, frozen=True):
    """Of rank 0: the gang of this attempt meets at this port of its host.

    `is_each`: every rank has a port of its own and sends it; once all have, each rank receives all ports.
    """

    port: int
    is_each: bool = False


class Validation(Struct, frozen=True, kw_only=True):
    """The validation of one of a trainer's checkpoints: its pickled call, and the longest time of a try."""

    call: bytes
    timeout_s: float | None = None


class Upcoming(AttemptMessage, frozen=True):
    """A checkpoint of the state after report `report` follows.

    Of rank 0, where metrics are reduced; and right before that report, where checkpoints are evaluated.
    `is_void`: none follows after all. `validation`: where the trial's own trainer has what validates.
    """

    report: int
    is_void: bool = False
    validation: Validation | None = None


class Leaving(AttemptMessage, frozen=True):
    """Of rank 0: it was told to end, and does so in report `report`, counted from 0."""

    report: int
    reason: str


class TrialsRecalled(Message, frozen=True, kw_only=True):
    """The answer to one `Recall`: those of its trials that had not begun; they have left the queue.

    The event also names the slot, and the trials that were never sent to this worker.
    """

    trials: list[int]


# -- to the worker -------------------------------------------------------------------------------------


class Job(AttemptMessage, frozen=True):
    """Append this attempt to the queue. `iteration`: the reports behind `checkpoint`; `rank`: the member.

    `has_older`: where `checkpoint` is damaged, the trial can resume from the one before.
    """

    config: dict[str, Any]
    seed: int
    checkpoint: str | None = None
    iteration: int = 0
    next_checkpoint: int = 0
    memory_limit_bytes: int | None = None
    rank: int = 0
    has_older: bool = False
    gang: Gang | None = None


class Stop(AttemptMessage, frozen=True):
    """Raise `TrialStopped` at the next report. `allows`: see `core.vocabulary.stop_reasons`."""

    reason: str
    wants_checkpoint: bool = False
    allows: Literal["nothing", "checkpoint", "report"] = "nothing"


class Interrupt(AttemptMessage, frozen=True):
    """Raise `TrialStopped` now, in the main thread: follows a `Stop` whose grace is over."""


class Kill(AttemptMessage, frozen=True):
    """Kill the trial's process, where it has one of its own: follows an `Interrupt` that was not heard."""


class Answer(AttemptMessage, frozen=True):
    """The answer that a trial waits for: all up to report `report` of the attempt is durable."""

    report: int


class Judged(AttemptMessage, frozen=True):
    """The result of validating report `report`'s checkpoint; `problem`: why there is none."""

    report: int
    metrics: dict[str, Any]
    problem: str = ""


class Meet(AttemptMessage, frozen=True):
    """To the others of a gang: rank 0 waits for them at this port.

    `addresses`: to all of them, where each has a port: `host:port` by rank.
    """

    port: int = 0
    addresses: tuple[str, ...] = ()


class Follow(AttemptMessage, frozen=True):
    """To the others of a gang: raise `TrialStopped` in report `report`, counted from 0, or the next one."""

    report: int
    reason: str


class Recall(Message, frozen=True, kw_only=True):
    """Take these trials out of the queue; `TrialsRecalled` follows."""

    trials: list[int]


class Exit(Message, frozen=True, kw_only=True):
    """End the worker; the attempt that runs may end first."""


End = TrialReturned | TrialStopped | TrialFailed
FromWorker = (
    Ready
    | Unready
    | Memory
    | TrialStarted
    | TrialReported
    | TrialBusy
    | CheckpointCommitted
    | CheckpointFailed
    | CheckpointDamaged
    | TrialNoted
    | Spent
    | Met
    | Upcoming
    | Leaving
    | End
    | TrialsRecalled
)
Order = Stop | Interrupt | Kill | Answer | Judged | Meet | Follow
ToWorker = Job | Order | Recall | Exit
