"""Runs one attempt on the calling (main) thread, and says how it ended."""

from __future__ import annotations

import importlib
import os
import signal
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final, Literal, NoReturn, cast

from raysweep import faultplan
from raysweep import messages as msg
from raysweep import trial as trial_api
from raysweep.documents.code.allow_list import check_found, check_named
from raysweep.documents.tuples import with_tuples
from raysweep.errors import (
    Infeasible,
    ProgramFailedError,
    RaysweepError,
    TrainableImportError,
    TrialStopped,
    message_of,
    one_line,
)
from raysweep.messages import End, FailureFacts, Interrupt, Job, Order
from raysweep.trial.owners import ENDED
from raysweep.worker.gang import surroundings
from raysweep.worker.gang.sessions import make_session
from raysweep.worker.output.captured import Output
from raysweep.worker.process.descendants import Descendants
from raysweep.worker.process.libraries import BriefProcess
from raysweep.worker.process.stray_calls import tell_strays
from raysweep.worker.ray_calls.train_runs import RayCalls
from raysweep.worker.ray_calls.tune_calls import StopRules, TrialDone, flatten
from raysweep.worker.rows import is_scalar
from raysweep.worker.seeding import seed_generators
from raysweep.worker.session import Session
from raysweep.worker.shell import Attempt, WorkerShell
from raysweep.worker.sweep_info import SweepPlace
from raysweep.worker.tracking import set_variables

if TYPE_CHECKING:
    from raysweep.worker.process.leftovers import Leftovers

Trainable = Callable[[dict[str, Any]], Any]
# What a start's failure may carry; a trial's may carry all that is of use.
TRACEBACK_CHARS: Final = 4096
FULL_TRACEBACK_CHARS: Final = 256 * 1024
INTERRUPT: Final = signal.SIGUSR1
_OWN: Final = os.path.join(os.path.dirname(os.path.dirname(__file__)), "")

_leave: Final = os._exit  # as it is before `announce_exits`: what leaves by it has said what there is to say

_interruptible: Session | None = None


def install_interrupt() -> None:
    """Let `INTERRUPT` raise `TrialStopped` in user code; call on the main thread, once a process."""
    signal.signal(INTERRUPT, _on_interrupt)


def _on_interrupt(signum: int, frame: FrameType | None) -> None:
    session = _interruptible
    if session is not None and session.ending.is_asked and not session.waiting.is_busy:
        session.ending.raise_stopped()


class LocalAttempt:
    """An attempt on the main thread of this process."""

    def __init__(self, session: Session) -> None:
        self.pid = os.getpid()
        self._session = session

    def tell(self, order: Order) -> None:
        """See `shell.Attempt`."""
        self._session.tell(order)
        if isinstance(order, Interrupt):
            signal.pthread_kill(threading.main_thread().ident or 0, INTERRUPT)

    def abandon(self) -> None:
        """See `shell.Attempt`."""
        _leave(1)


def load_by_reference(reference: str) -> Trainable:
    """The trainable behind an import path.

    Raises:
        TrainableImportError: It cannot be had; says why, and what is near.
    """
    check_named(reference, "trainable")
    module, _, qualname = reference.partition(":")
    try:
        found: Any = importlib.import_module(module)
        for name in qualname.split("."):
            found = getattr(found, name)
        if callable(found):
            check_found(reference, module, found, "trainable")
            return cast(Trainable, found)
    except BaseException:  # noqa: BLE001  the loader of the specs meets it again, and explains it
        pass
    # Imported only here: building the models of the specs would be a tenth of a worker's start.
    from raysweep.documents.code.trainable import load_trainable

    return load_trainable(reference)


