"""The Jobs API on the wire: what is sent, what is answered, and which error an answer is.

Source: ray 2.60, `ray/dashboard/modules/job/job_head.py` and `common.py`. A duplicate id has no status code
of its own: it is a 500 whose text tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, Literal

import orjson
from pydantic import SecretStr

from raysweep.errors import (
    ClusterAuthError,
    ClusterCertificateError,
    ClusterError,
    ClusterRequestError,
    ClusterServerError,
    ClusterUnreachableError,
    JobExistsError,
    JobNotFoundError,
    TokenMissingError,
    TokenRefusedError,
)

JobStatus = Literal["PENDING", "RUNNING", "STOPPED", "SUCCEEDED", "FAILED"]
ENDED: Final = frozenset({"STOPPED", "SUCCEEDED", "FAILED"})
_PASSING: Final = frozenset({408, 425, 429, 500, 502, 503, 504})


@dataclass(frozen=True, slots=True, kw_only=True)
class Submission:
    """One job to submit. `env_vars` become part of its runtime environment only on the wire."""

    job_id: str
    entrypoint: str
    runtime_env: Mapping[str, Any] = field(default_factory=dict)
    env_vars: Mapping[str, SecretStr] = field(default_factory=dict)
    metadata: Mapping[str, str] = field(default_factory=dict)
    num_cpus: float | None = None
    num_gpus: float | None = None
    memory_bytes: int | None = None
    resources: Mapping[str, float] = field(default_factory=dict)
    label_selector: Mapping[str, str] = field(default_factory=dict)

    def encode(self) -> bytes:
        """The request's body. It holds the secrets: keep it out of every variable that a traceback shows."""
        environment = dict(self.runtime_env)
        if self.env_vars:
            environment["env_vars"] = {name: each.get_secret_value() for name, each in self.env_vars.items()}
        fields = {
            "entrypoint": self.entrypoint,
            "submission_id": self.job_id,
            "runtime_env": environment,
            "metadata": dict(self.metadata),
            "entrypoint_num_cpus": self.num_cpus,
            "entrypoint_num_gpus": self.num_gpus,
            "entrypoint_memory": self.memory_bytes,
            "entrypoint_resources": dict(self.resources) or None,
            "entrypoint_label_selector": dict(self.label_selector) or None,
        }
        return orjson.dumps({name: value for name, value in fields.items() if value is not None})


@dataclass(frozen=True, slots=True, kw_only=True)
class JobInfo:
    """One job as the cluster tells it, without its runtime environment, which holds secrets.

    Times are UTC seconds.
    """

    job_id: str
    status: JobStatus
    message: str = ""
    error_type: str = ""
    entrypoint: str = ""
    metadata: Mapping[str, str] = field(default_factory=dict)
    started_at: float | None = None
    ended_at: float | None = None
    exit_code: int | None = None
    node_id: str = ""

    @property
    def is_ended(self) -> bool:
        """True if the job can change no more."""
        return self.status in ENDED


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterVersion:
    """The answer of `/api/version`."""

    ray: str
    api: str = ""
    session: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The end of one request; nothing in it refers to what was sent."""

    status: int = 0
    """The HTTP status; 0 where no answer came."""
    body: bytes = field(default=b"", repr=False)
    """May repeat what was sent: it is not shown."""
    failure: Literal["", "unreachable", "certificate"] = ""
    detail: str = ""

    @property
    def is_good(self) -> bool:
        """True if it is the answer that was asked for."""
        return 200 <= self.status < 300

    @property
    def may_pass(self) -> bool:
        """True if the same request may be answered differently later."""
        return self.failure == "unreachable" or self.status in _PASSING

    def text(self) -> str:
        """The body as text; of a traceback, its last line."""
        lines = [line for line in self.body.decode(errors="replace").splitlines() if line.strip()]
        if lines and lines[0].startswith("Traceback"):
            return lines[-1].strip()
        return " ".join(lines)

    def says_exists(self, job_id: str) -> bool:
        """True if it refuses a job because there is one of this id."""
        return self.status >= 400 and f"submission_id {job_id} already exists".encode() in self.body


def error_of(answer: Answer, address: str, text: str, *, has_token: bool, job_id: str = "") -> ClusterError:
    """The typed error of an answer that is not good; `text` is its text without secrets."""
    shown = text[:400]
    if answer.failure == "certificate":
        fix = "give ca_bundle for the server's authority, or client_cert where the server asks for one"
        return ClusterCertificateError(address, f"TLS failed: {shown}", fix)
    if answer.failure:
        # A server that misses a client certificate may just hang up, after a handshake that went well.
        asks = ", and whether it asks for a client certificate" if address.startswith("https://") else ""
        return ClusterUnreachableError(
            address, f"does not answer: {shown}", f"check address and network{asks}"
        )
    if answer.status in (401, 403):
        return _refusal(answer.status, address, shown, has_token)
    # A gateway has 404s of its own: only one that names the job is the cluster's.
    if answer.status == 404 and job_id and f"Job {job_id} does not exist".encode() in answer.body:
        return JobNotFoundError(address, job_id)
    if job_id and answer.says_exists(job_id):
        return JobExistsError(address, job_id)
    said = f"answered {answer.status}" + (f": {shown}" if shown else "")
    if answer.status == 404:
        return ClusterRequestError(address, said, "check that the address is the one of a Ray dashboard")
    if answer.status >= 500 or answer.status in _PASSING:
        return ClusterServerError(address, said, "see the cluster's dashboard logs, and try again")
    if 300 <= answer.status < 400:
        return ClusterRequestError(address, said, "give the address that it redirects to")
    return ClusterRequestError(address, said, "check versions and arguments")


def _refusal(status: int, address: str, shown: str, has_token: bool) -> ClusterAuthError:
    said = f"answered {status}" + (f": {shown}" if shown else "")
    if status == 401 and not has_token:
        fix = "give a token, or set RAY_AUTH_TOKEN, or RAY_AUTH_TOKEN_PATH"
        return TokenMissingError(address, f"requires a token, and none was given ({said})", fix)
    if not has_token:
        fix = "check what stands between here and the cluster"
        return ClusterAuthError(address, f"forbids the request ({said})", fix)
    return TokenRefusedError(
        address, f"does not accept the token ({said})", "give the token that this cluster was started with"
    )


def read_info(fields: Mapping[str, Any]) -> JobInfo:
    """A job from the fields of the API; what this does not know is passed over."""
    return JobInfo(
        job_id=str(fields.get("submission_id") or fields.get("job_id") or ""),
        status=fields.get("status", "PENDING"),
        message=str(fields.get("message") or ""),
        error_type=str(fields.get("error_type") or ""),
        entrypoint=str(fields.get("entrypoint") or ""),
        metadata={str(name): str(value) for name, value in (fields.get("metadata") or {}).items()},
        started_at=_seconds(fields.get("start_time")),
        ended_at=_seconds(fields.get("end_time")),
        exit_code=fields.get("driver_exit_code"),
        node_id=str(fields.get("driver_node_id") or ""),
    )


def _seconds(milliseconds: Any) -> float | None:
    return milliseconds / 1000 if milliseconds else None
