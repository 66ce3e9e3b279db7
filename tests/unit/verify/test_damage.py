"""Every kind of damage to every kind of object: a resume refuses it by name or repairs it as promised, never
starts over, never restores what changed; and `verify` names the object.

The samples here are dense; the variants marked slow take every third byte of every object.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from raysweep.core import SweepState, decode, step
from raysweep.errors import CheckpointDamagedError, JournalDamagedError, SweepDamagedError
from raysweep.outcome import SweepOutcome
from raysweep.runs.ownership.sweep_claim import Ownership
from raysweep.storage.checkpoints.store import restore_uri
from raysweep.verify import verify_sweep
from tests.unit.verify.stored import SEED, Stored, copy_of, resume

# Nothing is read there before the outcome of a sweep that has ended.
KINDS = ("sweep.json", "outcome.json", "progress.json", "snapshots", "journal", "checkpoints")


@dataclass
class Lab:
    """A sweep that can be damaged and is whole again afterwards."""

    stored: Stored
    scratch: Path

    def __post_init__(self) -> None:
        self.pristine = {name: (self.stored.path / name).read_bytes() for name in self.stored.files()}
        orphans = {key for each in verify_sweep(self.stored.folder).orphans for key in each.keys}
        prefix = f"{self.stored.folder.sweep_id}/"
        self.names = sorted(name for name in self.pristine if prefix + name not in orphans)

    @contextmanager
    def damaged(self, name: str, data: bytes | None) -> Iterator[None]:
        """With this object's content changed, or the object gone."""
        path = self.stored.path / name
        if data is None:
            path.unlink()
        else:
            path.write_bytes(data)
        try:
            yield
        finally:
            for now in set(self.stored.files()) - self.pristine.keys():
                (self.stored.path / now).unlink()  # the claim of a resume
            path.write_bytes(self.pristine[name])

    def states(self) -> list[dict[str, object]]:
        """The states after 0, 1, 2, … records."""
        state = SweepState.create(self.stored.asked.spec, SEED)
        states: list[dict[str, object]] = [state.to_json()]
        for record in self.stored.folder.journal().contents().records:
            step(state, decode(record))
            states.append(state.to_json())
        return states

    def check(self, name: str) -> None:
        """The damage done to `name` is named by `verify`; and a resume does what was promised about it."""
        report = verify_sweep(self.stored.folder)
        named = [finding.object for finding in report.damage]
        assert name in named, f"verify does not name {name}, but {named}"
        assert all(finding.problem and finding.lost for finding in report.damage)
        kind = name.partition("/")[0]
        if kind == "sweep.json":
            with pytest.raises(SweepDamagedError, match=r"sweep\.json"):
                resume(self.stored)
        elif kind == "outcome.json":
            with pytest.raises(SweepDamagedError, match=r"outcome\.json.*verify --repair"):
                resume(self.stored)
        elif kind.startswith("trials-"):
            with pytest.raises(SweepDamagedError, match=r"trials-.*verify --repair"):
                resume(self.stored)
        elif kind == "journal" and self.stored.state.phase != "ended":
            with pytest.raises(JournalDamagedError, match=name.rpartition("/")[2]):
                resume(self.stored)
        else:
            self.check_nothing_is_lost()
        if kind == "checkpoints":
            self.check_is_not_restored(name)

    def check_nothing_is_lost(self) -> None:
        got = resume(self.stored)
        if isinstance(got, SweepOutcome):
            assert len(got) == len(self.stored.state.trials)
        else:
            assert got.state.to_json() == self.stored.state.to_json()

    def check_is_not_restored(self, name: str) -> None:
        _, trial, rest = name.split("/", 2)
        number = rest.partition("/")[0].partition("-")[0].removesuffix(".json")
        target = self.scratch / "restored"
        with pytest.raises(CheckpointDamagedError, match=trial):
            restore_uri(f"{self.stored.folder.uri}/checkpoints/{trial}/{number}", target)
        assert not target.exists()