def run_attempt(
    trainable: Trainable,
    job: Job,
    place: SweepPlace,
    shell: WorkerShell,
    output: Output | None = None,
    attempt_of: Callable[[Session], Attempt] = LocalAttempt,
    leftovers: Leftovers | BriefProcess | None = None,
    descendants: Descendants | None = None,
) -> None:
    """Run the trainable, and say how it began, what it reports, and how it ended.

    `output` takes what it prints, and the traceback of what it raises. `attempt_of`: how orders reach it.
    `leftovers`: of a process that runs others after it. `descendants` ends the processes that it leaves
    running; None: they are the user's.
    """
    if output is None or job.rank:  # an attempt has one log, that of rank 0
        output = Output()
    session = make_session(job, place, shell.link)
    output.begin(job)
    leftovers = leftovers or BriefProcess()
    leftovers.begin()
    session.variables = set_variables(job, place, session.note)
    trial_api.activate(session)
    if descendants is not None:
        descendants.begin()
    shell.begin(attempt_of(session))
    end = _run(trainable, job, session, place, leftovers.disarm)
    surroundings.close()
    left = descendants.end() if descendants is not None else ""
    session.finish()
    trial_api.activate(None)
    tell_strays()
    leftover = leftovers.clear(end, shell.link)
    output.end(_last_words(end) + left)
    shell.end(end, leftover)


def _last_words(end: End) -> str:
    """The end of its log: the place where it failed, or hung."""
    match end:
        case msg.TrialFailed(failure=failure):
            return failure.traceback
        case msg.TrialStopped(where=where):
            return where
        case _:
            return ""


def _run(
    trainable: Trainable, job: Job, session: Session, place: SweepPlace, disarm: Callable[[], None]
) -> End:
    global _interruptible
    try:
        try:
            seed_generators(job.seed)
            _interruptible = session
            session.ending.raise_if_interrupted()
            faultplan.reach_in_trial("begin", job.trial, job.attempt)
            with surroundings.joined(session), RayCalls(session, place):
                result = _call(trainable, with_tuples(job.config, place.tuples))
                _report_returned(result, place, session)
        finally:
            _interruptible = None
            disarm()
    except TrialDone:
        return msg.TrialReturned(*job.who)
    except TrialStopped as stopped:
        if stopped.reason == ENDED:  # it waited for what an earlier trial has left behind
            return msg.TrialFailed(*job.who, failure=describe(stopped, max_chars=FULL_TRACEBACK_CHARS))
        where = _traceback(stopped, TRACEBACK_CHARS) if session.ending.reason == "hung" else ""
        return msg.TrialStopped(*job.who, where=where)
    except BaseException as error:  # noqa: BLE001  user code may raise anything, SystemExit included
        is_echo = job.gang is not None and surroundings.is_echo(error)
        if is_echo and session.ending.is_asked:
            return msg.TrialStopped(*job.who)  # the gang parts, as it was told to
        failure = describe(error, max_chars=FULL_TRACEBACK_CHARS)
        return msg.TrialFailed(*job.who, failure=failure, is_echo=is_echo)
    return msg.TrialStopped(*job.who) if session.ending.was_raised else msg.TrialReturned(*job.who)


def _call(trainable: Trainable, config: dict[str, Any]) -> Any:
    """The return value. A process that it has forked may come out of it, too, and ends here, unheard."""
    pid = os.getpid()
    try:
        with StopRules.of(trainable):
            return trainable(config)
    finally:
        if os.getpid() != pid:
            _leave_as_python(sys.exc_info()[1])


def _leave_as_python(error: BaseException | None) -> NoReturn:
    """End this process as if it had come to the end of its script."""
    code: Any = None if error is None else 1
    if isinstance(error, SystemExit):
        code = error.code
    elif error is not None:
        traceback.print_exception(error)
    with suppress(Exception):
        if not isinstance(code, int | None):
            print(code, file=sys.stderr)  # noqa: T201  as Python does
        sys.stdout.flush()
        sys.stderr.flush()
    _leave(code if isinstance(code, int) else int(code is not None))


RESULT: Final = "result"
"""The name under which a sweep without a metric reports a returned value, unless it is a dict."""


