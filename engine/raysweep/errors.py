"""Every error that raysweep raises: one root, one line of text each.

    RaysweepError                     retryable  exit code
    ├── SpecError (ValueError)            no        2       what the user asked for cannot be done
    │   ├── TrainableImportError          no        2
    │   ├── InfeasibleResourcesError      no        2
    │   ├── StorageNotWritableError       no        2
    │   ├── StorageNotSharedError         no        2       results of a job are not where they are sought
    │   ├── MetricNeverReportedError      no        2
    │   ├── SampleFromError               no        2       a `sample_from` failed for one config
    │   └── SpecChangedError              no        2       the same sweep, asked for differently
    ├── SweepNotFoundError                no        2
    ├── LogNotFoundError                  no        2       no log of this trial or attempt is stored
    ├── SweepHeldError                    yes       1       another live controller has the sweep
    ├── ChampionKeptError                 no        1       it holds the checkpoint of a champion: it stays
    ├── GateOutdatedError                 yes       1       its sweep has gone on while the gate ran
    ├── FencedError                       no        1       a newer controller has the sweep
    ├── StorageError                      yes       1
    │   ├── StorageUnavailableError       yes       1
    │   ├── JournalDamagedError           no        1
    │   ├── CheckpointDamagedError        no        1
    │   ├── SweepDamagedError             no        1       sweep.json or outcome.json
    │   └── SegmentExistsError            no        1
    ├── ClusterError                      yes       1
    │   ├── ClusterUnreachableError       yes       1       nothing answers at the address
    │   ├── ConnectionUnreadableError     yes       1       the secrets backend did not respond
    │   ├── ClusterLostError              yes       1       it went away under the sweep, which can be resumed
    │   ├── ClusterCertificateError       no        2       TLS: the certificate of one side was not accepted
    │   ├── ClusterAuthError              no        2
    │   │   ├── TokenMissingError         no        2       401
    │   │   └── TokenRefusedError         no        2       403
    │   ├── ClusterServerError            yes       1       the Jobs API failed (5xx)
    │   └── ClusterRequestError           no        1       the Jobs API refused the request (other 4xx)
    │       ├── JobNotFoundError          no        2       404
    │       └── JobExistsError            no        1       a job of this id was submitted before
    ├── ProgramFailedError                no        1       the program of a command ended with an error
    ├── JobStoppedError                   no        3       a person stopped the job; it has no outcome
    ├── JobFailedError                    no        1       the job's driver ended without an outcome
    ├── WaitFailedError                   yes       1       the wait for a job failed; the job goes on
    ├── SweepFailedError                  no        1
    ├── TrainingFailedError               no        1
    └── SweepInterrupted (KeyboardInterrupt)  no    3       Ctrl-C; the sweep can be resumed

    TrialStopped (BaseException)      raised inside user code to end its trial; never an error

`retryable`: whether doing the same again, later, may work. `exit_code`: what the command line ends with.
Every class pickles: its constructor arguments are its `args`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar, Literal


def message_of(error: BaseException) -> str:
    """What an exception says; one of a user's class may raise anything when it is asked."""
    try:
        return str(error)
    except BaseException:  # noqa: BLE001  it is no end of ours
        return "<exception str() failed>"


def one_line(text: str, limit: int = 600) -> str:
    """The text with runs of white space made one space, cut to `limit` characters."""
    flat = " ".join(text.split())
    return flat if len(flat) <= limit else flat[: limit - 1] + "…"


