"""The one list of the runs of a storage path: a request for each name, and some for each unfinished run.

    for run in sweeps("s3://bucket/sweeps", name="churn"):
        print(run.key, run.status, run.score)

A run that the `catalog` does not have is read by the head of its outcome, which has no trials; one that has
not ended by its heartbeat. No journal is read. Needs no Ray.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import Final

from raysweep.errors import RaysweepError, StorageError
from raysweep.outcome import Standing, TrainOutcome
from raysweep.runs.catalog import Catalog, read_catalog, stem_of
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.glances import glance, glance_training
from raysweep.runs.training import RunFolder
from raysweep.specs.identity import slug
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import each_of, run_folders, seems_there
from raysweep.storage.objects.store import Store

DEFAULT_STORAGE: Final = "~/raysweep"
_SOURCE: Final = "raysweep.sweep"
"""The tag of a training's spec that says which sweep its config is from."""


def sweeps(storage: str | None = None, *, name: str | None = None) -> tuple[Standing, ...]:
    """The sweeps at a storage path, the newest first; those of gates are among them.

    Args:
        storage: The storage path; default: `~/raysweep`.
        name: Only those of this name.

    Returns:
        A `Standing` for each: name, key, status, score, counts, times, usage. `rs.load(run.uri)` reads one
        with its trials.

    Raises:
        StorageError: The storage cannot be listed.
    """
    store = open_store(storage or DEFAULT_STORAGE)
    ids = run_folders(store) if name is None else ids_of(store, slug(name))
    found = [run for run in list_runs(store, ids) if run.kind == "sweep"]
    return tuple(sorted(found, key=lambda run: -(run.started_at or 0.0)))


def ids_of(store: Store, stem: str) -> tuple[str, ...]:
    """The ids of the runs whose ids begin with this slug of a name, sorted."""
    return tuple(name for name in run_folders(store) if stem_of(name) == stem)


def list_runs(store: Store, run_ids: Sequence[str], *, catalog: Catalog | None = None) -> list[Standing]:
    """The runs of these ids, in this order, without those that there are not (any more).

    `catalog`: what was read of it; None: it is read here. Raises: StorageError.
    """
    known, others = listed(store, run_ids, catalog=catalog)
    found = each_of(store, partial(read_run, store), others)
    known |= {run.run_id: run for run in found if run is not None}
    return [known[run_id] for run_id in run_ids if run_id in known]


def listed(
    store: Store, run_ids: Sequence[str], *, catalog: Catalog | None = None
) -> tuple[dict[str, Standing], list[str]]:
    """The runs that the catalog has, by id, and the ids of the others. Raises: StorageError."""
    catalog = catalog if catalog is not None else read_catalog(store, run_ids)
    known = {run_id: run for run_id in run_ids if (run := catalog.run(run_id)) is not None}
    return known, [run_id for run_id in run_ids if run_id not in known]


def read_run(store: Store, run_id: str) -> Standing | None:
    """A run's row by its id; None where there is none. One that cannot be read has the status `damaged`."""
    try:
        if store.exists(f"{run_id}/sweep.json"):
            return _sweep(SweepFolder(store, run_id))
        return _training(RunFolder(store, run_id)) if store.exists(f"{run_id}/train.json") else None
    except RaysweepError as error:
        is_sweep = seems_there(store, f"{run_id}/sweep.json")
        if not is_sweep and not seems_there(store, f"{run_id}/train.json"):
            return None  # it was deleted meanwhile
        problem = f"{error.path}: {error.problem}" if isinstance(error, StorageError) else str(error)
        return Standing(
            kind="sweep" if is_sweep else "train",
            run_id=run_id,
            status="damaged",
            why=problem,
            problem=problem,
            uri=f"{store.url}/{run_id}",
        )


def _sweep(folder: SweepFolder) -> Standing | None:
    run = glance(folder)
    if run.has_ended:
        return run.row()
    record = folder.read_spec()
    if record is None:
        return None
    update = {
        "name": str(record.spec.get("name", "")),
        "key": record.key,
        "metric": str(record.spec.get("metric") or ""),
        "started_at": run.started_at if run.started_at is not None else _begun_at(folder),
    }
    return run.row().model_copy(update=update)


def _training(folder: RunFolder) -> Standing:
    run = glance_training(folder)
    if run.training is not None:
        return run.row()
    spec = folder.read_spec()
    update = {
        "name": spec.name if spec is not None else "",
        "key": folder.read_key(),
        "of": (spec.tags if spec is not None else {}).get(_SOURCE, "").rstrip("/").rpartition("/")[2],
    }
    return run.row().model_copy(update=update)


def _begun_at(folder: SweepFolder) -> float | None:
    info = folder.store.head(f"{folder.sweep_id}/sweep.json")
    return info.modified_at if info is not None else None


def trainings_of(store: Store, sweep_id: str) -> list[TrainOutcome]:
    """The trainings that have ended of what a sweep handed on, the newest first. Raises: StorageError.

    The cost is that of a list of all runs here.
    """
    rows = [run for run in list_runs(store, run_folders(store)) if run.kind == "train" and run.of == sweep_id]
    found = [RunFolder(store, run.run_id).read_outcome() for run in rows if run.has_ended]
    return sorted((each for each in found if each is not None), key=lambda outcome: -outcome.ended_at)
