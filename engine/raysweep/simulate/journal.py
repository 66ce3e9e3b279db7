"""The journal's writer in virtual time: the real segments in the real order, without a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raysweep.simulate.clock import Clock
from raysweep.storage.journal.commit import CommitLimits, CommitPolicy
from raysweep.storage.journal.journal import Claim, JournalBackend, append_once
from raysweep.storage.journal.segment import SegmentHeader, encode_segment


class SimulatedWriter:
    """Commits by `policy`, as `JournalWriter` does; a put takes `put_s`."""

    def __init__(
        self, clock: Clock, backend: JournalBackend, claim: Claim, *, put_s: float, interval_s: float
    ) -> None:
        self.policy = CommitPolicy(CommitLimits(interval_s=interval_s))
        self._clock = clock
        self._backend = backend
        self._claim = claim
        self._next_number = claim.next_number
        self.put_s = put_s
        self._armed = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._unsealed: list[tuple[int, Callable[[], None]]] = []
        self._compaction: Iterator[None] | None = None

    @property
    def appends(self) -> int:
        """The number of segments that were stored, without the claim's."""
        return self.policy.segments

    @property
    def last_segment(self) -> int:
        """The number of the last segment that was stored."""
        return self._next_number - 1

    @property
    def is_durable(self) -> bool:
        """True if everything written is stored."""
        return self.policy.is_durable

    @property
    def is_stalled(self) -> bool:
        """True if the journal lags so far behind that the user is told."""
        return self.policy.is_stalled(self._clock.now)

    def write(self, record: bytes) -> None:
        """Hand over one record."""
        self.policy.write(record, self._clock.now)
        self._arm()

    def when_durable(self, call: Callable[[], None]) -> None:
        """Call once everything written so far is stored; it is stored at once for that."""
        if self.is_durable:
            self._clock.after(0.0, call)
            return
        self._waiting.append((self.policy.want(), call))
        self._arm()

    def when_sealed(self, call: Callable[[], None]) -> None:
        """Call once everything written so far lies in segments behind which there is another."""
        self._unsealed.append((self.policy.written, call))

    def _arm(self) -> None:
        due_at = self.policy.commit_at(self._clock.now)
        if due_at is None:
            return
        self._armed += 1
        armed = self._armed
        self._clock.at(due_at, lambda: self._commit() if armed == self._armed else None)

    def _commit(self) -> None:
        batch = self.policy.take(self._clock.now)
        self._armed += 1  # nothing is due before it has landed
        self._clock.after(self.put_s, lambda: self._land(batch))

    def _land(self, batch: list[bytes]) -> None:
        number = self._next_number
        header = SegmentHeader(generation=self._claim.generation, number=number, writer=self._claim.writer)
        append_once(self._backend, number, encode_segment(header, batch))
        self._next_number += 1
        self.policy.land()
        if self._compaction is None and self.policy.is_compaction_due:
            self._start_compaction()
        ready = _take_due(self._waiting, self.policy.durable)
        sealed = _take_due(self._unsealed, self.policy.sealed)
        for call in [*ready, *sealed]:
            call()
        self._arm()

    def _start_compaction(self) -> None:
        compact = getattr(self._backend, "compact", None)
        if compact is not None:
            self._compaction = compact()
            self._clock.after(0.0, self._compact_step)

    def _compact_step(self) -> None:
        assert self._compaction is not None
        try:
            next(self._compaction)
        except StopIteration:
            self._compaction = None
            return
        self._clock.after(self.put_s, self._compact_step)


def _take_due(waiting: list[tuple[int, Callable[[], None]]], reached: int) -> list[Callable[[], None]]:
    """Take out the calls that waited for at most `reached` records."""
    due = [call for target, call in waiting if target <= reached]
    waiting[:] = [entry for entry in waiting if entry[0] > reached]
    return due