class RaysweepError(Exception):
    """The root of all errors of raysweep."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 1

    def __str__(self) -> str:
        return one_line("; ".join(str(part) for part in self.args if part not in ("", None)))


class SpecError(RaysweepError, ValueError):
    """A spec or another input of the user cannot be used: names the field, the problem and the fix."""

    exit_code: ClassVar[int] = 2

    def __init__(self, field: str, problem: str, fix: str = "") -> None:
        super().__init__(field, problem, fix)
        self.field = field
        self.problem = problem
        self.fix = fix
        self.others: tuple[str, ...] = ()  # further problems in the same input
        self.kept_uri = ""  # the results of what ran before the problem was met

    def __str__(self) -> str:
        head = f"{self.field}: {self.problem}" if self.field else self.problem
        more = f" (and {len(self.others)} more)" if self.others else ""
        kept = f"; what has run is kept in {self.kept_uri}" if self.kept_uri else ""
        return one_line((f"{head}; {self.fix}" if self.fix else head) + more + kept)


class TrainableImportError(SpecError):
    """The trainable cannot be imported, or is not callable."""


class InfeasibleResourcesError(SpecError):
    """The resources of one trial can never be served by this cluster."""


class StorageNotWritableError(SpecError):
    """The storage path cannot be written to."""


class StorageNotSharedError(SpecError):
    """The job on the cluster ended well, and its outcome is not where this side looks for it."""


class MetricNeverReportedError(SpecError):
    """A trial ended without ever reporting the metric of the sweep."""


class SampleFromError(SpecError):
    """A `sample_from` function raised for one config (then that is the cause), or returned no JSON value."""

    def __init__(
        self, field: str, problem: str, fix: str = "", config: Mapping[str, Any] | None = None
    ) -> None:
        super().__init__(field, problem, fix)
        self.config = dict(config or {})  # the values that were drawn before


class SpecChangedError(SpecError):
    """The sweep exists under this id with another spec, in a way that would mix two searches."""

    def __init__(self, sweep_id: str, diff: tuple[str, ...], fix: str = "") -> None:
        shown = " | ".join(diff[:5]) + (f" | and {len(diff) - 5} more" if len(diff) > 5 else "")
        super().__init__(
            "spec",
            f"sweep {sweep_id!r} was started with another spec: {shown}",
            fix or "use another key to start a new sweep, or change the spec back",
        )
        self.args = (sweep_id, tuple(diff), *([fix] if fix else []))
        self.sweep_id = sweep_id
        self.diff = tuple(diff)  # `max_t: 9 -> 27`, or `max_t differs` where only digests are known


class SweepNotFoundError(RaysweepError):
    """No sweep of this id is at the storage path."""

    exit_code: ClassVar[int] = 2

    def __init__(self, sweep_id: str, where: str = "", fix: str = "") -> None:
        super().__init__(sweep_id, where, fix)
        self.sweep_id = sweep_id
        self.where = where
        self.fix = fix

    def __str__(self) -> str:
        at = f" at {self.where}" if self.where else ""
        return one_line(
            f"no sweep {self.sweep_id!r}{at}; {self.fix or 'check the name, the key and the storage path'}"
        )


class LogNotFoundError(RaysweepError):
    """No log of this trial, or of this attempt of it, is stored."""

    exit_code: ClassVar[int] = 2

    def __init__(self, sweep_id: str, trial: int, attempt: int | None = None, fix: str = "") -> None:
        super().__init__(sweep_id, trial, attempt, fix)
        self.sweep_id = sweep_id
        self.trial = trial
        self.attempt = attempt
        self.fix = fix

    def __str__(self) -> str:
        which = f"attempt {self.attempt} of " if self.attempt is not None else ""
        return one_line(f"no log of {which}trial {self.trial} of {self.sweep_id!r} is stored; {self.fix}")


class SweepHeldError(RaysweepError):
    """Another controller that is alive holds the sweep."""

    retryable: ClassVar[bool] = True

    def __init__(self, sweep_id: str, holder: Any) -> None:
        super().__init__(sweep_id, holder)
        self.sweep_id = sweep_id
        self.holder = holder

    def __str__(self) -> str:
        return one_line(
            f"sweep {self.sweep_id!r} is held by a live controller ({self.holder}); "
            "wait for it, cancel it, or take the sweep over"
        )


class ChampionKeptError(RaysweepError):
    """The champion of its name was found by this sweep, and its checkpoint lies there."""

    def __init__(self, sweep_id: str, name: str) -> None:
        super().__init__(sweep_id, name)
        self.sweep_id = sweep_id
        self.name = name

    def __str__(self) -> str:
        return one_line(
            f"sweep {self.sweep_id!r} holds the checkpoint of the champion of {self.name!r}; "
            "use another key to begin anew, or wait until another champion has replaced it"
        )


class GateOutdatedError(RaysweepError):
    """What a gate ran again was the best of an outcome that is not the sweep's newest any more."""

    retryable: ClassVar[bool] = True

    def __init__(self, sweep_id: str, ran: str) -> None:
        super().__init__(sweep_id, ran)
        self.sweep_id = sweep_id
        self.ran = ran

    def __str__(self) -> str:
        return one_line(
            f"{self.ran!r} ran for another outcome of sweep {self.sweep_id!r}, which has gone on since; "
            "run the gate again: it judges what the sweep has now"
        )


