"""The progress of a run while it is under way, and the requests to it."""

from __future__ import annotations

from typing import Any, Final, Literal

from raysweep.documents.json_numbers import Counts, Metrics, Number
from raysweep.outcome.estimate import Estimate
from raysweep.outcome.record import Record
from raysweep.outcome.sweep import SweepStatus
from raysweep.outcome.usage import Usage

HolderState = Literal["alive", "gone", "stale"]
"""Of a process that is, or was, at work on a run; one that lives and has left the run is gone too."""
_AT_WORK: Final = frozenset({"starting", "running", "stopping"})


class Holder(Record):
    """The process that runs a sweep, so that others can see whether it still lives."""

    host: str
    pid: int
    process_started_at: float | None = None
    boot_id: str = ""
    user: str = ""

    def __str__(self) -> str:
        return f"process {self.pid} of {self.user or 'an unknown user'} on {self.host}"


class BestTrial(Record):
    """The best trial so far, or the one that is ahead."""

    trial_id: str
    score: Number
    config: dict[str, Any] = {}
    metrics: Metrics = {}


class RunningTrial(Record):
    """A trial that runs now."""

    trial_id: str
    number: int
    config: dict[str, Any] = {}
    iteration: int | None = None
    score: Number | None = None
    started_at: float | None = None


class SweepProgress(Record):
    """The progress of a sweep while it runs: the content of `progress.json`. Times are UTC seconds."""

    sweep_id: str
    name: str
    status: Literal["starting", "running", "stopping"] | SweepStatus
    holder: Holder
    generation: int
    at: float
    """The time at which this was written."""
    started_at: float
    counts: Counts = Counts()
    num_trials: int | None = None
    """The number of trials that there will be; None where that is not known."""
    metric: str
    mode: Literal["min", "max"]
    others: dict[str, Literal["min", "max"]] = {}
    """In a sweep of several metrics those after the first, each with its mode."""
    constraints: tuple[str, ...] = ()
    """The constraints that the metrics of a trial have to satisfy to be the best."""
    best: BestTrial | None = None
    """Of the trials that have ended."""
    ahead: BestTrial | None = None
    """While none of them is the best: of those that run."""
    running: tuple[RunningTrial, ...] = ()
    slots: int = 0
    """The number of trials that can run at once."""
    shared: str = ""
    """Its share of the cluster, as `4 of 8 slots (2 sweeps beside it)`; empty: it has no limit."""
    deadline: float | None = None
    expected_end_at: float | None = None
    """The time at which a limit ends a sweep without a number of samples, if its slots stay as they are."""
    estimate: Estimate | None = None
    """The newest estimate of it, made about once a minute; None: not known yet."""
    slow: tuple[str, ...] = ()
    """A line for each running trial that takes ten times as long as its siblings."""
    opening: int = 0
    """The number of workers that are being started."""
    notes: tuple[str, ...] = ()
    usage: Usage | None = None
    """Of a training: what it has used so far."""
    has_left: bool = False
    """The holder gave the sweep up before its end, and may live on: no process runs it."""

    @property
    def is_at_work(self) -> bool:
        """True if its holder was at work when it wrote this."""
        return self.status in _AT_WORK

    @property
    def share(self) -> float:
        """Its progress, from 0 to 1: by its trials, or by its expected end if their number is unknown."""
        if not self.is_at_work:
            return 1.0
        if self.num_trials:
            return min(1.0, self.counts.ended / self.num_trials)
        expected = self.estimate.end_at.expected if self.estimate is not None else self.expected_end_at
        end = expected if expected is not None else self.deadline
        if end is not None and end > self.started_at:
            span_s = end - self.started_at
            return max(0.0, min(1.0, (self.at - self.started_at) / span_s))
        return 0.0


class Cancellation(Record):
    """A request to cancel a sweep, made by another process: the content of `cancel.json`."""

    at: float
    """UTC seconds."""
    by: str = ""
    """The origin of the request: a person, a command."""
    reason: str = ""
    """The reason; becomes the outcome's `why`."""
    number: int = 0
    """The number of the job that is to end, even if it has not started; 0: the one that runs now."""

    def names(self, number: int) -> bool:
        """True if job `number` is to end, however long before its start this was asked for."""
        return 0 < number <= self.number

    def concerns(self, number: int) -> bool:
        """True if it may mean what is at work as job `number` (0: as no job, or one of no known number)."""
        return not self.number or not number or self.names(number)


class Lease(Record):
    """Says that a process still waits for a sweep or a training run: the content of `lease.json`."""

    at: float
    """The time of its renewal, in UTC seconds by the holder's clock."""
    ttl_s: float
    """The lease expires this many seconds after its last renewal."""
    holder: str = ""
    """The process that waits."""
