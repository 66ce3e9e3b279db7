"""The API for user code in a trial: `report`, `get_checkpoint`, `get_context`, `should_checkpoint`.

The same calls work in the workers of the downstream training step.
"""

from __future__ import annotations

import os
import threading
from contextlib import AbstractContextManager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from raysweep import faultplan
from raysweep.errors import RaysweepError, TrialStopped
from raysweep.trial.checkpoint_handle import RestoredCheckpoint, end_attempt, local_folder
from raysweep.trial.owners import ENDED, OWN, find_owner, is_foreign, watch_threads
from raysweep.trial.session import RayCheckpoint, StoredAt, TrialContext, TrialSession
from raysweep.trial.watched_session import WatchedSession

if TYPE_CHECKING:
    from os import PathLike

_NOT_HERE: Final = cast("TrialSession", object())
_session: TrialSession = _NOT_HERE
"""Of the attempt that runs here, if one does; the calling code may belong to another (see `owners`)."""
_own: Final = OWN.get
_thread = 0
"""The thread that runs it."""
_forked_from: TrialSession | None = None
"""Set in a process that was forked by one in which a trial runs: its link is the trial's."""


def _note_fork() -> None:
    global _session, _forked_from
    if _session is not _NOT_HERE:
        _session, _forked_from = _NOT_HERE, _session


os.register_at_fork(after_in_child=_note_fork)


def report(
    metrics: dict[str, Any],
    checkpoint: str | PathLike[str] | RayCheckpoint | None = None,
    *,
    checkpoint_uri: str | None = None,
    wait: bool = False,
) -> None:
    """Report metrics, and with them optionally a checkpoint directory.

    Returns at once: reports travel in the background. With a checkpoint it returns when what has changed in
    the directory is copied, so that it may be changed or deleted; it is stored in the background. With `wait`
    it returns once the checkpoint is stored, the report is in the journal and the scheduler has decided.
    Where a scheduler decides by this report, as it said beforehand, it waits for that, too: at most as long
    as the trial's step took, and 2 s.

    Args:
        metrics: Values by name: numbers, strings, booleans, None, lists and mappings of these; scalars and
            arrays of NumPy and PyTorch are converted. Other values are kept as their `repr`, with a note.
            NaN and infinity are allowed, see `failure.non_finite` of the spec.
        checkpoint: A directory; `get_checkpoint` gives it back, also after a retry or a resume. It counts
            once it is stored: a trial whose process is killed before that continues from the one before. One
            that `new_checkpoint` gave is taken over instead of copied. Or a `ray.train.Checkpoint`
            (`ray.tune.Checkpoint`): its directory is stored, wherever it lies.
        checkpoint_uri: In its place, where you have stored it yourself: a folder or a file, such as
            `s3://bucket/model/7`. Its address is kept, once something is seen to be there; `get_checkpoint`
            gives what is there when it is called. raysweep never deletes it, nor checks what it holds.
        wait: Wait for the controller, and for the checkpoint.

    Raises:
        TrialStopped: The trial should end now (let it pass through; clean up in `finally`), or it has ended,
            and this thread or task is left of it.
        RaysweepError: Called outside a trial, or in a process that the trial has forked; without metrics by
            name, a metric is not JSON, or all of them take more than 16 MiB; or nothing is stored at
            `checkpoint_uri`.
    """
    session: TrialSession = _own()
    if session is not _session:
        session = _find_session("report")
    if not isinstance(metrics, dict):
        raise RaysweepError(
            f"report() takes metrics by name, got a {type(metrics).__name__}:"
            f' write report({{"loss": {metrics!r:.40}}}) with the name of the metric'
        )
    if checkpoint is None and checkpoint_uri is None:
        session.report(metrics, None, wait)
        return
    if checkpoint_uri is not None:
        if checkpoint is not None:
            raise RaysweepError("report() takes a checkpoint or a checkpoint_uri, not both: give one of them")
        session.report(metrics, StoredAt(checkpoint_uri), wait)
        return
    if checkpoint == "":
        raise RaysweepError(
            'report(checkpoint="") names no directory: give the one that holds the checkpoint'
        )
    with local_folder(checkpoint) as folder:
        session.report(metrics, folder, wait)


