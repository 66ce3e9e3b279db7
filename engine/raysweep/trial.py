"""What user code calls inside a trial: `report`, `get_checkpoint`, `get_context`.

The same three calls work in the workers of the downstream training step.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from raysweep.errors import RaysweepError

if TYPE_CHECKING:
    from os import PathLike

    from raysweep.cluster.session import Session

_session: Session | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TrialContext:
    """Where the calling code runs.

    `iteration` is the number of reports that lie behind the checkpoint this attempt began from (0 without
    one); `rank` and `world_size` are those of a gang (0 and 1 for a trial of one process).
    """

    sweep_id: str
    trial_id: str
    number: int
    attempt: int
    seed: int
    iteration: int = 0
    rank: int = 0
    world_size: int = 1
    resources: dict[str, float] = field(default_factory=dict)


def report(
    metrics: dict[str, Any], checkpoint: str | PathLike[str] | None = None, *, wait: bool = False
) -> None:
    """Report metrics, and with them optionally a checkpoint directory.

    Returns at once: reports travel in the background. With a checkpoint it returns when the directory is
    stored and may be changed or deleted. With `wait` it returns once the report is in the journal and the
    scheduler has decided.

    Args:
        metrics: Name to number, string, bool, None, or JSON made of these; numpy scalars are converted.
            NaN and infinity are allowed, see `failure.non_finite` of the spec.
        checkpoint: A directory; `get_checkpoint` gives it back after a retry or a resume.
        wait: Wait for the controller.

    Raises:
        TrialStopped: The trial should end now (let it pass through; clean up in `finally`).
        RaysweepError: Called outside a trial, or a metric is not JSON.
    """
    if _session is not None:
        _session.report(metrics, checkpoint, wait)
        return
    _train_session().train_report(metrics, checkpoint)


def get_checkpoint() -> AbstractContextManager[Path] | None:
    """The checkpoint to go on from: None at a fresh start, else a context manager that yields a local
    directory.

    Raises:
        CheckpointDamagedError: What is stored does not match its manifest; nothing else is restored in its
        stead.
    """
    if _session is not None:
        return _session.get_checkpoint()
    checkpoint: AbstractContextManager[Path] | None = _train_session().train_get_checkpoint()
    return checkpoint


def get_context() -> TrialContext:
    """Which sweep, trial and attempt this is, its seed and its resources.

    Raises:
        RaysweepError: Called outside a trial.
    """
    if _session is None:
        raise RaysweepError(
            "get_context() works only inside a trial: run the trainable with raysweep.run_sweep"
        )
    return _session.context


def activate(session: Session | None) -> None:
    """Make `session` the one that `report` and its siblings talk to (None: no trial runs here)."""
    global _session
    _session = session


def _train_session() -> Any:
    from raysweep.training import session

    if not session.in_train_worker():
        raise RaysweepError(
            "report() and get_checkpoint() work only inside a trial or a training worker:"
            " run the trainable with raysweep.run_sweep or raysweep.run_training"
        )
    return session