def _report_returned(result: Any, place: SweepPlace, session: Session) -> None:
    """Report the result of a trainable: metrics by name, the metric itself, or without one any value.

    A trial that has reported never fails for what it returns.
    """
    if result is None:
        return
    metric = place.metric
    if isinstance(result, dict):
        result = {key if isinstance(key, str) else str(key): value for key, value in result.items()}
        # A metric inside another is named as Ray Tune does: one that is not there by its own name.
        trial_api.report(flatten(result) if "/" in metric and metric not in result else result)
        return
    number = result.item() if callable(getattr(result, "item", None)) and is_scalar(result) else result
    if metric and isinstance(number, int | float) and not isinstance(number, bool):
        trial_api.report({metric: number})
        return
    if not place.is_ranked:
        trial_api.report({RESULT: result})
        return
    if session.has_reported:
        kind = type(result).__name__
        session.note(f"the trainable returned a {kind}, which is ignored: return a dict of metrics, or None")
        return
    raise RaysweepError(
        f"the trainable returned a {type(result).__name__}: return a dict of metrics, the number"
        f" {f'that {metric!r} is to be' if metric else 'of a metric'}, or None"
    )


def describe(
    error: BaseException,
    *,
    origin: Literal["exception", "infeasible", "gpu_memory", "start"] = "exception",
    is_fatal: bool = False,
    max_chars: int = TRACEBACK_CHARS,
) -> FailureFacts:
    """The facts of an exception: type, message, bases and the traceback, without our own frames.

    Of a program that failed for a trainable, what it wrote last stands for the traceback.
    """
    if isinstance(error, ProgramFailedError) and origin == "exception":
        return FailureFacts(
            origin=error.origin,
            type=type(error).__name__,
            message=_encodable(message_of(error)[:1000]),
            traceback=_encodable(shorten(error.output, max_chars)),
            bases=tuple(cls.__name__ for cls in type(error).__mro__),
            exit_code=error.code,
            is_of_program=True,
        )
    if origin == "exception" and isinstance(error, Infeasible):
        origin = "infeasible"
    elif origin == "exception":
        # Imported only here: its patterns cost a start some milliseconds.
        from raysweep.worker.host.gpu_failures import is_gpu_oom

        origin = "gpu_memory" if is_gpu_oom(error) else origin
    return FailureFacts(
        origin=origin,
        type=type(error).__name__,
        message=_encodable(_message_of(error)[:1000]),
        traceback=_traceback(error, max_chars),
        bases=tuple(cls.__name__ for cls in type(error).__mro__),
        exit_code=error.code if isinstance(error, SystemExit) and isinstance(error.code, int) else None,
        is_fatal=is_fatal,
    )


def _message_of(error: BaseException) -> str:
    # The controller raises the same error anew, which then begins with the field.
    if isinstance(error, TrainableImportError) and error.field == "trainable":
        return one_line(f"{error.problem}; {error.fix}" if error.fix else error.problem)
    return message_of(error)


def _traceback(error: BaseException, max_chars: int) -> str:
    lines = traceback.format_exception(type(error), error, _user_frames(error))
    return _encodable(shorten("".join(lines), max_chars))


def shorten(text: str, max_chars: int) -> str:
    """The head and the tail of a text that is longer than `max_chars`."""
    if len(text) <= max_chars:
        return text
    return text[: max_chars // 2] + "\n  […]\n" + text[-max_chars // 2 :]


def _encodable(text: str) -> str:
    """The text as UTF-8 can hold it: file names in messages may have surrogates."""
    return text.encode("utf-8", "replace").decode("utf-8")


def _user_frames(error: BaseException) -> Any:
    frames = error.__traceback__
    while frames is not None and frames.tb_frame.f_code.co_filename.startswith(_OWN):
        frames = frames.tb_next
    return frames if frames is not None else error.__traceback__
