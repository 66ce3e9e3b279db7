"""The commit policy: when a segment is due, what it makes durable, and what is said while storage lags."""

from __future__ import annotations

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raysweep.simulate.clock import Clock
from raysweep.simulate.journal import SimulatedWriter
from raysweep.storage.journal.commit import CommitLimits, CommitPolicy
from raysweep.storage.journal.journal import Journal
from raysweep.testing import MemoryBackend

LIMITS = CommitLimits(
    interval_s=1.0,
    gather_s=0.1,
    stall_s=5.0,
    max_pending_bytes=1000,
    max_segment_bytes=200,
    compact_every=2,
)
RECORD = b"x" * 40
SIZE = 50  # with what a line costs


@pytest.fixture
def policy() -> CommitPolicy:
    return CommitPolicy(LIMITS)


def commit(policy: CommitPolicy, at: float) -> list[bytes]:
    batch = policy.take(at)
    policy.land()
    return batch


# -- when ----------------------------------------------------------------------------------------------------


def test_a_segment_may_be_full_to_the_last_byte(policy: CommitPolicy) -> None:
    """Four records of 50 bytes, with their lines, are 200; the fifth waits for the next."""
    for _ in range(5):
        policy.write(RECORD, 100.0)
    assert len(commit(policy, 101.0)) == LIMITS.max_segment_bytes // SIZE == 4
    assert len(commit(policy, 102.0)) == 1


def test_without_records_nothing_is_due(policy: CommitPolicy) -> None:
    assert policy.commit_at(100.0) is None
    policy.want()
    assert policy.commit_at(100.0) is None


def test_after_a_quiet_time_a_record_waits_only_for_those_that_come_with_it(policy: CommitPolicy) -> None:
    assert policy.write(b"1", 100.0)
    assert policy.commit_at(100.0) == 100.1
    assert not policy.write(b"2", 100.05)
    assert policy.commit_at(100.05) == 100.1
    assert commit(policy, 100.1) == [b"1", b"2"]


def test_then_records_gather_for_an_interval_from_the_last_commits_begin(policy: CommitPolicy) -> None:
    policy.write(b"1", 100.0)
    policy.take(100.1)
    policy.write(b"2", 100.2)
    policy.land()
    assert policy.commit_at(100.6) == 101.1
    assert commit(policy, 101.1) == [b"2"]
    policy.write(b"3", 102.5)
    assert policy.commit_at(102.5) == 102.6


def test_what_somebody_waits_for_is_committed_at_once(policy: CommitPolicy) -> None:
    commit_one(policy, 100.0)
    policy.write(b"2", 100.2)
    assert policy.want() == 2
    assert policy.commit_at(100.3) == 100.3
    commit(policy, 100.3)
    policy.write(b"3", 100.4)
    assert policy.commit_at(100.5) == 101.3, "nobody waits for this one"


def commit_one(policy: CommitPolicy, at: float) -> None:
    policy.write(b"1", at)
    commit(policy, at)


def test_what_fills_a_segment_is_committed_at_once(policy: CommitPolicy) -> None:
    commit_one(policy, 100.0)
    for _ in range(3):
        policy.write(RECORD, 100.1)
    assert policy.commit_at(100.2) == 101.0
    policy.write(RECORD, 100.2)
    assert policy.pending_bytes == LIMITS.max_segment_bytes
    assert policy.commit_at(100.2) == 100.2


def test_nothing_is_taken_before_the_segment_under_way_has_landed(policy: CommitPolicy) -> None:
    policy.write(b"1", 100.0)
    policy.take(100.1)
    policy.write(b"2", 100.2)
    assert policy.want() == 2
    assert policy.is_committing
    assert policy.commit_at(200.0) is None
    with pytest.raises(AssertionError, match="one segment at a time"):
        policy.take(200.0)
    policy.land()
    assert policy.commit_at(200.0) == 200.0


# -- what is in it -------------------------------------------------------------------------------------------


def test_a_segment_holds_what_fits_and_one_record_at_least(policy: CommitPolicy) -> None:
    large = b"y" * 500
    written = [RECORD] * 5 + [large, b"z"]
    for record in written:
        policy.write(record, 100.0)
    policy.want()
    segments = []
    while policy.commit_at(100.0) == 100.0:
        segments.append(commit(policy, 100.0))
    assert segments == [[RECORD] * 4, [RECORD], [large], [b"z"]]
    assert (policy.pending_bytes, policy.is_durable) == (0, True)


# -- what it makes of them -----------------------------------------------------------------------------------


def test_a_landed_segment_is_durable_and_seals_the_one_before(policy: CommitPolicy) -> None:
    policy.write(b"1", 100.0)
    policy.write(b"2", 100.0)
    policy.take(100.1)
    policy.write(b"3", 100.2)
    assert (policy.written, policy.durable, policy.sealed) == (3, 0, 0)
    policy.land()
    assert (policy.written, policy.durable, policy.sealed) == (3, 2, 0)
    commit(policy, 101.1)
    assert (policy.written, policy.durable, policy.sealed) == (3, 3, 2)
    with pytest.raises(AssertionError, match="no segment is under way"):
        policy.land()


def test_compaction_is_worth_it_every_so_many_segments(policy: CommitPolicy) -> None:
    due = [policy.is_compaction_due]
    for at in range(4):
        commit_one(policy, 100.0 + at)
        due.append(policy.is_compaction_due)
    assert due == [False, False, True, False, True]


# -- while the storage lags ----------------------------------------------------------------------------------


