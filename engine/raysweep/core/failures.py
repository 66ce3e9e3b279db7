"""From the facts of a failure to its class, and from the class to what is done about it.

| class | facts | action |
|---|---|---|
| `user_error` | the trainable raised | retried `max_failures` times; not where a rerun cannot mend it |
| `worker_died` | the process died or was lost, its node lives | retried `max_worker_deaths` times |
| `oom` | Ray's memory monitor ended the process | as `worker_died` |
| `preempted` | the node was drained or died | runs again elsewhere, costs nothing |
| `gpu_oom` | CUDA out-of-memory in the exception | the config is infeasible: not retried |
| `non_finite` | the metric was NaN or infinite | not retried |
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

from raysweep.spec import FailurePolicy

Origin = Literal["exception", "process", "node", "memory", "start", "metric"]
FailureKind = Literal["user_error", "worker_died", "oom", "preempted", "gpu_oom", "non_finite"]

# A rerun of the same code with the same config ends the same way: retrying before the first report is waste.
_HOPELESS: Final = frozenset(
    {
        "TypeError",
        "ImportError",
        "AttributeError",
        "NameError",
        "SyntaxError",
        "NotImplementedError",
        "KeyError",
    }
)
# Keeps the power finite however often a policy retries.
_MAX_DOUBLINGS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The facts of one failure, as the shell saw them.

    `bases` holds the class names of the exception's inheritance line; `traceback` its first 4 KiB.
    """

    origin: Origin
    type: str = ""
    message: str = ""
    traceback: str = ""
    bases: tuple[str, ...] = ()
    exit_code: int | None = None
    is_fatal: bool = False
    """No trial can ever run: the trainable cannot be loaded, the resources can never be had."""


def classify(failure: Failure) -> FailureKind:
    """The class of a failure (see the table in the module docstring)."""
    match failure.origin:
        case "node":
            return "preempted"
        case "memory":
            return "oom"
        case "metric":
            return "non_finite"
        case "process" | "start":
            return "worker_died"
        case "exception":
            return "gpu_oom" if _is_gpu_oom(failure) else "user_error"


def _is_gpu_oom(failure: Failure) -> bool:
    # torch.OutOfMemoryError; Ray has an error of that name too, about the host's memory.
    is_named_so = "OutOfMemoryError" in failure.bases and "RayError" not in failure.bases
    return is_named_so or "CUDA out of memory" in failure.message


def is_retried(
    failure: Failure, kind: FailureKind, earlier: int, reports: int, policy: FailurePolicy
) -> bool:
    """Whether a trial gets another attempt, after `earlier` failures of this class and `reports` reports."""
    if kind == "user_error":
        is_hopeless = reports == 0 and not _HOPELESS.isdisjoint(failure.bases)
        return not is_hopeless and earlier < policy.max_failures
    if kind in ("worker_died", "oom"):
        return earlier < policy.max_worker_deaths
    return kind == "preempted"


def backoff_s(policy: FailurePolicy, seed: int, trial: int, retry: int) -> float:
    """Seconds before retry number `retry` (1, 2, …): doubles each time, up to `backoff_max_s`.

    The upper half is jitter, derived from the seed: trials that failed together do not return together.
    """
    doublings = min(max(0, retry - 1), _MAX_DOUBLINGS)
    ceiling = min(policy.backoff_max_s, policy.backoff_initial_s * 2.0**doublings)
    digest = blake2b(f"{seed}:{trial}:{retry}".encode(), digest_size=4).digest()
    return ceiling * (0.5 + int.from_bytes(digest, "big") / 2**33)
