"""Lists the runs of a storage path: a request for each name, and some for each run that has not ended.

    for run in sweeps("s3://bucket/sweeps", name="churn"):
        print(run.key, run.status, run.score)

A run that the `catalog` does not have is read by its summary, one without a summary from its own documents.
Needs no Ray.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from raysweep.errors import RaysweepError, StorageError
from raysweep.outcome.summary import (
    SUMMARY,
    RunSummary,
    first_values,
    summary_of_sweep,
    summary_of_training,
)
from raysweep.runs.catalog import Catalog, read_catalog, stem_of
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.glances import glance, glance_training
from raysweep.runs.reading.status import RunStatus
from raysweep.runs.training import RunFolder
from raysweep.specs.identity import slug
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.parallel import each_of, run_folders, seems_there
from raysweep.storage.objects.sealed import unseal
from raysweep.storage.objects.store import Store

DEFAULT_STORAGE: Final = "~/raysweep"
_OUTCOMES: Final = {"sweep": "outcome.json", "train": "train_outcome.json"}
_SOURCE: Final = "raysweep.sweep"
"""The tag of a training's spec that says which sweep its config is from."""


def sweeps(storage: str | None = None, *, name: str | None = None) -> tuple[RunSummary, ...]:
    """The sweeps at a storage path, the newest first; those of gates are among them.

    Args:
        storage: The storage path; default: `~/raysweep`.
        name: Only those of this name.

    Returns:
        One `RunSummary` for each: name, key, status, score, counts, times, usage. `rs.load(run.uri)` reads
        one with its trials.

    Raises:
        StorageError: The storage cannot be listed.
    """
    store = open_store(storage or DEFAULT_STORAGE)
    names = run_folders(store) if name is None else ids_of(store, slug(name))
    found = [run for run in read_summaries(store, names) if run.kind == "sweep"]
    return tuple(sorted(found, key=lambda run: -(run.started_at or 0.0)))


def ids_of(store: Store, stem: str) -> tuple[str, ...]:
    """The ids of the runs whose ids begin with this slug of a name, sorted."""
    return tuple(name for name in run_folders(store) if stem_of(name) == stem)


def read_summaries(
    store: Store, run_ids: Sequence[str], *, is_checked: bool = True, catalog: Catalog | None = None
) -> list[RunSummary]:
    """The runs of these ids, in this order, without those that there are not (any more).

    `is_checked`: whether a summary must belong to the outcome beside it, which is a request more for each
    run that the catalog does not have. Kind, name, key and start are the same in an older one. `catalog`:
    what was read of it; None: it is read here.
    """
    known = catalog if catalog is not None else read_catalog(store, run_ids)

    def read(run_id: str) -> RunSummary | None:
        return known.run(run_id) or read_summary(store, run_id, is_checked=is_checked)

    return [run for run in each_of(store, read, run_ids) if run is not None]


def read_summary(store: Store, run_id: str, *, is_checked: bool = True) -> RunSummary | None:
    """A run by its id; None where there is none. One that cannot be read has the status `damaged`."""
    try:
        return _stored(store, run_id, is_checked=is_checked) or _made(store, run_id)
    except RaysweepError as error:
        problem = error.problem if isinstance(error, StorageError) else str(error)
        where = f"{error.path}: " if isinstance(error, StorageError) else ""
        return RunSummary(
            kind="sweep" if seems_there(store, f"{run_id}/sweep.json") else "train",
            run_id=run_id,
            status="damaged",
            why=f"{where}{problem}",
            uri=f"{store.url}/{run_id}",
        )


def _stored(store: Store, run_id: str, *, is_checked: bool) -> RunSummary | None:
    data = store.get(f"{run_id}/{SUMMARY}")
    whole = unseal(data) if data is not None else None
    found = RunSummary.from_stored(whole) if whole is not None else None
    if found is None:
        return None
    run, outcome_bytes = found
    if run.run_id != run_id:
        return None
    outcome = store.head(f"{run_id}/{_OUTCOMES[run.kind]}") if is_checked else None
    if is_checked and (outcome is None or outcome.size_bytes != outcome_bytes):
        return None  # the run was continued since
    return run.model_copy(update={"uri": f"{store.url}/{run_id}"})


def _made(store: Store, run_id: str) -> RunSummary | None:
    if store.exists(f"{run_id}/sweep.json"):
        return _sweep(SweepFolder(store, run_id))
    if store.exists(f"{run_id}/train.json"):
        return _training(RunFolder(store, run_id))
    return None


def _sweep(folder: SweepFolder) -> RunSummary | None:
    outcome = folder.read_outcome()
    if outcome is not None:
        return summary_of_sweep(outcome).model_copy(update={"run_id": folder.sweep_id, "uri": folder.uri})
    record = folder.read_spec()
    if record is None:
        return None
    run = _unfinished(glance(folder)).model_copy(
        update={
            "name": str(record.spec.get("name", "")),
            "key": record.key,
            "metric": str(record.spec.get("metric") or ""),
        }
    )
    return run if run.started_at is not None else run.model_copy(update={"started_at": _begun_at(folder)})


def _training(folder: RunFolder) -> RunSummary:
    outcome = folder.read_outcome()
    if outcome is not None:
        return summary_of_training(outcome).model_copy(update={"run_id": folder.run_id, "uri": folder.uri})
    run, spec = _unfinished(glance_training(folder)), folder.read_spec()
    tags = spec.tags if spec is not None else {}
    return run.model_copy(
        update={
            "name": spec.name if spec is not None else "",
            "key": folder.read_key(),
            "of": tags.get(_SOURCE, "").rstrip("/").rpartition("/")[2],
        }
    )


def _begun_at(folder: SweepFolder) -> float | None:
    info = folder.store.head(f"{folder.sweep_id}/sweep.json")
    return info.modified_at if info is not None else None


def _unfinished(status: RunStatus) -> RunSummary:
    best = status.best
    return RunSummary(
        kind=status.kind,
        run_id=status.run_id,
        name=status.name,
        key=status.key,
        status=status.status,
        why=status.why,
        metric=status.metric,
        mode=status.mode,
        score=best.score if best is not None else None,
        trial_id=best.trial_id if best is not None else "",
        config=first_values(best.config) if best is not None else {},
        counts=status.counts,
        num_trials=status.num_trials,
        started_at=status.started_at,
        generation=status.generation,
        holder=_holder(status),
        uri=status.uri,
    )


def _holder(status: RunStatus) -> str:
    if status.holder is None:
        return ""
    return str(status.holder) if status.is_running else f"{status.holder} ({status.held})"
