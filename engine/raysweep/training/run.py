"""`run_training`: one config at full scale on Ray Train V2, once per key, as a sweep of one trial."""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final

import orjson

from raysweep.cluster.interrupts import Interrupts
from raysweep.cluster.progress_callback import Listener
from raysweep.cluster.run import Training, run_connected, run_sweep
from raysweep.documents.code.trainable import load_function
from raysweep.documents.wall_clock import check_deadline
from raysweep.errors import (
    JobStoppedError,
    SpecError,
    StorageError,
    StorageNotWritableError,
    SweepInterrupted,
    TrainingFailedError,
)
from raysweep.outcome import DataDigest, SweepOutcome, TrainOutcome, Usage
from raysweep.programs.allowed import check_programs
from raysweep.raycompat import TRAIN_WORKER_MODULE
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import reports_of
from raysweep.runs.reading.reader import SweepReader
from raysweep.runs.training import CHECKPOINT_OWNER, RunFolder
from raysweep.specs import RunRequest, TrainSpec, load_trainable
from raysweep.specs.code_digest import code_digest_of, is_other_code
from raysweep.specs.continuing import Continue
from raysweep.storage.checkpoints.exports import export_checkpoint
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.tested import check_training
from raysweep.training.as_sweep import sweep_of
from raysweep.training.data_digest import digest_data, try_to_digest
from raysweep.training.datasets import check_datasets
from raysweep.training.feasibility import check_cluster, check_scaling, machine_totals
from raysweep.training.model_card import installed_versions, make_card
from raysweep.training.progress import TrainProgress
from raysweep.training.sweep_outcome import outcome_of, usage_of
from raysweep.training.time_limits import Ending, ending_of
from raysweep.training.trial_body import TrainBody
from raysweep.training.warm_start import check_warm_start

_log = logging.getLogger(__name__)
_PRELOAD_VARIABLE = "RAY_preload_python_modules"
AGAIN: Final = Continue(retry="failed", resume_cancelled=True)
"""A training that failed or was cancelled continues by the same call."""
DATA: Final = "data.json"
"""The spec's data as they were when the training first began."""


def run_training(
    request: RunRequest[TrainSpec],
    *,
    address: str | None = None,
    on_progress: Callable[[TrainProgress], None] | None = None,
    interrupts: Interrupts | None = None,
    job_number: int = 0,
) -> TrainOutcome:
    """`raysweep.run_training` where the address is not that of a Jobs API; args and errors as there.

    `interrupts`: ends it, in a process that is connected to Ray and has signals of its own, off the main
    thread (None: it hears Ctrl-C itself). `job_number`: see `run_connected`.
    """
    spec, folder = request.spec, open_folder(request)
    finished = folder.read_outcome()
    if finished is not None:
        folder.check_spec(spec)
        keep_card(folder, spec, finished)  # the process that trained may have died before it did
        return told(finished, spec)
    check_start(spec, folder, address)
    started_at = time.time()
    ending, used = _find_ending(spec, folder, started_at)
    now = digest_data(_addresses(spec))
    listener = Listener(on_progress) if on_progress is not None else None
    body = TrainBody(spec, folder, ending, listener, used)
    asked = RunRequest(spec=sweep_of(spec, body), run=request.run)
    training = Training(spec=spec, check_cluster=lambda: _check_cluster(spec, folder, now))
    try:
        with workers_preloaded():
            if interrupts is None:
                ended = run_sweep(asked, address=address, continuing=AGAIN, training=training)
            else:
                ended = run_connected(
                    asked,
                    interrupts,
                    on_progress=None,
                    takeover=False,
                    continuing=AGAIN,
                    job_number=job_number,
                    training=training,
                )
    except KeyboardInterrupt:
        note = f"run the training again with the same key to resume it; see {folder.uri}"
        raise SweepInterrupted(folder.run_id, note) from None
    if body.refusal is not None:
        raise body.refusal
    folder.check_spec(spec)  # of two that start at once, with specs that differ, one was faster
    if ended.status == "cancelled":
        note = f"{ended.why}; run it again to resume"
        if job_number:
            raise JobStoppedError(f"{folder.run_id}.{job_number}", note)
        raise SweepInterrupted(folder.run_id, note)
    return _complete(spec, folder, ended, started_at)


