"""After a sweep's end: its outcome is stored, and events are still being delivered to its callbacks."""

from __future__ import annotations

import logging
from typing import Final, Protocol

from raysweep.cluster.interrupts import Interrupts
from raysweep.errors import StorageError
from raysweep.outcome import SweepOutcome
from raysweep.runs.folder import SweepFolder

LOOK_S: Final = 0.5
"""The seconds between two looks if another process continues the sweep, or a person wants to leave."""
Notes = tuple[str, ...]
log = logging.getLogger("raysweep")


class Delivering(Protocol):
    """`delivery.beside.Beside` is one."""

    def finish(self, within_s: float | None = None) -> Notes | None:
        """See there."""
        ...


class _Leaver:
    """The effect of an interrupt now: the outcome is there, so nothing is lost by leaving."""

    is_asked = False

    def interrupt(self, name: str = "Ctrl-C") -> None:
        self.is_asked = True

    def cancel(self, reason: str) -> None:
        self.is_asked = True


def deliver_rest(folder: SweepFolder, beside: Delivering, first: Notes, interrupts: Interrupts) -> Notes:
    """Wait for the callbacks, and replace the outcome's notes `first` by what was given up.

    Another process may continue the sweep meanwhile, and then calls the callbacks itself. An interrupt ends
    the wait: the notes stay as they are.

    Returns the notes that hold at the end.
    """
    leaver = _Leaver()
    interrupts.pass_to(leaver)
    notes: Notes | None = None
    while notes is None:
        if leaver.is_asked:
            return first
        notes = beside.finish(LOOK_S)
        try:
            if notes is None and not folder.has_outcome():
                return ()
        except StorageError as error:
            log.info("callbacks: whether the sweep continues elsewhere is looked at later: %s", error)
    given_up = notes

    def mended(outcome: SweepOutcome) -> SweepOutcome:
        kept = tuple(note for note in outcome.notes if note not in first)
        return outcome.model_copy(update={"notes": (*kept, *given_up)})

    try:
        folder.mend_outcome(mended)
    except StorageError as error:
        log.warning("callbacks: what was delivered after the end is not in the outcome: %s", error)
    return notes
