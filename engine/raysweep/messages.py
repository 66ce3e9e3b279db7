"""What a controller and its workers say to each other, as types. `worker.wire` knows how they travel.

| from the worker | |
|---|---|
| `Hello` | the first frame, alone: who connects, and that it may |
| `Ready`, `Unready` | the trainable is loaded; or cannot be |
| `Memory` | the most that the trial's process has held |
| `Began` | user code runs |
| `Rows` | reports |
| `Busy` | the trial stores or fetches a checkpoint and cannot report |
| `Saved`, `Unsaved` | a checkpoint is committed; or could not be |
| `Returned`, `Stopped`, `Failed` | the end of the attempt: exactly one of these |
| `Recalled` | these trials had not begun and are not in the queue any more |

| to the worker | |
|---|---|
| `Job` | append this attempt to the queue |
| `Stop` | raise `TrialStopped`, as `core.stops` has it |
| `Interrupt` | raise it now, in the main thread |
| `Kill` | kill the trial's process (only where it has one of its own) |
| `Answer` | what the trial waits for is done |
| `Recall` | take these trials out of the queue |
| `Exit` | end the worker |

A message is a JSON array whose first item is the name of its type, in lower case. A field that is added comes
last and has a default.
"""

from __future__ import annotations

from typing import Any, Literal

from msgspec import Struct


class Message(Struct, frozen=True, array_like=True, kw_only=True, tag=str.lower):
    """One message."""


class AttemptMessage(Message, frozen=True, kw_only=True):
    """A message about one attempt of one trial."""

    trial: int
    attempt: int

    @property
    def who(self) -> tuple[int, int]:
        """(trial, attempt)."""
        return self.trial, self.attempt


class FailureFacts(Struct, frozen=True, kw_only=True):
    """A failure in the worker: the fields of `core.failures.Failure` that it can know."""

    origin: Literal["exception", "process", "memory", "start"]
    type: str = ""
    message: str = ""
    traceback: str = ""
    bases: tuple[str, ...] = ()
    exit_code: int | None = None
    is_fatal: bool = False
    memory_bytes: int | None = None


# -- from the worker -----------------------------------------------------------------------------------


class Hello(Message, frozen=True, kw_only=True):
    """`token` is the sweep's; `worker` is Ray's id of the actor."""

    token: str
    worker: str


class Ready(Message, frozen=True, kw_only=True):
    """`node` is Ray's id of the node; empty where there is no Ray."""

    node: str
    pid: int


class Unready(Message, frozen=True, kw_only=True):
    """The worker ends."""

    failure: FailureFacts
    node: str


class Memory(Message, frozen=True, kw_only=True):
    """A new maximum, in bytes."""

    held_bytes: int


class Began(AttemptMessage, frozen=True, kw_only=True):
    """Leaves at once, with all that was said before it."""


class Rows(AttemptMessage, frozen=True, kw_only=True):
    """`rows[i][j]` is metric `keys[j]` of report `first + i`; see `core.events.TrialReported`.

    Non-finite numbers are the strings `NaN`, `Infinity` and `-Infinity`.
    """

    first: int
    keys: tuple[str, ...]
    rows: list[list[Any]]
    is_waiting: bool = False


class Busy(AttemptMessage, frozen=True, kw_only=True):
    """`is_over`: it can report again."""

    is_over: bool


class Saved(AttemptMessage, frozen=True, kw_only=True):
    """Checkpoint `number` holds the state after report `report` of this attempt."""

    number: int
    report: int
    uri: str
    size_bytes: int


class Unsaved(AttemptMessage, frozen=True, kw_only=True):
    """The trial goes on without it."""

    number: int
    problem: str


class Returned(AttemptMessage, frozen=True, kw_only=True):
    """The trainable returned."""


class Stopped(AttemptMessage, frozen=True, kw_only=True):
    """It ended because it was told to. `where`: the traceback of one that was hung."""

    was_killed: bool = False
    where: str = ""


class Failed(AttemptMessage, frozen=True, kw_only=True):
    """It raised, died, or took too much memory."""

    failure: FailureFacts


class Recalled(Message, frozen=True, kw_only=True):
    """The answer to one `Recall`: some of its trials, or none."""

    trials: list[int]


# -- to the worker -------------------------------------------------------------------------------------


class Job(AttemptMessage, frozen=True, kw_only=True):
    """One attempt of one trial. `iteration`: the reports behind `checkpoint`; `rank`: the slot's member."""

    config: dict[str, Any]
    seed: int
    checkpoint: str | None = None
    iteration: int = 0
    next_checkpoint: int = 0
    memory_limit_bytes: int | None = None
    rank: int = 0


class Stop(AttemptMessage, frozen=True, kw_only=True):
    """`allows` says what the trial may still make: a `checkpoint` that it has in hand, or a `report`."""

    reason: str
    wants_checkpoint: bool = False
    allows: Literal["nothing", "checkpoint", "report"] = "nothing"


class Interrupt(AttemptMessage, frozen=True, kw_only=True):
    """Follows a `Stop` whose grace is over."""


class Kill(AttemptMessage, frozen=True, kw_only=True):
    """Follows an `Interrupt` that was not heard."""


class Answer(AttemptMessage, frozen=True, kw_only=True):
    """All up to report `report` of the attempt is durable."""

    report: int


class Recall(Message, frozen=True, kw_only=True):
    """`Recalled` follows."""

    trials: list[int]


class Exit(Message, frozen=True, kw_only=True):
    """The attempt that runs may end first."""


End = Returned | Stopped | Failed
FromWorker = Ready | Unready | Memory | Began | Rows | Busy | Saved | Unsaved | End | Recalled
Order = Stop | Interrupt | Kill | Answer
ToWorker = Job | Order | Recall | Exit
