"""Sweeps whose journals were recorded, as folders of a storage; and their events as callbacks get them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from raysweep.core.vocabulary.codec import decode
from raysweep.core.vocabulary.events import ControllerStarted
from raysweep.delivery.feed import Feed, Item
from raysweep.hooks.events import Notice
from raysweep.hooks.spec import CallbackSpec
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.storage.journal.journal import Claim, Journal
from raysweep.storage.journal.segment import SegmentHeader, encode_segment
from raysweep.storage.objects.opening import open_store
from tests.golden.replay import GOLDEN, read_expected

SWEEP = "golden-1"
SEGMENT = 20
"""Records in a segment."""
KIND = "tests.unit.delivery.callbacks:Writes"


class GoldenSweep:
    """A recorded journal that is written to a folder piece by piece, as its controllers did."""

    def __init__(self, name: str, storage: Path, sweep_id: str = SWEEP) -> None:
        self.name = name
        self.folder = SweepFolder(open_store(storage), sweep_id)
        expected = read_expected(name)
        self.outcome = expected["outcome"]
        record = SweepRecord(digest="", key="key", seed=expected["seed"], spec=expected["spec"])
        self.folder.write_spec_if_absent(record)
        self._lines = (GOLDEN / f"{name}.jsonl").read_bytes().splitlines()
        self._journal = Journal.open(self.folder.store, sweep_id)
        self._claim: Claim | None = None
        self._number = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it is written."""
        return not self._lines

    def write(self, count: int | None = None) -> None:
        """Write the next `count` records; None: all that are left."""
        count = len(self._lines) if count is None else count
        lines, self._lines = self._lines[:count], self._lines[count:]
        for piece in _pieces(lines):
            if isinstance(decode(piece[0]), ControllerStarted):
                for _ in self._journal.read():
                    pass
                self._claim = self._journal.claim(lambda generation, line=piece[0]: line)  # type: ignore[misc]
                self._number = self._claim.next_number
                continue
            assert self._claim is not None
            header = SegmentHeader(
                generation=self._claim.generation, number=self._number, writer=self._claim.writer
            )
            self._journal.backend.append(self._number, encode_segment(header, piece))
            self._number += 1

    def items(self) -> list[Item]:
        """All events of what is written."""
        return Feed(self.folder).read(1_000_000)


def writes(path: Path, **options: object) -> CallbackSpec:
    """The callback of `callbacks.Writes`."""
    return CallbackSpec.of({KIND: {"path": str(path), **options}})


def ids_of(sweep: GoldenSweep) -> list[str]:
    """The ids of the events that `callbacks.Writes` gets."""
    return [item.event.id for item in sweep.items() if not isinstance(item.event, Notice)]


def _pieces(lines: list[bytes]) -> Iterator[list[bytes]]:
    piece: list[bytes] = []
    for line in lines:
        is_claim = isinstance(decode(line), ControllerStarted)
        if piece and (is_claim or len(piece) >= SEGMENT):
            yield piece
            piece = []
        if is_claim:
            yield [line]
        else:
            piece.append(line)
    if piece:
        yield piece
