"""The journal's writer: a thread that makes what the controller writes durable, in groups.

`write` appends to a list; the thread joins what has gathered into one segment and puts it when the policy in
`commit.py` decides. What is written but not durable is bounded: `write` blocks at the bound, so an outage of
the storage slows the sweep down instead of filling the memory. The thread also runs compaction, one small
step at a time, whenever nothing is due.

An outage of the storage is waited out for `give_up_after_s`. `is_crowded` says when half of the bound is used
up: a caller that can stop taking work in should do so then, as `write` is no place to wait for one with other
things to do.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from time import monotonic
from typing import Literal

from raysweep.errors import (
    FencedError,
    RaysweepError,
    SegmentExistsError,
    StorageError,
    StorageUnavailableError,
)
from raysweep.storage.journal.commit import (
    COMPACT_EVERY,
    INTERVAL_S,
    MAX_PENDING_BYTES,
    MAX_SEGMENT_BYTES,
    CommitLimits,
    CommitPolicy,
)
from raysweep.storage.journal.journal import JournalBackend, append_once
from raysweep.storage.journal.segment import SegmentHeader, encode_segment, read_header
from raysweep.storage.objects.retries import retrying

GIVE_UP_AFTER_S = 600.0
"""The limit for the retries of one segment, before the writing ends with StorageUnavailableError."""
# An outage shorter than this is not worth a line.
NOTE_AFTER_S = 2.0

# A request that was under way when the time was up may take this long to fail.
_LAST_REQUEST_S = 60.0


class JournalWriter:
    """Appends records behind a claim.

    `on_error` is called once, from the thread, with what ended the writing: `FencedError` (a newer controller
    has the sweep) or `StorageUnavailableError` (after `give_up_after_s`). The same error comes from every
    later call. `on_note` hears of outages while they are waited out, and of what went wrong with compaction:
    neither loses anything.
    """

    def __init__(
        self,
        backend: JournalBackend,
        generation: int,
        next_number: int,
        on_error: Callable[[RaysweepError], None],
        *,
        sweep_id: str = "",
        writer: str = "",
        interval_s: float = INTERVAL_S,
        give_up_after_s: float = GIVE_UP_AFTER_S,
        max_pending_bytes: int = MAX_PENDING_BYTES,
        max_segment_bytes: int = MAX_SEGMENT_BYTES,
        compact_every: int = COMPACT_EVERY,
        on_note: Callable[[str], None] | None = None,
    ) -> None:
        self._backend = backend
        self._generation = generation
        self._next_number = next_number
        self._on_error = on_error
        self._on_note = on_note
        self._sweep_id = sweep_id
        self._token = writer
        self._give_up_after_s = give_up_after_s
        self._policy = CommitPolicy(
            CommitLimits(
                interval_s=interval_s,
                max_pending_bytes=max_pending_bytes,
                max_segment_bytes=max_segment_bytes,
                compact_every=compact_every,
            )
        )

        lock = threading.Lock()
        self._lock = lock
        self._work = threading.Condition(lock)  # the thread waits here
        self._progress = threading.Condition(lock)  # flush, close and a blocked write wait here
        self._abort = threading.Event()
        self._marks: deque[tuple[int, Callable[[int], None]]] = deque()
        self._is_closing = False
        self._error: RaysweepError | None = None
        self._compaction: Iterator[None] | None = None
        self._thread = threading.Thread(target=self._run, name="raysweep-journal", daemon=True)
        self._thread.start()

    def __enter__(self) -> JournalWriter:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def pending_bytes(self) -> int:
        """Bytes written but not durable yet."""
        return self._policy.pending_bytes

    @property
    def is_crowded(self) -> bool:
        """True if half of the bound was used up, and a quarter or more still is: take no more work in."""
        return self._error is None and self._policy.is_crowded

    @property
    def written(self) -> int:
        """The number of records handed over so far."""
        return self._policy.written

    @property
    def durable(self) -> int:
        """The number of these that are durable."""
        return self._policy.durable

    @property
    def behind_s(self) -> float:
        """The seconds that the oldest record which is not durable yet has waited."""
        with self._lock:
            return self._policy.behind_s(monotonic())

    @property
    def is_stalled(self) -> bool:
        """True if the journal lags so far behind that the user is told."""
        with self._lock:
            return self._policy.is_stalled(monotonic())

    @property
    def sealed(self) -> int:
        """The number of records in segments that have a later one behind them: no torn end can take these."""
        return self._policy.sealed

    @property
    def next_number(self) -> int:
        """The number of the segment that is written next; everything below is durable."""
        return self._next_number

    @property
    def error(self) -> RaysweepError | None:
        """The error that ended the writing, if one did."""
        return self._error

    def write(self, record: bytes) -> None:
        """Hand over one record (JSON without newlines). Returns at once, unless too much is pending.

        Raises: FencedError, StorageUnavailableError: what ended the writing. ValueError: a newline, or
        closed.
        """
        if b"\n" in record:
            raise ValueError("a journal record must not contain a newline")
        policy = self._policy
        with self._lock:
            if policy.is_full:
                self._progress.wait_for(self._has_room)
            if self._error is not None or self._is_closing:
                self._refuse()
            if policy.write(record, monotonic()):
                self._work.notify()

    def mark(self, then: Callable[[int], None]) -> None:
        """Have a segment end behind what was written so far; `then` gets its number once it is durable.

        It is called from the thread, or at once where all is durable already; not where the writing ends
        before. It must not raise.
        """
        with self._lock:
            if not self._policy.is_durable:
                self._marks.append((self._policy.mark(), then))
                return
            number = self._next_number - 1
        then(number)

    def flush(self, timeout_s: float | None = None) -> None:
        """Block until everything written before this call is durable.

        Raises: FencedError, StorageUnavailableError (also when `timeout_s` passes first; writing continues
        then).
        """
        with self._lock:
            policy, target = self._policy, self._policy.want()
            self._work.notify()
            self._progress.wait_for(lambda: policy.durable >= target or self._error is not None, timeout_s)
            if policy.durable >= target:
                return
            if self._error is not None:
                raise self._error.with_traceback(None)
            raise self._unavailable(f"{policy.pending_bytes} bytes are not durable after {timeout_s} s")

    def close(self, timeout_s: float | None = None) -> None:
        """Make everything durable and end the thread. Closing twice is fine.

        `timeout_s` is by default as long as an outage is waited out.

        Raises: what ended the writing, if records were lost by it; StorageUnavailableError when `timeout_s`
        passes.
        """
        with self._lock:
            self._is_closing = True
            self._policy.want()
            self._work.notify()
        if timeout_s is None:
            timeout_s = self._give_up_after_s + _LAST_REQUEST_S
        self._thread.join(timeout_s)
        self._abort.set()
        with self._lock:
            lost = self._policy.written - self._policy.durable
            if not lost:
                return
            if self._error is not None:
                raise self._error.with_traceback(None)
            raise self._unavailable(f"{lost} records are not durable {timeout_s} s after closing")

    def _has_room(self) -> bool:
        return not self._policy.is_full or self._error is not None or self._is_closing

    def _refuse(self) -> None:
        if self._error is not None:
            raise self._error.with_traceback(None)
        raise ValueError("the journal writer is closed")

    def _run(self) -> None:
        try:
            while (work := self._wait_for_work()) != "end":
                if work == "commit":
                    self._commit()
                else:
                    self._compact_step()
        except RaysweepError as error:
            self._stop(error)
        except Exception as error:  # noqa: BLE001 - a bug must reach the controller, not end a thread unseen
            failure = self._unavailable(f"the writer failed: {type(error).__name__}: {error}")
            failure.__cause__ = error
            self._stop(failure)

    def _wait_for_work(self) -> Literal["commit", "compact", "end"]:
        with self._lock:
            while True:
                now = monotonic()
                due_at = self._policy.commit_at(now)
                if due_at is not None and due_at <= now:
                    return "commit"
                if due_at is None and self._is_closing:
                    return "end"
                if self._compaction is not None:
                    return "compact"
                self._work.wait(None if due_at is None else due_at - now)

    def _commit(self) -> None:
        with self._lock:
            batch = self._policy.take(monotonic())
        header = SegmentHeader(generation=self._generation, number=self._next_number, writer=self._token)
        self._append(self._next_number, encode_segment(header, batch))
        with self._lock:
            self._next_number += 1
            self._policy.land()
            if self._compaction is None and self._policy.is_compaction_due:
                self._start_compaction()
            self._progress.notify_all()
            reached = self._take_marks()
        for then in reached:
            then(header.number)

    def _take_marks(self) -> list[Callable[[int], None]]:
        reached: list[Callable[[int], None]] = []
        while self._marks and self._marks[0][0] <= self._policy.durable:
            reached.append(self._marks.popleft()[1])
        return reached

    def _append(self, number: int, data: bytes) -> None:
        started = monotonic()
        has_said = False

        def say(error: BaseException) -> None:
            nonlocal has_said
            if not has_said and monotonic() - started >= NOTE_AFTER_S:
                has_said = True
                limit = f"for up to {self._give_up_after_s:.0f} s"
                self._say(f"storage does not answer, reports wait in memory {limit}: {error}")

        try:
            retrying(self._give_up_after_s, self._abort, say)(append_once, self._backend, number, data)
            if has_said:
                self._say(f"storage answers again after {monotonic() - started:.0f} s; nothing was lost")
        except SegmentExistsError as error:
            raise FencedError(self._sweep_id, self._generation, self._generation_at(number)) from error
        except StorageError as error:
            if not error.retryable:
                raise
            tried_s = monotonic() - started
            problem = f"segment {number} could not be written for {tried_s:.0f} s: {error.problem}"
            raise StorageUnavailableError(error.path, problem, error.fix) from error

    def _generation_at(self, number: int) -> int:
        segment = retrying(30.0, self._abort)(lambda: next(iter(self._backend.read_from(number)), None))
        header = read_header(segment) if segment else None
        return header.generation if header else self._generation + 1

    def _start_compaction(self) -> None:
        compact = getattr(self._backend, "compact", None)
        self._compaction = compact() if compact is not None else None

    def _compact_step(self) -> None:
        """One step; a failure ends this round of compaction, and the next starts over from what is there."""
        assert self._compaction is not None
        try:
            next(self._compaction)
        except StopIteration:
            self._compaction = None
        except StorageError as error:
            self._compaction = None
            self._say(f"journal compaction put off: {error}")

    def _say(self, note: str) -> None:
        if self._on_note is not None:
            self._on_note(note)

    def _stop(self, error: RaysweepError) -> None:
        with self._lock:
            self._error = error
            self._progress.notify_all()
        self._on_error(error)

    def _unavailable(self, problem: str) -> StorageUnavailableError:
        return StorageUnavailableError("journal", problem, "check the storage")
