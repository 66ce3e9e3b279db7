"""`run_training`: one config at full scale on Ray Train V2, once per key."""

from __future__ import annotations

import logging
import os
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.cluster.progress_callback import Listener
from raysweep.documents.code.trainable import load_function
from raysweep.documents.wall_clock import check_deadline
from raysweep.errors import (
    CheckpointDamagedError,
    RaysweepError,
    SpecError,
    StorageError,
    StorageNotWritableError,
    SweepInterrupted,
    TrainingFailedError,
)
from raysweep.outcome import DataDigest, ErrorInfo, TrainOutcome
from raysweep.programs.allowed import check_programs
from raysweep.raycompat import TRAIN_WORKER_MODULE
from raysweep.runs.ownership.training_claim import Claim, claim_run, find_at_rest
from raysweep.runs.training import RunFolder
from raysweep.specs import RunRequest, TrainSpec, load_trainable
from raysweep.storage.objects.opening import open_store
from raysweep.storage.objects.store import Store
from raysweep.tested import check_training
from raysweep.training.checkpoint_list import SNAPSHOT, check_snapshot
from raysweep.training.checkpoints import Keeper
from raysweep.training.data_digest import digest_data, try_to_digest
from raysweep.training.datasets import check_datasets
from raysweep.training.feasibility import check_cluster, check_scaling, machine_totals
from raysweep.training.heartbeat import Heartbeat
from raysweep.training.model_card import installed_versions, make_card, source_of
from raysweep.training.predicted import fall_of, predicted_of
from raysweep.training.progress import TrainProgress, Watch
from raysweep.training.time_limits import Ending, ending_of, needs_checkpoint, no_checkpoint
from raysweep.training.usage import Meter
from raysweep.training.warm_start import check_warm_start

if TYPE_CHECKING:
    from raysweep.cluster.ray.shared_connection import RayConnection
    from raysweep.training.controller import RunEnd

_log = logging.getLogger(__name__)
_PRELOAD_VARIABLE = "RAY_preload_python_modules"


def run_training(
    request: RunRequest[TrainSpec],
    *,
    address: str | None = None,
    on_progress: Callable[[TrainProgress], None] | None = None,
) -> TrainOutcome:
    """`raysweep.run_training` where the address is not that of a Jobs API; args and errors as there.

    Raises besides: FencedError: Another process claimed the run while this one seemed dead; this one's
    workers are ended.
    """
    spec, key = request.spec, request.run.key
    folder = open_folder(request)
    finished = folder.read_outcome()
    if finished is not None:
        folder.freeze_spec(spec, key)
        keep_card(folder, spec, finished)  # the process that trained may have died before it did
        return finished
    check_start(spec, folder, address)
    check_snapshot(folder)
    data = digest_of_data(spec)
    try:
        return _run(spec, key, folder, address, data, on_progress)
    except KeyboardInterrupt as error:
        if isinstance(error, RaysweepError):
            raise
        note = f"run the training again with the same key to resume it; see {folder.uri}"
        raise SweepInterrupted(folder.run_id, note) from None


def open_folder(request: RunRequest[TrainSpec]) -> RunFolder:
    """Where the run is stored. Raises: StorageNotWritableError where Ray Train cannot write."""
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


def digest_of_data(spec: TrainSpec) -> tuple[DataDigest, ...]:
    """What the spec's data are now. Raises: SpecError, StorageError."""
    return digest_data(_addresses(spec))


def _run(
    spec: TrainSpec,
    key: str,
    folder: RunFolder,
    address: str | None,
    data: tuple[DataDigest, ...],
    on_progress: Callable[[TrainProgress], None] | None,
) -> TrainOutcome:
    from raysweep.cluster.ray.connection import connect

    started_at = time.time()
    newest = find_at_rest(folder)
    if newest.outcome is not None:
        return newest.outcome
    if newest.number == 0:
        check_deadline(spec.stop.deadline, started_at, started_at)
    with workers_preloaded(), connect(address) as connection:
        check_room(spec)
        # Only now is anything written: a spec that the cluster cannot hold may be mended under its key.
        folder.freeze_spec(spec, key)
        claim = claim_run(folder, newest)
        if isinstance(claim, TrainOutcome):
            return claim
        return _train(spec, key, claim, started_at, data, on_progress, connection)