@pytest.fixture(params=[True, False], ids=["ended", "unfinished"])
def lab(request: pytest.FixtureRequest, pristine: dict[bool, Stored], tmp_path: Path) -> Lab:
    return Lab(copy_of(pristine[request.param], tmp_path / "store"), tmp_path)


@pytest.fixture
def open_lab(pristine: dict[bool, Stored], tmp_path: Path) -> Lab:
    """With a sweep that has not ended."""
    return Lab(copy_of(pristine[False], tmp_path / "store"), tmp_path)


def flipped(data: bytes, position: int, bit: int) -> bytes:
    changed = bytearray(data)
    changed[position] ^= 1 << bit
    return bytes(changed)


def test_it_is_sound_before_it_is_damaged(lab: Lab) -> None:
    report = verify_sweep(lab.stored.folder)
    assert (report.is_sound, report.damage) == (True, ())
    # The outcome comes with the end, and the live status goes.
    absent = "progress.json" if lab.stored.state.phase == "ended" else "outcome.json"
    assert {name.partition("/")[0] for name in lab.names} >= set(KINDS) - {absent}
    lab.check_nothing_is_lost()


def check_torn_tail(lab: Lab, cut: int, states: list[dict[str, object]], *, verifies: bool) -> None:
    name = lab.stored.segments()[-1]
    with lab.damaged(name, lab.pristine[name][:cut]):
        if verifies:
            (finding,) = verify_sweep(lab.stored.folder).damage
            assert (finding.object, "resume" in finding.fix) == (name, True)
            assert "record" in finding.lost
        held = resume(lab.stored)
        assert isinstance(held, Ownership)
        (repair,) = held.journal.repairs
        assert name in repair.source
        assert "cut short" in str(repair)
        assert held.state.to_json() in states[-3:]  # of the last segment's records, those that are whole
        if verifies:
            report = verify_sweep(lab.stored.folder)
            assert report.is_sound
            assert [note.object for note in report.findings if note.severity == "note"] == [name]


def test_a_torn_tail_is_repaired_and_said(open_lab: Lab) -> None:
    """The last segment cut at many places; `tests/unit/storage/journal` cuts one at every byte."""
    states = open_lab.states()
    size = len(open_lab.pristine[open_lab.stored.segments()[-1]])
    for cut in (0, 1, *range(2, size - 1, 11), size - 1):
        check_torn_tail(open_lab, cut, states, verifies=cut % 4 == 0)


@pytest.mark.slow
def test_a_torn_tail_is_repaired_and_named_by_verify(open_lab: Lab) -> None:
    states = open_lab.states()
    for cut in range(len(open_lab.pristine[open_lab.stored.segments()[-1]])):
        check_torn_tail(open_lab, cut, states, verifies=True)


def check_cut(lab: Lab, name: str, cut: int) -> None:
    with lab.damaged(name, lab.pristine[name][:cut]):
        lab.check(name)


def test_an_earlier_segment_that_is_cut_short_is_refused(open_lab: Lab) -> None:
    names = open_lab.stored.segments()[:-1]
    for index, name in enumerate(names):
        for cut in range(7 * index, len(open_lab.pristine[name]), 97):
            check_cut(open_lab, name, cut)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(1800)
def test_every_object_cut_at_every_third_byte(lab: Lab) -> None:
    last = lab.stored.segments()[-1]
    for name in lab.names:
        if name != last:
            for cut in range(0, len(lab.pristine[name]), 3):
                check_cut(lab, name, cut)