def told(outcome: TrainOutcome, spec: TrainSpec) -> TrainOutcome:
    """An outcome of earlier, handed on: with what has changed since, as nothing has run this time."""
    changed = [f"data {each.name}" for each in compared(spec, outcome.data) if each.has_changed]
    if is_other_code(outcome.code_digest, code_digest_of(spec)):
        changed.insert(0, "the trainable's code")
    if not changed:
        return outcome
    note = (
        f"nothing ran: changed since: {', '.join(changed)}; this is the model of before; "
        "train under another key to have a new one"
    )
    _log.warning("%s: %s", outcome.run_id, note)
    return outcome.model_copy(update={"nothing_ran": note})


def _complete(spec: TrainSpec, folder: RunFolder, ended: SweepOutcome, started_at: float) -> TrainOutcome:
    """Write the model, the outcome and the card; each process that sees the end does, and all write the same.

    Raises: TrainingFailedError.
    """
    outcome = outcome_of(
        spec,
        ended,
        reports_of(SweepFolder(folder.store, folder.run_id)),
        started_at=started_at,
        versions=installed_versions(),
        data=compared(spec, _read_data(folder)),
    )
    if outcome.error is not None:
        raise TrainingFailedError(outcome)
    if outcome.ended_by != "below_prediction":
        outcome = outcome.model_copy(update={"model_uri": _export(folder, ended)})
    folder.write_outcome(outcome)
    outcome = folder.read_outcome() or outcome  # who followed may have been faster
    folder.delete_unused_checkpoints(frozenset({(outcome.model_uri or "").rsplit("/", 1)[-1]}))
    _delete_strays(folder)
    keep_card(folder, spec, outcome)
    return outcome


def _delete_strays(folder: RunFolder) -> None:
    """Delete checkpoints that a superseded process has committed: the journal does not know them."""
    kept = SweepReader(folder.store.url, folder.run_id, is_strict=True).checkpoints()
    try:
        store = CheckpointStore(folder.store, folder.run_id)
        store.delete_others(CHECKPOINT_OWNER, {each.number for each in kept})
    except StorageError as error:
        _log.warning("checkpoints that the run needs no more could not be deleted: %s", error)


def _find_ending(spec: TrainSpec, folder: RunFolder, now: float) -> tuple[Ending, Usage | None]:
    """The limits that end it, and the use of its workers until their last report.

    Raises: SpecError where the deadline of a new one has passed.
    """
    if SweepFolder(folder.store, folder.run_id).read_spec() is None:
        check_deadline(spec.stop.deadline, now, now)
        return ending_of(spec.stop, began_at=now, used=None), None
    so_far = SweepReader(folder.store.url, folder.run_id, is_strict=True).outcome_so_far()
    used = usage_of(so_far.trials[0], so_far) if so_far.trials else None
    return ending_of(spec.stop, began_at=so_far.started_at, used=so_far.usage), used


def _read_data(folder: RunFolder) -> tuple[DataDigest, ...]:
    """The data as they were at the first start."""
    found = folder.get_versioned(DATA)
    stored: list[dict[str, Any]] = orjson.loads(found[0]) if found is not None else []
    return tuple(DataDigest.model_validate(each) for each in stored)


def _export(folder: RunFolder, ended: SweepOutcome) -> str | None:
    """Write the newest checkpoint of the trial as plain files beside the outcome; their address."""
    trial = ended.trials[0]
    if trial.checkpoint_uri is None or trial.state != "completed":
        return None
    store = CheckpointStore(folder.store, folder.run_id)
    link = store.read_manifest(trial.checkpoint_uri).link
    if link:  # a plain folder that user code has named itself
        return link
    model = f"model_{ended.generation:06d}"
    export_checkpoint(store, trial.checkpoint_uri, f"{folder.run_id}/{model}")
    return f"{folder.uri}/{model}"