class FencedError(RaysweepError):
    """This controller was superseded by a newer one and must stop without writing anything more."""

    def __init__(self, sweep_id: str, generation: int, by_generation: int) -> None:
        super().__init__(sweep_id, generation, by_generation)
        self.sweep_id = sweep_id
        self.generation = generation
        self.by_generation = by_generation

    def __str__(self) -> str:
        return (
            f"controller generation {self.generation} of sweep {self.sweep_id!r} was superseded by "
            f"generation {self.by_generation}; follow that one"
        )


class StorageError(RaysweepError):
    """Reading or writing the storage failed."""

    retryable: ClassVar[bool] = True

    def __init__(self, path: str, problem: str, fix: str = "") -> None:
        super().__init__(path, problem, fix)
        self.path = path
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        head = f"{self.path}: {self.problem}"
        return one_line(f"{head}; {self.fix}" if self.fix else head)


class StorageUnavailableError(StorageError):
    """The storage does not answer, or refuses for now."""


class JournalDamagedError(StorageError):
    """A part of the journal is missing or fails its checksum; `lost` says what went with it."""

    retryable: ClassVar[bool] = False

    def __init__(self, path: str, problem: str, lost: str = "", fix: str = "") -> None:
        super().__init__(path, problem, fix)
        self.args = (path, problem, lost, fix)
        self.lost = lost

    def __str__(self) -> str:
        parts = [f"{self.path}: {self.problem}"]
        parts += [f"lost: {self.lost}"] if self.lost else []
        parts += [self.fix] if self.fix else []
        return one_line("; ".join(parts))


class CheckpointDamagedError(StorageError):
    """A file of a checkpoint is missing or is not what its manifest says."""

    retryable: ClassVar[bool] = False


class SweepDamagedError(StorageError):
    """sweep.json or outcome.json is missing or is not as it was written; nothing is started over instead."""

    retryable: ClassVar[bool] = False


class SegmentExistsError(StorageError):
    """A journal segment of this number already exists."""

    retryable: ClassVar[bool] = False

    def __init__(self, number: int) -> None:
        super().__init__(f"journal segment {number}", "already exists")
        self.args = (number,)
        self.number = number


class ClusterError(RaysweepError):
    """The Ray cluster cannot be used."""

    retryable: ClassVar[bool] = True

    def __init__(self, address: str, problem: str, fix: str = "") -> None:
        super().__init__(address, problem, fix)
        self.address = address
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        head = f"Ray cluster {self.address or '(embedded)'}: {self.problem}"
        return one_line(f"{head}; {self.fix}" if self.fix else head)


class ClusterUnreachableError(ClusterError):
    """No connection to the Ray cluster could be made."""


class ConnectionUnreadableError(ClusterError):
    """The secrets backend, which keeps the address and the token of the cluster, did not respond."""


class ClusterLostError(ClusterError):
    """The Ray cluster went away while the sweep ran; the sweep can be resumed."""


