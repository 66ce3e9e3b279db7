"""The policy of commits: their times, the records that become durable, and the actions while storage lags.

The policy of every writer of a journal, without a thread, a clock or a storage: records and times go in, what
is to be done comes out. `writer.JournalWriter` asks it on a thread of its own, `simulate.journal` in virtual
time. The rules:

| | |
|---|---|
| a record after a quiet time | is committed `gather_s` later, with those that came with it |
| more records | gather for `interval_s` from the last commit's begin: few segments, however many records |
| a mark | a segment ends there |
| a caller waits for what was written, or it fills a segment | it is committed at once |
| a commit is under way | the next one waits: no segment is put before the one before it landed |
| a segment landed | its records are durable, those before it sealed: no torn end can take these |
| half of `max_pending_bytes` is used up | crowded, until it is a quarter: take no more work in |
| all of it is used up | full: who writes has to wait |
| the oldest record waits for longer than `stall_s` | stalled: the sweep's silence means nothing |
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from math import inf

INTERVAL_S = 0.25
GATHER_S = 0.005
STALL_S = 2.0
"""A put takes a part of this where the storage is well."""
MAX_PENDING_BYTES = 64 * 1024 * 1024
MAX_SEGMENT_BYTES = 8 * 1024 * 1024
COMPACT_EVERY = 64

_LINE_OVERHEAD_BYTES = 10


@dataclass(frozen=True, slots=True, kw_only=True)
class CommitLimits:
    """The numbers in the rules; `compact_every`: how many segments make a round of compaction worth it."""

    interval_s: float = INTERVAL_S
    gather_s: float = GATHER_S
    stall_s: float = STALL_S
    max_pending_bytes: int = MAX_PENDING_BYTES
    max_segment_bytes: int = MAX_SEGMENT_BYTES
    compact_every: int = COMPACT_EVERY


class CommitPolicy:
    """Counts records on their way: `written`, of these `wanted` at once, `durable` and `sealed`.

    `pending_bytes` are written but not durable; `is_crowded` and `is_full` say how many that is. Times are
    seconds on any one clock, given by the caller, who also sees to it that one call at a time is made.
    """

    def __init__(self, limits: CommitLimits | None = None) -> None:
        self.limits = limits if limits is not None else CommitLimits()
        self.written = self.wanted = self.durable = self.sealed = 0
        self.segments = 0
        self.pending_bytes = 0
        # Kept, as they are asked for with each record.
        self.is_crowded = self.is_full = False
        self._crowds_at = self.limits.max_pending_bytes // 2
        self._gathered: list[bytes] = []
        self._marks: deque[int] = deque()
        self._first_at = self._committed_at = -inf
        # The segment under way: its records, their bytes, and since when the first of them waits.
        self._taken = self._taken_bytes = 0
        self._taken_at: float | None = None

    @property
    def is_committing(self) -> bool:
        """True if a segment is under way."""
        return self._taken_at is not None

    @property
    def is_durable(self) -> bool:
        """True if everything written is stored."""
        return self.durable == self.written

    def write(self, record: bytes, at: float) -> bool:
        """Take a record; True if it is the first for a next segment: there is a new `commit_at`."""
        gathered = self._gathered
        gathered.append(record)
        self.written += 1
        self.pending_bytes += len(record) + _LINE_OVERHEAD_BYTES
        if self.pending_bytes >= self._crowds_at:
            self.is_crowded = True
            self.is_full = self.pending_bytes >= self.limits.max_pending_bytes
        if len(gathered) > 1:
            return False
        self._first_at = at
        return True

    def want(self) -> int:
        """Commit all that was written so far at once; how many records have to be durable for that."""
        self.wanted = self.written
        return self.written

    def mark(self) -> int:
        """Have a segment end behind what was written so far; how many records that is."""
        if not self._marks or self._marks[-1] != self.written:
            self._marks.append(self.written)
        return self.written

    def commit_at(self, at: float) -> float | None:
        """The time to take the next segment, `at` or earlier: now. None: nothing is there to take, or not
        before the one under way has landed.
        """
        if not self._gathered or self._taken_at is not None:
            return None
        if self.wanted > self.durable or self.pending_bytes >= self.limits.max_segment_bytes:
            return at
        return max(self._first_at + self.limits.gather_s, self._committed_at + self.limits.interval_s)

    def take(self, at: float) -> list[bytes]:
        """The records of the next segment, which is under way from now on; what does not fit waits on."""
        assert self._taken_at is None, "one segment at a time"
        batch = self._cut_batch()
        self._taken = len(batch)
        self._taken_bytes = sum(map(len, batch)) + _LINE_OVERHEAD_BYTES * len(batch)
        self._taken_at, self._committed_at = self._first_at, at
        return batch

    def land(self) -> None:
        """The segment under way is stored, and with it the one before is not the last any more."""
        assert self._taken_at is not None, "no segment is under way"
        self._taken_at = None
        self.segments += 1
        self.sealed = self.durable
        self.durable += self._taken
        while self._marks and self._marks[0] <= self.durable:
            self._marks.popleft()
        self.pending_bytes -= self._taken_bytes
        self.is_full = self.pending_bytes >= self.limits.max_pending_bytes
        if self.pending_bytes < self.limits.max_pending_bytes // 4:
            self.is_crowded = False

    @property
    def is_compaction_due(self) -> bool:
        """True if the segment that landed last makes another round of compaction worth it."""
        return self.segments > 0 and self.segments % self.limits.compact_every == 0

    def behind_s(self, at: float) -> float:
        """The time that the oldest record which is not durable has waited."""
        since = self._waits_since
        return at - since if since is not None else 0.0

    def is_stalled(self, at: float) -> bool:
        """True if the storage lags so far behind that the user is told."""
        return self.behind_s(at) > self.limits.stall_s

    @property
    def stalls_at(self) -> float | None:
        """The time at which the user is told, unless a segment lands before; None: nothing waits."""
        since = self._waits_since
        return since + self.limits.stall_s if since is not None else None

    @property
    def _waits_since(self) -> float | None:
        if self._taken_at is not None:
            return self._taken_at
        return self._first_at if self._gathered else None

    def _cut_batch(self) -> list[bytes]:
        """As many records as fit into one segment, but one at least, and none beyond the next mark."""
        size, most = 0, self.limits.max_segment_bytes
        marked = self._marks[0] - self.durable if self._marks else None
        gathered = self._gathered
        for count, record in enumerate(gathered):
            size += len(record) + _LINE_OVERHEAD_BYTES
            if (size > most and count) or count == marked:
                batch, self._gathered = gathered[:count], gathered[count:]
                return batch
        self._gathered = []
        return gathered
