"""Before a sweep is said to have ended: is all there that the outcome promises?

Whatever deletes files under a sweep that runs (a cleanup by age, half an `rm -r`) is seen here at the latest:
its own segment at each look (`SweepFolder.check_is_there`), the journal and the best checkpoint at the end.
"""

from __future__ import annotations

from time import sleep
from typing import Final

from raysweep.core.state.sweep import SweepState
from raysweep.core.views.result import best_shown
from raysweep.errors import CheckpointDamagedError, SweepDamagedError
from raysweep.runs.folder import SweepFolder, lost_part
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.journal.names import SegmentObject, cover
from raysweep.storage.journal.objects import ObjectJournal

_LISTINGS: Final = 4
"""A listing may miss what is merged while it runs: only what several of them miss is gone."""
_PAUSE_S: Final = 0.1


def check_end(folder: SweepFolder, state: SweepState, *, claim: int, last: int) -> None:
    """See that the journal has no gap, and that the best trial's checkpoint can be restored.

    Two listings and a manifest; no object of the checkpoint is read.

    Args:
        folder: The sweep's.
        state: As the journal has it.
        claim: The number of the segment that is this controller's claim.
        last: The number of the last segment that was written.

    Raises:
        SweepDamagedError: Something is gone.
        StorageError: The storage does not answer.
    """
    folder.check_is_there(claim)
    check_journal(folder, last)
    _check_best(folder, state)


def check_journal(folder: SweepFolder, last: int) -> None:
    """See that the journal has no gap up to segment `last`. Raises: SweepDamagedError."""
    backend = ObjectJournal(folder.store, f"{folder.sweep_id}/journal")
    reached = 0
    for listing in range(_LISTINGS):
        sleep(_PAUSE_S * listing)
        reached = max((item.last for item in cover(backend.list_objects(), 1)), default=0)
        if reached >= last:
            return
    raise lost_part(backend.source(SegmentObject(first=reached + 1, last=reached + 1)))


def _check_best(folder: SweepFolder, state: SweepState) -> None:
    best = best_shown(state)
    if best is None or best.checkpoint is None:
        return
    store = CheckpointStore(folder.store, folder.sweep_id)
    try:
        missing = store.find_missing(best.checkpoint.uri)
    except CheckpointDamagedError as error:
        raise SweepDamagedError(error.path, f"{error.problem}, and it is the best trial's", _FIX) from error
    if missing:
        problem = "is gone, and the best trial's checkpoint needs it"
        raise SweepDamagedError(f"{folder.store.url}/{missing[0]}", problem, _FIX)


_FIX: Final = (
    "put it back, and run it again with the same key; `raysweep trials` reads the scores from the journal,"
    " and `raysweep restart` begins anew"
)
