"""Unfinished sweeps of the same name beside a sweep that is about to begin without a key of its own."""

from __future__ import annotations

import time

from raysweep.errors import RaysweepError
from raysweep.outcome import Standing
from raysweep.outcome.showing.formatting import show_age
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.listing import ids_of, list_runs
from raysweep.specs import RunRequest, SweepSpec, slug
from raysweep.specs.changes import changes
from raysweep.storage.objects.opening import open_store

SPEC_KEY = "spec-"
"""The beginning of the key of a sweep that was given none."""
_SHOWN = 3


def unfinished_sibling(request: RunRequest[SweepSpec]) -> str:
    """A sentence about the newest unfinished sweep of this name with another spec; empty where there is none.

    For a sweep without a key: any change of its spec makes it a new sweep, and one that was cut short stays
    unfinished beside it. A storage that cannot be read counts as empty; the sweep itself will say so.
    """
    try:
        found = _newest(request)
        if found is None:
            return ""
        folder = SweepFolder(open_store(request.spec.storage_path), found.run_id)
        record = folder.read_spec()
        diff = changes(SweepSpec.from_any(dict(record.spec)), request.spec) if record is not None else None
    except (RaysweepError, OSError):
        return ""
    lines = (*diff.unsafe, *diff.safe)[:_SHOWN] if diff is not None else ()
    total = "" if found.num_trials is None else f" of {found.num_trials}"
    age = "" if found.started_at is None else f", begun {show_age(time.time() - found.started_at)} ago"
    how = f"{found.status}, {found.counts.ended}{total} trials have ended{age}"
    differs = f" and has another spec ({'; '.join(lines)})" if lines else " and has another spec"
    return (
        f"{found.run_id} of the same name has not ended ({how}){differs}; without a key a changed spec is a"
        f" new sweep. `raysweep resume {found.run_id}` continues the other one; --key names one of your own"
    )


def _newest(request: RunRequest[SweepSpec]) -> Standing | None:
    run = request.run
    store = open_store(request.spec.storage_path)
    if store.exists(f"{run.id}/sweep.json"):
        return None
    open_ids = [
        each
        for each in ids_of(store, slug(run.name))
        if store.exists(f"{each}/sweep.json") and not store.exists(f"{each}/outcome.json")
    ]
    runs = [each for each in list_runs(store, open_ids) if each.key.startswith(SPEC_KEY)]
    return max(runs, key=lambda each: each.started_at or 0.0, default=None)