def open_folder(request: RunRequest[TrainSpec]) -> RunFolder:
    """The folder where the run is stored. Raises: StorageNotWritableError where Ray Train cannot write."""
    return RunFolder(_open_store(request.spec.storage_path), request.run.id)


def check_start(spec: TrainSpec, folder: RunFolder, address: str | None) -> None:
    """Refuse, before anything starts or is written, what cannot run, or is not what was begun here.

    Raises: SpecError, StorageError.
    """
    check_training()
    _check_code(spec)
    if spec.warm_start_checkpoint is not None:
        check_warm_start(spec.warm_start_checkpoint)
    if _starts_embedded(address):
        check_scaling(spec.scaling, [machine_totals(spec.scaling.worker_bundle())], beside=_beside(spec))
    folder.store.check_writable()
    folder.check_spec(spec)


def compared(spec: TrainSpec, began: tuple[DataDigest, ...]) -> tuple[DataDigest, ...]:
    """The data as they were at the start, each with whether it is another now."""
    if not began:
        return ()
    now = {each.name: each.digest for each in try_to_digest(_addresses(spec)) or ()}
    return tuple(
        each.model_copy(update={"has_changed": now[each.name] != each.digest if each.name in now else None})
        for each in began
    )


def keep_card(folder: RunFolder, spec: TrainSpec, outcome: TrainOutcome) -> None:
    """Write the model card, if it can be written now."""
    try:
        folder.write_card(make_card(spec, outcome))
    except StorageError as error:  # the training is done: the same call writes it later
        _log.warning("the model card could not be written: %s", error)


def _open_store(storage_path: str) -> Store:
    store = open_store(storage_path)
    scheme = store.url.partition("://")[0] if "://" in store.url else "file"
    if scheme not in ("file", "s3", "gs"):
        raise StorageNotWritableError(
            "storage_path",
            f"Ray Train cannot write to {store.url!r}",
            "use a local or shared folder, s3:// or gs:// for training runs",
        )
    return store


def _starts_embedded(address: str | None) -> bool:
    import ray

    return address in (None, "local") and not ray.is_initialized()


@contextmanager
def workers_preloaded() -> Iterator[None]:
    """Let the processes that an embedded Ray starts ahead import Ray Train while this one does the same."""
    from raysweep.cluster.ray.connection import PRELOAD

    if _PRELOAD_VARIABLE in os.environ:
        yield
        return
    os.environ[_PRELOAD_VARIABLE] = f"{PRELOAD},{TRAIN_WORKER_MODULE}"
    try:
        yield
    finally:
        os.environ.pop(_PRELOAD_VARIABLE, None)


def _check_cluster(spec: TrainSpec, folder: RunFolder, data: Sequence[DataDigest]) -> None:
    """The last look before the run is stored, and the digests of its data with it."""
    import ray

    is_client: bool = ray.util.client.ray.is_connected()  # type: ignore[no-untyped-call]
    if is_client:
        raise SpecError(
            "address",
            "a training run cannot be driven through Ray Client (ray://)",
            "call run_training on a node of the cluster, or submit it as a job",
        )
    check_cluster(spec.scaling, beside=_beside(spec))
    if data:
        stored = orjson.dumps([each.model_dump(mode="json") for each in data])
        folder.put_if_version(DATA, stored, None)  # those of the first start stay


def _check_code(spec: TrainSpec) -> None:
    """Import what the spec names, before anything starts."""
    if spec.command is not None:
        check_programs(spec, is_local=False)
    else:
        load_trainable(spec.trainable)
    check_datasets(spec)
    if ":" in spec.framework:
        load_function(spec.framework, "framework")


def _beside(spec: TrainSpec) -> float:
    """The number of CPUs that have to be free beside the workers': Ray Data reads on one, at least."""
    return 1.0 if spec.datasets else 0.0


def _addresses(spec: TrainSpec) -> dict[str, str]:
    """The addresses that the training reads, by a name, as far as the spec gives them."""
    files = {name: source.files for name, source in spec.datasets.items() if source.files is not None}
    return {**files, **spec.data}
