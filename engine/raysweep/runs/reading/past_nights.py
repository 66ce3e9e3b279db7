"""Earlier nights of a name, for estimates and plans."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raysweep.errors import RaysweepError
from raysweep.estimates import Past, past_of
from raysweep.outcome import Standing, SweepOutcome
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.listing import ids_of, list_runs
from raysweep.specs.identity import slug
from raysweep.storage.objects.store import Store

LAST: Final = 3
"""The number of the newest nights that an estimate looks at."""
MAX_TRIALS: Final = 20_000
"""An outcome with more trials is not read: it is large, and says no more."""


def past_outcomes(store: Store, name: str, *, but: str = "", last: int = LAST) -> list[SweepOutcome]:
    """The outcomes of the newest ended sweeps of a name, the newest first; `but`: not that of this id.

    Those that cannot be read are left out, and those in which no trial completed. Raises: StorageError.
    """
    found: list[SweepOutcome] = []
    for run in _newest(list_runs(store, [each for each in ids_of(store, slug(name)) if each != but])):
        if len(found) >= last:
            break
        try:
            outcome = SweepFolder(store, run.run_id).read_outcome()
        except RaysweepError:
            continue
        if outcome is not None:
            found.append(outcome)
    return found


def past_nights(store: Store, name: str, *, but: str = "", last: int = LAST) -> tuple[Past, ...]:
    """The same, as far as an estimate looks at them."""
    return tuple(map(past_of, past_outcomes(store, name, but=but, last=last)))


def _newest(runs: Sequence[Standing]) -> list[Standing]:
    usable = [
        run
        for run in runs
        if run.kind == "sweep"
        and run.has_ended
        and run.counts.get("completed", 0)
        and run.counts.total <= MAX_TRIALS
    ]
    return sorted(usable, key=lambda run: -(run.started_at or 0.0))