class ClusterCertificateError(ClusterError):
    """TLS failed: the certificate of the server, or of this client, was not accepted."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 2


class ClusterAuthError(ClusterError):
    """The Ray cluster did not let this client in. The text never holds the token."""

    retryable: ClassVar[bool] = False
    exit_code: ClassVar[int] = 2


class TokenMissingError(ClusterAuthError):
    """The Ray cluster asks for a token, and none was sent (HTTP 401)."""


class TokenRefusedError(ClusterAuthError):
    """The Ray cluster does not accept this token (HTTP 403)."""


class ClusterServerError(ClusterError):
    """The Jobs API of the Ray cluster answered that it failed (HTTP 5xx)."""


class ClusterRequestError(ClusterError):
    """The Jobs API of the Ray cluster refused the request (HTTP 4xx), and would refuse it again."""

    retryable: ClassVar[bool] = False


class JobNotFoundError(ClusterRequestError):
    """The Ray cluster knows no such job: it never did, or its head was restarted since."""

    exit_code: ClassVar[int] = 2

    def __init__(self, address: str, job_id: str) -> None:
        super().__init__(
            address,
            f"knows no job {job_id!r}",
            "check the id; a head that was restarted forgets its jobs: submit again, and the sweep resumes",
        )
        self.args = (address, job_id)
        self.job_id = job_id


class JobExistsError(ClusterRequestError):
    """A job of this id was submitted before, by another process or by a request whose answer was lost."""

    def __init__(self, address: str, job_id: str) -> None:
        super().__init__(address, f"already has a job {job_id!r}", "attach to it")
        self.args = (address, job_id)
        self.job_id = job_id


class ProgramFailedError(RaysweepError):
    """The program of a command could not be started, or ended with an error.

    `output`: the last of what it wrote; `code`: its exit code, below 0 the signal that ended it; `origin`:
    what its failure counts as (see `core.vocabulary.failures`).
    """

    def __init__(
        self,
        message: str,
        output: str = "",
        code: int | None = None,
        origin: Literal["exception", "process", "memory", "gpu_memory"] = "exception",
    ) -> None:
        super().__init__(message, output, code, origin)
        self.message = message
        self.output = output
        self.code = code
        self.origin = origin

    def __str__(self) -> str:
        return one_line(self.message)


class JobStoppedError(RaysweepError):
    """The Ray job was stopped by a person before there was an outcome; it is not submitted again unasked."""

    exit_code: ClassVar[int] = 3

    def __init__(self, job_id: str, note: str = "") -> None:
        super().__init__(job_id, note)
        self.job_id = job_id
        self.note = note

    def __str__(self) -> str:
        note = self.note or "submit again with resume_cancelled=True to resume it"
        return one_line(f"job {self.job_id!r} was stopped before it had an outcome; {note}")


class JobFailedError(RaysweepError):
    """The driver of the Ray job ended without an outcome, in a way that the next try would repeat."""

    def __init__(self, job_id: str, problem: str, fix: str = "") -> None:
        super().__init__(job_id, problem, fix)
        self.job_id = job_id
        self.problem = problem
        self.fix = fix

    def __str__(self) -> str:
        head = f"job {self.job_id!r} failed: {self.problem}"
        return one_line(f"{head}; {self.fix}" if self.fix else head)


class WaitFailedError(RaysweepError):
    """The wait for a job failed on this side; the job goes on, and the next wait finds it."""

    retryable: ClassVar[bool] = True

    def __init__(self, job_id: str, problem: str) -> None:
        super().__init__(job_id, problem)
        self.job_id = job_id
        self.problem = problem

    def __str__(self) -> str:
        return one_line(f"the wait for job {self.job_id!r} failed: {self.problem}; it is running: wait again")


class _OutcomeError(RaysweepError):
    """An outcome that its reader refused: `outcome`, whole. `note` is a text in place of its own."""

    noun: ClassVar[str] = "run"
    id_field: ClassVar[str] = "run_id"

    def __init__(self, outcome: Any, note: str = "") -> None:
        super().__init__(outcome, note)
        self.outcome = outcome
        self.note = note

    def __str__(self) -> str:
        if self.note:
            return one_line(self.note)
        error = getattr(self.outcome, "error", None)
        why = getattr(self.outcome, "why", "") or getattr(error, "message", "") or "no reason recorded"
        where = getattr(self.outcome, "uri", "")
        status = getattr(self.outcome, "status", "failed")
        text = f"{self.noun} {getattr(self.outcome, self.id_field, '?')!r} {status}: {why}"
        message = getattr(error, "message", "")
        if message and message not in text:
            text += f"; first error: {self._who()}{getattr(error, 'type', '')}: {message}"
            at = getattr(error, "where", "")
            text += f" (at {at})" if at else ""
        return one_line(f"{text}; see {where}" if where else text)

    def _who(self) -> str:
        trial = getattr(self.outcome, "first_failure", None)
        return f"trial {trial.trial_id}: " if trial is not None else ""


class SweepFailedError(_OutcomeError):
    """The sweep ended without a result that may be used; raised by `SweepOutcome.raise_for_status()`."""

    noun: ClassVar[str] = "sweep"
    id_field: ClassVar[str] = "sweep_id"


class TrainingFailedError(_OutcomeError):
    """The training run failed; raised by `TrainOutcome.raise_for_status()`."""

    noun: ClassVar[str] = "training"


class SweepInterrupted(RaysweepError, KeyboardInterrupt):
    """Ctrl-C, or a request to end: the sweep stopped cleanly and can be resumed with the same key."""

    exit_code: ClassVar[int] = 3

    def __init__(self, sweep_id: str, note: str = "", so_far: str = "") -> None:
        super().__init__(sweep_id, note, so_far)
        self.sweep_id = sweep_id
        self.note = note
        self.so_far = so_far  # its results until then, the best trial above all

    def __str__(self) -> str:
        note = self.note or "run it again with the same key to resume it"
        parts = [f"sweep {self.sweep_id!r} was interrupted", self.so_far, note]
        return "; ".join(one_line(part) for part in parts if part)


class TrialStopped(BaseException):
    """Ends a trial: `raysweep.report` raises it, and `except Exception` in user code does not catch it."""

    def __init__(self, reason: str = "", message: str = "") -> None:
        super().__init__(message or reason)
        self.reason = reason
