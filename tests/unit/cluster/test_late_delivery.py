"""What an outcome says that was stored before all events were delivered."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from raysweep.cluster.interrupts import Interrupts
from raysweep.cluster.late_delivery import deliver_rest
from raysweep.runs.folder import SweepFolder
from raysweep.storage.objects.opening import open_store
from tests.unit.pipeline.gates import swept

FIRST = ("callbacks (x): events were still being delivered",)


class Slow:
    """Takes as many looks as are given, and then says what it gave up; `on_look` happens at each."""

    def __init__(
        self, looks: int, notes: tuple[str, ...], on_look: Callable[[], object] = lambda: None
    ) -> None:
        self.looks, self.notes, self.on_look = looks, notes, on_look

    def finish(self, within_s: float | None = None) -> tuple[str, ...] | None:
        self.on_look()
        self.looks -= 1
        assert self.looks > -100, "it is waited for without an end"
        return self.notes if self.looks < 0 else None


@pytest.fixture
def folder(tmp_path: Path) -> SweepFolder:
    found = SweepFolder(open_store(tmp_path), "n1")
    found.write_outcome_if_absent(swept("n1", 0.5).model_copy(update={"notes": ("kept", *FIRST)}))
    return found


def notes_of(folder: SweepFolder) -> tuple[str, ...]:
    outcome = folder.read_outcome()
    assert outcome is not None
    return outcome.notes


@pytest.mark.parametrize("given_up", [(), ("callback x: 3 events were not delivered in time",)])
def test_the_note_is_replaced_by_what_was_given_up(folder: SweepFolder, given_up: tuple[str, ...]) -> None:
    assert deliver_rest(folder, Slow(3, given_up), FIRST, Interrupts()) == given_up
    assert notes_of(folder) == ("kept", *given_up)


def test_where_another_process_continues_the_sweep_this_one_stops(folder: SweepFolder) -> None:
    assert deliver_rest(folder, Slow(1000, (), folder.archive_outcome), FIRST, Interrupts()) == ()
    assert folder.read_outcome() is None


def test_an_interrupt_ends_the_wait_and_the_note_stays(folder: SweepFolder) -> None:
    interrupts = Interrupts()
    assert deliver_rest(folder, Slow(1000, (), interrupts.interrupt), FIRST, interrupts) == FIRST
    assert notes_of(folder) == ("kept", *FIRST)