def test_flipped_bits(lab: Lab) -> None:
    """A bit of each object, of the longer ones more."""
    chance = random.Random(1)
    for name in lab.names:
        data = lab.pristine[name]
        for _ in range(1 + len(data) // 400):
            with lab.damaged(name, flipped(data, chance.randrange(len(data)), chance.randrange(8))):
                lab.check(name)


@pytest.mark.slow
@pytest.mark.faults
@pytest.mark.timeout(3600)
def test_every_third_byte_with_a_flipped_bit(lab: Lab) -> None:
    chance = random.Random(2)
    for name in lab.names:
        data = lab.pristine[name]
        for position in range(0, len(data), 3):
            with lab.damaged(name, flipped(data, position, chance.randrange(8))):
                lab.check(name)


@pytest.mark.parametrize("every", [4, pytest.param(1, marks=pytest.mark.slow)])
def test_empty_objects(lab: Lab, every: int) -> None:
    """All but the last segment: that one is a torn tail."""
    alone = [name for name in lab.names if "/" not in name or name.startswith("snapshots")]
    for name in [*alone, *[name for name in lab.names if name not in alone][::every]]:
        if name != lab.stored.segments()[-1]:
            with lab.damaged(name, b""):
                lab.check(name)


@pytest.mark.parametrize("every", [9, pytest.param(1, marks=pytest.mark.slow)])
def test_missing_objects(lab: Lab, every: int) -> None:
    """What may be missing without a word: the heartbeat, a snapshot, what can be made again."""
    last = lab.stored.segments()[-1]  # see below
    alone = [name for name in lab.names if "/" not in name or name.startswith("snapshots")]
    many = [name for name in lab.names if name not in alone and name != last]
    may_be_missing = ("progress.json", "outcome.json", "snapshots")
    for name in [*alone, *many[::every]]:
        with lab.damaged(name, None):
            if name.startswith(may_be_missing):
                assert verify_sweep(lab.stored.folder).is_sound
                lab.check_nothing_is_lost()
            elif name == "sweep.json" and lab.stored.state.phase == "ended":
                assert name in [finding.object for finding in verify_sweep(lab.stored.folder).damage]
            else:
                lab.check(name)


def test_a_journal_that_lost_its_end_is_not_taken_for_whole(open_lab: Lab) -> None:
    """There is no gap then; the heartbeat, a snapshot and the checkpoints know that there was more."""
    stored = open_lab.stored
    segments = stored.segments()
    (claim,) = [n for n, name in enumerate(segments[12:], 12) if b'"claim":true' in open_lab.pristine[name]]
    for name in segments[claim:]:
        (stored.path / name).unlink()
    with pytest.raises(JournalDamagedError, match=r"ends in generation 2, but progress\.json is of 3"):
        resume(stored)
    assert "journal" in [finding.object for finding in verify_sweep(stored.folder).damage]

    (stored.path / "progress.json").unlink()
    for name in segments[11:claim]:
        (stored.path / name).unlink()
    with pytest.raises(JournalDamagedError, match="ends before segment 12, though a snapshot holds it"):
        resume(stored)
    (finding,) = [each for each in verify_sweep(stored.folder).damage if each.object == "journal"]
    assert "there is a snapshot of segment 12" in finding.problem

    (stored.path / "snapshots/000000000012.json").unlink()
    for name in segments[:11]:
        (stored.path / name).unlink()
    with pytest.raises(JournalDamagedError, match="is empty, but there are checkpoints"):
        resume(stored)


def test_an_outcome_whose_journal_lost_its_end(pristine: dict[bool, Stored], tmp_path: Path) -> None:
    lab = Lab(copy_of(pristine[True], tmp_path / "store"), tmp_path)
    with lab.damaged(lab.stored.segments()[-1], None):
        (finding,) = verify_sweep(lab.stored.folder).damage
        assert (finding.object, "has no end" in finding.problem) == ("journal", True)
        lab.check_nothing_is_lost()


def test_two_damaged_objects_are_both_named(open_lab: Lab) -> None:
    stored = open_lab.stored
    names = [stored.segments()[2], stored.segments()[9]]
    (stored.path / names[0]).unlink()
    (stored.path / names[1]).write_bytes(flipped(open_lab.pristine[names[1]], 200, 3))
    report = verify_sweep(stored.folder)
    assert sorted(finding.object for finding in report.damage) == names
    assert "up to segment 2" in report.readable
    assert report.status == "unreadable"
    # What refers to what is not known then: nothing may count as an orphan.
    assert report.orphans == ()
