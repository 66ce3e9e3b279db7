"""Errors of the Ray cluster and of its jobs."""

from __future__ import annotations

from typing import ClassVar

from raysweep.errors.base import RaysweepError, one_line


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


class ClusterStartError(ClusterError):
    """A cluster that was to be brought up for a run did not come up; it was deleted."""


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
    """The wait for a job failed on this side; the job continues, and the next wait finds it."""

    retryable: ClassVar[bool] = True
    exit_code: ClassVar[int] = 5

    def __init__(self, job_id: str, problem: str) -> None:
        super().__init__(job_id, problem)
        self.job_id = job_id
        self.problem = problem

    def __str__(self) -> str:
        return one_line(f"the wait for job {self.job_id!r} failed: {self.problem}; it is running: wait again")
