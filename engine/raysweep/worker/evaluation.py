"""Runs one evaluation of a checkpoint, in a process that Ray gives it.

An evaluator is a function of (folder, config, iteration), or a program. While it runs, `raysweep.get_context`
and `raysweep.get_checkpoint` tell it of the trial; what it reports is taken like what it returns.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from raysweep import trial as trial_api
from raysweep.documents.code import allow_list
from raysweep.documents.tuples import Tuples, with_tuples
from raysweep.errors import RaysweepError, message_of
from raysweep.messages import Validation
from raysweep.trial.session import Reported, TrialContext
from raysweep.worker.host.cpus import use_cpus
from raysweep.worker.rows import RowMaker, with_nested
from raysweep.worker.runner import load_by_reference
from raysweep.worker.seeding import seed_generators
from raysweep.worker.validation import validate

PROBLEM_CHARS: Final = 500
Evaluator = Callable[..., Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationSetup:
    """All that an evaluation must know of its sweep."""

    sweep_id: str
    storage_path: str
    resources: dict[str, float]
    evaluator: str
    """Its import path; empty where `pickled` has it."""
    pickled: bytes | None = None
    is_program: bool = False
    """True if it takes a config alone, and reports, as programs do."""
    nested: tuple[str, ...] = ()
    tuples: Tuples = ()
    sys_path: tuple[str, ...] = ()
    threads: Mapping[str, str] = field(default_factory=dict)
    allowed: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class EvaluationJob:
    """One try: of which checkpoint. `iteration`: the number of the report that it came with, from 1."""

    trial: int
    attempt: int
    iteration: int
    seed: int
    config: dict[str, Any]
    uri: str
    validation: Validation | None = None
    """The evaluation, where the trial's own trainer has given one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Evaluated:
    """The result of an evaluation: metrics as JSON, or in one line why there are none."""

    metrics: dict[str, Any] = field(default_factory=dict)
    problem: str = ""


def evaluate(setup: EvaluationSetup, job: EvaluationJob) -> Evaluated:
    """Fetch the checkpoint, run the evaluator, and say what came of it. Raises nothing that it can tell."""
    _prepare(setup)
    try:
        with tempfile.TemporaryDirectory(prefix="raysweep-evaluation-") as folder:
            checkpoint = Path(folder) / "checkpoint"
            _restore(setup, job.uri, checkpoint)
            return Evaluated(metrics=_run(setup, job, checkpoint))
    except BaseException as error:  # noqa: BLE001  user code may raise anything, SystemExit included
        text = " ".join(f"{type(error).__name__}: {message_of(error)}".split())
        return Evaluated(problem=text[:PROBLEM_CHARS].encode("utf-8", "replace").decode())


def _prepare(setup: EvaluationSetup) -> None:
    if setup.allowed:
        os.environ[allow_list.VARIABLE] = setup.allowed
    use_cpus(setup.resources.get("CPU", 0.0), setup.threads)
    if not setup.resources.get("GPU"):
        os.environ["CUDA_VISIBLE_DEVICES"] = ""
    sys.path.extend(path for path in setup.sys_path if path not in sys.path)


def _restore(setup: EvaluationSetup, reference: str, target: Path) -> None:
    from raysweep.storage.checkpoints.node_cache import open_cache
    from raysweep.storage.checkpoints.store import CheckpointStore
    from raysweep.storage.objects.opening import open_store

    cache = open_cache()
    store = CheckpointStore(open_store(setup.storage_path), setup.sweep_id, cache=cache, follows=True)
    store.restore(reference, target)


def _run(setup: EvaluationSetup, job: EvaluationJob, checkpoint: Path) -> dict[str, Any]:
    evaluator = _load(setup) if job.validation is None else _validator(job.validation.call)
    config = with_tuples(job.config, setup.tuples)
    session = EvaluationSession(setup, job, checkpoint)
    seed_generators(job.seed)
    trial_api.activate(session)
    try:
        found = evaluator(config) if setup.is_program else evaluator(checkpoint, config, job.iteration)
    finally:
        trial_api.activate(None)
    if found is not None and not isinstance(found, Mapping):
        raise RaysweepError(f"it returned a {type(found).__name__}: return a dict of metrics")
    metrics = session.metrics | dict(found or {})
    if not metrics:
        raise RaysweepError("it gave no metrics: return a dict of them")
    return _as_row(with_nested(metrics, setup.nested))


def _load(setup: EvaluationSetup) -> Evaluator:
    if setup.pickled is None:
        return load_by_reference(setup.evaluator)
    import cloudpickle

    loaded: Evaluator = cloudpickle.loads(setup.pickled)
    return loaded


def _validator(call: bytes) -> Evaluator:
    return lambda checkpoint, config, iteration: validate(checkpoint, call)


def _as_row(metrics: dict[str, Any]) -> dict[str, Any]:
    """The metrics as a report has them. Raises RaysweepError: their names are none, or they are too large."""
    rows = RowMaker()
    rows.set_keys(tuple(metrics))
    row = [rows.convert(name, value) for name, value in metrics.items()]
    rows.pack(row)
    return dict(zip(rows.keys, row, strict=True))


class EvaluationSession:
    """The session behind the calls of `raysweep` in an evaluation."""

    should_checkpoint = False

    def __init__(self, setup: EvaluationSetup, job: EvaluationJob, checkpoint: Path) -> None:
        self.metrics: dict[str, Any] = {}
        """The reported metrics; of several reports, the last counts."""
        self.context = TrialContext(
            sweep_id=setup.sweep_id,
            trial_id=f"{job.trial:05d}",
            number=job.trial,
            attempt=job.attempt,
            seed=job.seed,
            iteration=job.iteration,
            resources=dict(setup.resources),
        )
        self._checkpoint = checkpoint

    def report(self, metrics: dict[str, Any], checkpoint: Reported, wait: bool) -> None:
        """See `raysweep.report`.

        Raises:
            RaysweepError: It comes with a checkpoint.
        """
        if checkpoint is not None:
            raise RaysweepError("an evaluation stores no checkpoint: report metrics alone")
        self.metrics |= metrics

    def get_checkpoint(self) -> AbstractContextManager[Path] | None:
        """See `raysweep.get_checkpoint`: the one that is evaluated."""
        return self._opened()

    @contextmanager
    def _opened(self) -> Iterator[Path]:
        yield self._checkpoint

    def new_checkpoint(self) -> AbstractContextManager[Path]:
        """Not in an evaluation. Raises RaysweepError."""
        raise RaysweepError("an evaluation stores no checkpoint")

    def count_stray(self) -> None:
        """See `trial.session.TrialSession`."""
