"""The body of the one trial of a training's sweep: Ray Train's controller, with the workers it asks for.

Each report of the workers is one of the trial; the parts of a checkpoint, which the workers have stored, are
joined and committed as the trial's. The last report has `END`: what the adapter (`sweep_outcome`) needs
besides.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any, Final

from raysweep.cluster.ray.connection import find_loss
from raysweep.documents.json_numbers import with_names
from raysweep.errors import RaysweepError, TrialStopped
from raysweep.outcome import ErrorInfo, Usage
from raysweep.outcome.training_metrics import END, USED, WORKERS, own_metrics
from raysweep.runs.folder import SweepFolder
from raysweep.runs.reading.history import reports_of
from raysweep.runs.training import RunFolder
from raysweep.specs import TrainSpec
from raysweep.storage.checkpoints.addresses import parse_reference
from raysweep.storage.checkpoints.store import CheckpointStore
from raysweep.threads import start_thread
from raysweep.training.checkpoint_parts import CheckpointName, parse_name
from raysweep.training.checkpoints import Joiner
from raysweep.training.predicted import fall_of
from raysweep.training.progress import TrainProgress, Watch
from raysweep.training.time_limits import Ending, needs_checkpoint, no_checkpoint
from raysweep.training.usage import Meter
from raysweep.trial.owners import OWN
from raysweep.trial.session import StoredAt
from raysweep.worker.inline import SETUP
from raysweep.worker.session import StoredParts

if TYPE_CHECKING:
    from raysweep.training.controller import RunEnd

LOOK_S: Final = 0.1
"""The seconds between two looks of the trial if it is to end."""
LOST_S: Final = 2.0
"""The time for workers on a Ray that has died to end: a call of Ray may hang."""
_TOKEN: Final = "0" * 8


class TrainingStoppedError(RaysweepError):
    """The workers failed for good; its text is that of the error in the last report."""


class TrainBody:
    """The trial of one training.

    Args:
        spec: The training.
        folder: Where it is stored.
        ending: When its limits end it.
        on_progress: See `run_training`.
        used: What the workers of earlier attempts have used.
    """

    def __init__(
        self,
        spec: TrainSpec,
        folder: RunFolder,
        ending: Ending,
        on_progress: Callable[[TrainProgress], None] | None = None,
        used: Usage | None = None,
    ) -> None:
        self._spec = spec
        self._folder = folder
        self._ending = ending
        self._on_progress = on_progress
        self._used = used
        self.refusal: RaysweepError | None = None
        """The end of the attempt before, or beside, the workers: a data set that cannot be made, or a
        damaged checkpoint."""

    def __call__(self, config: dict[str, Any]) -> None:
        """One attempt. Raises: TrainingStoppedError, TrialStopped."""
        meter = Meter(self._spec.scaling.worker_bundle(), time.monotonic)
        meter.resume(self._used)
        watch = Watch(
            run_id=self._folder.run_id, meter=meter, on_progress=self._on_progress, fall=fall_of(self._spec)
        )
        ending = self._ending.beside(watch.fall)
        attempt = _Attempt(self._spec, self._folder, ending, watch)
        try:
            end = attempt.run()
        except RaysweepError as refusal:
            self.refusal = refusal
            raise
        result = end.result
        ended_by = ending.reason if end.is_ended_by_limit or watch.fall.has_fallen else ""
        error = attempt.error_of(result) if result.error else None
        if needs_checkpoint(ended_by) and result.checkpoint is None:
            error = no_checkpoint(ended_by)
        metrics = own_metrics(result.metrics or {}) if ended_by else attempt.metrics_of(result)
        last = {
            "resumed": end.is_resumed,
            "ended_by": ended_by,
            # By name: inside of another value NaN and infinity would be null.
            "metrics": with_names(metrics),
            "error": None if error is None else error.model_dump(mode="json"),
        }
        attempt.session.report({**metrics, USED: attempt.used(), END: last}, None, True)
        if error is not None:
            raise TrainingStoppedError(error.message) from result.error


class _Attempt:
    def __init__(self, spec: TrainSpec, folder: RunFolder, ending: Ending, watch: Watch) -> None:
        session: Any = OWN.get()
        # Under a fault plan the workers' reports are its places, and not these.
        self.session: Any = getattr(session, "watched", session)
        self._spec, self._folder, self._ending, self._watch = spec, folder, ending, watch
        self._setup = SETUP.get()
        self._stop = threading.Event()
        self._stopped: TrialStopped | None = None
        self._owner = self.session.context.trial_id
        self._store = CheckpointStore(folder.store, folder.run_id)
        self._joiner = Joiner(folder, self._owner)
        # Workers that start again begin from their newest checkpoint, and repeat the reports after it.
        self._made = self._at = self._at_checkpoint = 0
        self._before = self.session.job.iteration
        if watch.fall.band is not None and self._before:
            self._take_earlier()

    def _take_earlier(self) -> None:
        """The reports before the checkpoint that the attempt begins from, of which the journal has each."""
        for report in reports_of(SweepFolder(self._folder.store, self._folder.run_id)):
            if report["iteration"] <= self._before:
                self._watch.fall.take(report["iteration"], report)

    def run(self) -> RunEnd:
        """Run until it ends, or the trial is to end; the workers are gone then."""
        running: Future[RunEnd] = start_thread(self._run, "raysweep-training")
        try:
            while not wait([running], LOOK_S).done and find_loss() is None:
                self.session.raise_if_over()
            if find_loss() is not None:
                self._stop.set()
                _await_end(running)
        except BaseException:
            self._stop.set()
            _await_end(running)
            raise
        if not running.done():
            raise TrainingStoppedError("the Ray of this process died")
        if self._stopped is not None:
            raise self._stopped
        return running.result()

    def _run(self) -> RunEnd:
        from raysweep.raycompat import train
        from raysweep.training.controller import Halt, run_trainer
        from raysweep.training.trainers import make_trainer

        job = self.session.job
        trainer = make_trainer(
            self._spec,
            self._folder.run_id,
            self._folder.store.url,
            above=job.next_checkpoint - 1,
            setup=self._setup,
        )
        with train.own_logging_left_alone():
            return asyncio.run(
                run_trainer(
                    trainer,
                    self._spec,
                    self._watch,
                    Halt(self._stop, self._ending),
                    on_report=self._report,
                    on_begin=self._begin,
                    start=self._find_start(),
                    is_asked=lambda: self.session.should_checkpoint,
                )
            )

    def _find_start(self) -> tuple[str, Mapping[str, Any]] | None:
        """The name by which Ray Train knows what the attempt begins from, and the metrics of its report."""
        reference = self.session.job.checkpoint
        found = parse_reference(reference) if reference else None
        if found is None:
            return None
        manifest = self._store.read_manifest(reference)
        self._joiner.begin_from(manifest)
        metrics = manifest.metadata.get("metrics", {})
        return str(CheckpointName(found[1], _TOKEN)), metrics

    def _begin(self, workers: int) -> None:
        self._at = self._at_checkpoint
        self._joiner.begin(workers)
        self._watch.meter.set_workers(workers)

    def _report(self, metrics: dict[str, Any], path: str | None) -> None:
        folder = path.rstrip("/").rsplit("/", 1)[-1] if path else None
        self._watch.reported(metrics, folder)
        self._at += 1
        self._watch.fall.take(self._before + self._at, metrics)
        is_repeated = self._at <= self._made
        if folder is not None:
            self._at_checkpoint = self._at
        stored = self._find_stored(folder) if folder is not None else None
        if is_repeated:
            if isinstance(stored, StoredParts):
                self.session.store_parts(stored, self._at - 1, metrics)
            return
        self._made = self._at
        more: dict[str, Any] = {USED: self.used()}
        if self._spec.scaling.min_workers is not None:
            more[WORKERS] = self._watch.meter.workers
        try:
            self.session.report({**metrics, **more}, stored, False)
        except TrialStopped as stopped:
            self._stopped = stopped
            self._stop.set()

    def _find_stored(self, folder: str) -> StoredParts | StoredAt:
        """The parts that the workers have stored; a folder named by user code is kept by its address."""
        name = parse_name(folder)
        return StoredParts(self._joiner.join(name)) if name else StoredAt(f"{self._folder.uri}/{folder}")

    def used(self) -> dict[str, float]:
        """The use of the workers of all attempts; of earlier ones, until their last report."""
        return self._watch.meter.read().model_dump(include={"cpu_hours", "gpu_hours"})

    def metrics_of(self, result: Any) -> dict[str, Any]:
        """The last report of rank 0, and on top what it returned, if that is a dict."""
        returned = getattr(result, "return_value", None)
        reported = self._watch.metrics or own_metrics(result.metrics or {})
        return {**reported, **(returned if isinstance(returned, dict) else {})}

    def error_of(self, result: Any) -> ErrorInfo:
        """The error with which the workers ended."""
        if self._watch.error is not None:
            return self._watch.error
        lines = [line for line in str(result.error).splitlines() if line.strip()]
        message = lines[-1] if lines else ""
        return ErrorInfo(kind="train_error", type=type(result.error).__name__, message=message)


def _await_end(running: Future[RunEnd]) -> None:
    """Wait for the end of the workers, unless their Ray has died."""
    while not wait([running], LOOK_S).done:
        if find_loss() is not None:
            wait([running], LOST_S)
            return
