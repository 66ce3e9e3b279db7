"""The journal's writer in virtual time: the real segments in the real order, without a thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raysweep.simulate.clock import Clock
from raysweep.storage.journal import Claim, JournalBackend, append_once
from raysweep.storage.segment import SegmentHeader, encode_segment
from raysweep.storage.writer import COMPACT_EVERY, GATHER_S


class SimulatedWriter:
    """Groups records as `storage.writer.JournalWriter` does: one put at a time, at most one an interval."""

    def __init__(
        self, clock: Clock, backend: JournalBackend, claim: Claim, *, put_s: float, interval_s: float
    ) -> None:
        self.appends = 0
        self._clock = clock
        self._backend = backend
        self._claim = claim
        self._next_number = claim.next_number
        self._put_s = put_s
        self._interval_s = interval_s
        self._buffer: list[bytes] = []
        self._first_at = self._committed_at = 0.0
        self._written = self._durable = self._wanted = 0
        self._is_putting = False
        self._armed = 0
        self._waiting: list[tuple[int, Callable[[], None]]] = []
        self._unsealed: list[tuple[int, Callable[[], None]]] = []
        self._compaction: Iterator[None] | None = None

    @property
    def is_durable(self) -> bool:
        """Whether everything written is stored."""
        return self._durable == self._written

    def write(self, record: bytes) -> None:
        """Hand over one record."""
        if not self._buffer:
            self._first_at = self._clock.now
        self._buffer.append(record)
        self._written += 1
        self._arm()

    def when_durable(self, call: Callable[[], None]) -> None:
        """Call once everything written so far is stored; it is stored at once for that."""
        if self.is_durable:
            self._clock.after(0.0, call)
            return
        self._wanted = self._written
        self._waiting.append((self._written, call))
        self._arm()

    def when_sealed(self, call: Callable[[], None]) -> None:
        """Call once everything written so far lies in segments behind which there is another."""
        self._unsealed.append((self._written, call))

    def _arm(self) -> None:
        if self._is_putting or not self._buffer:
            return
        due_at = max(self._first_at + GATHER_S, self._committed_at + self._interval_s)
        if self._wanted > self._durable:
            due_at = self._clock.now
        self._armed += 1
        armed = self._armed
        self._clock.at(due_at, lambda: self._commit() if armed == self._armed else None)

    def _commit(self) -> None:
        if self._is_putting or not self._buffer:
            return
        self._is_putting = True
        self._committed_at = self._clock.now
        batch, self._buffer = self._buffer, []
        self._clock.after(self._put_s, lambda: self._land(batch))

    def _land(self, batch: list[bytes]) -> None:
        number = self._next_number
        header = SegmentHeader(generation=self._claim.generation, number=number, writer=self._claim.writer)
        append_once(self._backend, number, encode_segment(header, batch))
        self.appends += 1
        self._next_number += 1
        sealed = [call for target, call in self._unsealed if target <= self._durable]
        self._unsealed = [entry for entry in self._unsealed if entry[0] > self._durable]
        self._durable += len(batch)
        self._is_putting = False
        if self._compaction is None and self.appends % COMPACT_EVERY == 0:
            self._start_compaction()
        ready = [call for target, call in self._waiting if target <= self._durable]
        self._waiting = [entry for entry in self._waiting if entry[0] > self._durable]
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
        self._clock.after(self._put_s, self._compact_step)