def _train(
    spec: TrainSpec,
    key: str,
    claim: Claim,
    started_at: float,
    data: tuple[DataDigest, ...],
    on_progress: Callable[[TrainProgress], None] | None,
    connection: RayConnection,
) -> TrainOutcome:
    folder = claim.folder
    meter = Meter(spec.scaling.worker_bundle(), time.monotonic)
    beat = folder.read_progress()
    meter.resume(beat.usage if beat is not None else None)
    listener = Listener(on_progress) if on_progress is not None else None
    watch = Watch(run_id=folder.run_id, meter=meter, data=data, on_progress=listener, fall=fall_of(spec))
    stop = threading.Event()
    ending = ending_of(
        spec.stop,
        began_at=started_at if claim.number == 1 else folder.read_attempt(1)["at"],
        used=beat.usage if beat is not None else None,
    ).beside(watch.fall)
    with Heartbeat(claim, spec.name, watch, stop).beating():
        keeper = Keeper(claim)
        end = _fit(spec, claim, watch, keeper, stop, ending, connection)
        result = end.result
        ended_by = ending.reason if end.is_ended_by_limit or watch.fall.has_fallen else ""
        checkpoint = _checkpoint_name(result)
        # Servers and registries of models want files.
        is_released = not result.error and ended_by != "below_prediction"
        model_uri = keeper.export(checkpoint) if is_released else None
        error = _error(result, watch) if result.error else None
        if needs_checkpoint(ended_by) and checkpoint is None:
            error = no_checkpoint(ended_by)
        metrics = dict(result.metrics or {}) if ended_by else _metrics(result, watch)
        outcome = TrainOutcome(
            run_id=folder.run_id,
            name=spec.name,
            key=key,
            status="completed" if error is None else "failed",
            ended_by=ended_by,
            metrics=metrics,
            config=dict(spec.config),
            model_uri=model_uri,
            checkpoint_uri=keeper.uri_of(checkpoint),
            uri=folder.uri,
            started_at=started_at,
            ended_at=time.time(),
            error=error,
            resumed=end.is_resumed,
            source=source_of(spec),
            carried=spec.carried,
            predicted=predicted_of(spec.carried, (each.metrics for each in watch.history.reports), metrics),
            versions=installed_versions(),
            history=watch.history.reports,
            usage=meter.read(),
            data=compared(spec, watch.history.data),
            raysweep_version=_version(),
        )
        if error is not None:
            raise TrainingFailedError(outcome) from result.error
        claim.end(outcome)
        # No newer attempt can come to need what is deleted now.
        kept = {path.rstrip("/").rsplit("/", 1)[-1] for path in _checkpoint_paths(result)}
        model = (model_uri or "").rsplit("/", 1)[-1]
        folder.delete_unused_checkpoints(frozenset({*kept, model}))
        keeper.finish(kept)
        keep_card(folder, spec, outcome)
    return outcome


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


def _fit(
    spec: TrainSpec,
    claim: Claim,
    watch: Watch,
    keeper: Keeper,
    stop: threading.Event,
    ending: Ending,
    connection: RayConnection,
) -> RunEnd:
    from raysweep.raycompat.train import StateRestoreError
    from raysweep.training.controller import Halt, run_controller
    from raysweep.training.trainers import make_trainer

    folder = claim.folder
    trainer = make_trainer(spec, folder.run_id, folder.store.url, claim.number)
    try:
        return run_controller(trainer, spec, watch, keeper, Halt(stop, ending), connection)
    except StateRestoreError as error:
        raise CheckpointDamagedError(
            f"{folder.uri}/{SNAPSHOT}",
            f"cannot be continued from ({error})",
            "restore what is missing from a backup, or use another key to start over",
        ) from error


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


def check_room(spec: TrainSpec) -> None:
    """Refuse what the connected cluster cannot hold. Raises: SpecError, InfeasibleResourcesError."""
    import ray

    is_client: bool = ray.util.client.ray.is_connected()  # type: ignore[no-untyped-call]
    if is_client:
        raise SpecError(
            "address",
            "a training run cannot be driven through Ray Client (ray://)",
            "call run_training on a node of the cluster, or submit it as a job",
        )
    check_cluster(spec.scaling, beside=_beside(spec))


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
    """How many CPUs have to be free beside the workers': Ray Data reads on one, at least."""
    return 1.0 if spec.datasets else 0.0


def _addresses(spec: TrainSpec) -> dict[str, str]:
    """What the training reads, by a name, as far as the spec says it."""
    files = {name: source.files for name, source in spec.datasets.items() if source.files is not None}
    return {**files, **spec.data}


def _metrics(result: Any, watch: Watch) -> dict[str, Any]:
    """What rank 0 reported last, and on top what it returned, if that is a dict."""
    returned = getattr(result, "return_value", None)
    return {**(watch.metrics or result.metrics or {}), **(returned if isinstance(returned, dict) else {})}


def _error(result: Any, watch: Watch) -> ErrorInfo:
    if watch.error is not None:
        return watch.error
    lines = [line for line in str(result.error).splitlines() if line.strip()]
    return ErrorInfo(kind="train_error", type=type(result.error).__name__, message=lines[-1] if lines else "")


def _checkpoint_name(result: Any) -> str | None:
    return Path(result.checkpoint.path).name if result.checkpoint else None


def _checkpoint_paths(result: Any) -> list[str]:
    kept = [checkpoint for checkpoint, _ in result.best_checkpoints or []]
    return [checkpoint.path for checkpoint in (*kept, result.checkpoint) if checkpoint]


def _version() -> str:
    from raysweep.version import __version__

    return __version__