def get_checkpoint() -> RestoredCheckpoint | None:
    """The trial's newest checkpoint: what this attempt saved last, else the one that it continues from.

    None while there is none; else a context manager that yields a local directory with the checkpoint that is
    the newest when it is entered; `.to_ray()` gives it as a `ray.train.Checkpoint` instead. It can be called
    at any time, as often as needed.

    Raises:
        CheckpointDamagedError: On entry: what is stored does not match its manifest, and there is no older
            one to resume from. TrialStopped: There is: the trial's next attempt resumes from it.
    """
    session: TrialSession = _own()
    if session is not _session:
        session = _find_session("get_checkpoint")
    opened = session.get_checkpoint()
    return None if opened is None else RestoredCheckpoint(opened, session.get_checkpoint)


def new_checkpoint() -> AbstractContextManager[Path]:
    """A context manager that yields a new, empty folder for a checkpoint, which is stored in the background.

    `report(metrics, checkpoint=folder)`, inside the `with` or after it, takes the folder over as it is, in no
    time whatever its size, and the trial continues. It is gone then: nothing may be written to it any more.
    What was not reported when the next one begins, or when the `with` ends by an exception, is removed. It
    lies on a local disk: below `RAYSWEEP_STAGING`, else where temporary files go. Up to three checkpoints lie
    there; then `report` waits, or, with `checkpoint.upload: latest`, those that wait are skipped. One that is
    handed over counts once it is stored: a trial whose process is killed before that resumes from the one
    before. A trial ends once all are stored.

    Raises:
        RaysweepError: Called outside a trial. OSError: There is no place for it.
    """
    session: TrialSession = _own()
    if session is not _session:
        session = _find_session("new_checkpoint")
    return session.new_checkpoint()


def get_context() -> TrialContext:
    """The context of this trial: its sweep, number and attempt, its seed and its resources.

    Raises:
        RaysweepError: Called outside a trial.
    """
    return _find_session("get_context").context


def should_checkpoint() -> bool:
    """True if the trial has been asked for a checkpoint: its node is about to go, or the sweep is ending.

    Or its slot is wanted by a sweep with a nearer deadline, on a cluster that they share.

    A trial that checkpoints seldom reports one as soon as this is true; it ends there, and continues from it
    on another node, or when the sweep is resumed. One that checkpoints with every report need not ask.

    In a training of several workers all have to ask equally often, as they have to report: the answer is the
    same for all. Once a node of theirs is about to go it is true until the next report; the training keeps
    running, and resumes elsewhere from that checkpoint when the node is gone.

    Raises:
        RaysweepError: Called outside a trial.
    """
    return _find_session("should_checkpoint").should_checkpoint


def activate(session: TrialSession | None) -> None:
    """Make `session` the one that `report` and its siblings talk to (None: no trial runs here).

    It is that of the calling thread, and of all that this starts from now on: see `owners`.
    """
    global _session, _thread, _forked_from
    _forked_from = None
    if session is None:
        end_attempt()
    else:
        watch_threads()
    plan = faultplan.current() if session is not None else None
    own = session if session is None or plan is None else WatchedSession(session, plan)
    _session = own or _NOT_HERE
    _thread = threading.get_ident()
    OWN.set(own)


def _find_session(call: str) -> TrialSession:
    """The session of the attempt that the calling code belongs to; refuses what has none that runs.

    Raises:
        TrialStopped: Its attempt has ended.
        RaysweepError: No attempt started it, or it is in a process that one has forked.
    """
    if _forked_from is not None:
        return _find_forked(call, _forked_from)
    own: TrialSession | None = find_owner()
    if own is None:
        if _session is _NOT_HERE:
            _need_session(call)
        if threading.get_ident() != _thread and not is_foreign():
            _refuse_unowned(call)
        own = _session
    if own is not _session:
        own.count_stray()
        raise TrialStopped(ENDED, f"{call}() is refused: the trial whose thread or task called it has ended")
    return own


def _find_forked(call: str, parent: TrialSession) -> TrialSession:
    if call in ("get_context", "should_checkpoint"):
        return find_owner() or parent
    raise RaysweepError(
        f"{call}() works only in the trial's own process, not in one that it has forked:"
        " send the values back, by a queue or a pipe, and report them there"
    )


def _need_session(call: str) -> NoReturn:
    raise RaysweepError(
        f"{call}() works only inside a trial or a training worker:"
        " run the trainable with raysweep.run_sweep or raysweep.run_training"
    )


def _refuse_unowned(call: str) -> NoReturn:
    name = threading.current_thread().name
    raise RaysweepError(
        f"{call}() on thread {name!r} belongs to no trial, since no trial has started the thread:"
        " start it in the trainable, or call by contextvars.copy_context().run, made on the trial's thread"
    )