def test_it_is_crowded_from_a_half_to_a_quarter_of_the_bound(policy: CommitPolicy) -> None:
    for count in range(1, 21):
        assert not policy.is_full
        policy.write(RECORD, 100.0)
        assert policy.is_crowded == (count * SIZE >= 500)
    assert policy.is_full
    crowded = []
    while policy.pending_bytes:
        commit(policy, 100.0)
        crowded.append((policy.pending_bytes, policy.is_crowded))
    assert crowded == [(800, True), (600, True), (400, True), (200, False), (0, False)]


def test_how_far_it_lags_and_when_that_is_said(policy: CommitPolicy) -> None:
    assert (policy.behind_s(100.0), policy.stalls_at) == (0.0, None)
    policy.write(b"1", 100.0)
    assert (policy.behind_s(103.0), policy.stalls_at) == (3.0, 105.0)
    policy.take(103.0)
    policy.write(b"2", 104.0)
    assert policy.behind_s(104.5) == 4.5, "the one under way is the oldest"
    assert not policy.is_stalled(105.0)
    assert policy.is_stalled(105.1)
    policy.land()
    assert (policy.behind_s(105.1), policy.stalls_at) == (pytest.approx(1.1), 109.0)
    assert not policy.is_stalled(105.1)


# -- any order of things -------------------------------------------------------------------------------------


class PolicyMachine(RuleBasedStateMachine):
    """Whatever comes when: in order, once each, never too much at once, and never left lying about."""

    def __init__(self) -> None:
        super().__init__()
        self.policy = CommitPolicy(LIMITS)
        self.now = 100.0
        self.written: list[bytes] = []
        self.segments: list[list[bytes]] = []
        self.landed = 0
        self.is_wanted = False

    @rule(size=st.integers(1, 300))
    def write(self, size: int) -> None:
        record = (b"%d" % len(self.written)).ljust(size, b"x")
        self.written.append(record)
        self.policy.write(record, self.now)
        self.is_wanted = False

    @rule()
    def want(self) -> None:
        assert self.policy.want() == len(self.written)
        self.is_wanted = True

    @rule(seconds=st.floats(0.0, 2.0))
    def wait(self, seconds: float) -> None:
        self.now += seconds

    @precondition(lambda self: not self.policy.is_committing)
    @rule()
    def take_if_due(self) -> None:
        due_at = self.policy.commit_at(self.now)
        if due_at is None:
            assert sum(map(len, self.segments)) == len(self.written)
        elif due_at <= self.now:
            self.segments.append(self.policy.take(self.now))
        else:
            assert due_at <= self.now + LIMITS.interval_s, "nothing waits longer than an interval"
            assert not self.is_wanted

    @precondition(lambda self: self.policy.is_committing)
    @rule()
    def land(self) -> None:
        self.policy.land()
        self.landed = len(self.segments)

    @invariant()
    def counts_are_true(self) -> None:
        policy, landed = self.policy, self.segments[: self.landed]
        assert [record for segment in self.segments for record in segment] == self.written[
            : sum(map(len, self.segments))
        ]
        assert policy.written == len(self.written)
        assert policy.durable == sum(map(len, landed))
        assert policy.sealed == sum(map(len, landed[:-1]))
        assert policy.segments == self.landed
        assert policy.pending_bytes == sum(len(record) + 10 for record in self.written[policy.durable :])
        for segment in self.segments:
            assert len(segment) == 1 or sum(len(record) + 10 for record in segment) <= 200


TestPolicyMachine = PolicyMachine.TestCase


# -- in virtual time -----------------------------------------------------------------------------------------


def test_the_simulated_writer_commits_by_the_policy() -> None:
    clock, backend = Clock(100.0), MemoryBackend()
    claim = Journal(backend).claim(lambda generation: b'"claim"')
    writer = SimulatedWriter(clock, backend, claim, put_s=3.0, interval_s=0.25)
    said: list[tuple[str, float]] = []
    writer.write(b"1")
    writer.when_durable(lambda: said.append(("1 durable", clock.now)))
    writer.when_sealed(lambda: said.append(("1 sealed", clock.now)))
    clock.at(101.0, lambda: writer.write(b"2"))
    clock.at(102.5, lambda: said.append((f"stalled {writer.is_stalled}", clock.now)))
    while clock.run_next():
        pass
    assert said == [("stalled True", 102.5), ("1 durable", 103.0), ("1 sealed", 106.0)]
    assert (writer.appends, writer.is_durable, writer.is_stalled) == (2, True, False)
    assert Journal(backend).contents().records == [b'"claim"', b"1", b"2"]


def test_a_segment_ends_at_a_mark(policy: CommitPolicy) -> None:
    policy.write(b"1", 10.0)
    policy.write(b"2", 10.0)
    assert policy.mark() == policy.mark() == 2
    policy.write(b"3", 10.0)
    assert policy.take(10.0) == [b"1", b"2"]
    policy.land()
    assert policy.take(10.0) == [b"3"]
    policy.land()
    policy.write(b"4", 10.0)
    assert policy.take(10.0) == [b"4"]


def test_a_mark_behind_what_is_under_way_ends_the_next_segment(policy: CommitPolicy) -> None:
    policy.write(b"1", 10.0)
    assert policy.take(10.0) == [b"1"]
    policy.mark()
    policy.write(b"2", 10.0)
    policy.mark()
    policy.write(b"3", 10.0)
    policy.land()
    assert policy.take(10.0) == [b"2"]
