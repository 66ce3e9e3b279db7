"""From the facts of a failure to its class, and from the class to what is done about it.

| class | facts | action |
|---|---|---|
| `user_error` | the trainable raised | retried `max_failures` times; not where a rerun cannot mend it |
| `worker_died` | the process died or was lost, its node lives | retried `max_worker_deaths` times |
| `hung` | no report for `report_timeout_s` | killed; shares the budget of `worker_died` |
| `oom` | ended by Ray's memory monitor, the kernel, or its limit | retried with more memory, in that budget |
| `preempted` | the node was drained or died | runs again elsewhere, costs nothing |
| `no_room` | its config asks for what no node has | not retried |
| `gpu_oom` | a GPU's memory ran out | not retried, but for once with a whole GPU after a part of one |
| `non_finite` | the metric was NaN or infinite | not retried |
| `infeasible` | the trainable raised `raysweep.Infeasible` | not retried; the breaker does not count it |

A checkpoint that could not be stored is no failure of its trial (`CheckpointFailed`); a node that makes
trials fail is excluded (`attempts.blame_node`), and what failed there does not count.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Literal

from raysweep.specs import FailurePolicy

Origin = Literal[
    "exception",
    "infeasible",
    "process",
    "node",
    "memory",
    "gpu_memory",
    "start",
    "metric",
    "hang",
    "placement",
]
NodeState = Literal["", "alive", "draining", "dead"]
FailureKind = Literal[
    "user_error",
    "worker_died",
    "hung",
    "oom",
    "preempted",
    "no_room",
    "gpu_oom",
    "non_finite",
    "infeasible",
]

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
        "GangReportsDiffer",
        "MetricNeverReported",
    }
)
_BY_CONFIG: Final = frozenset({"oom", "no_room", "gpu_oom", "non_finite", "infeasible"})
"""Failures of these classes say something about the config; the others about the cluster or the code."""
# With so much of a node's memory, the little that is left would not have helped.
_NEARLY: Final = 0.95
# Keeps the power finite however often a policy retries.
_MAX_DOUBLINGS: Final = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """The facts of one failure, as the shell saw them.

    `bases` holds the class names of the exception's inheritance line; `traceback` its first 4 KiB, and
    `traceback_uri` says where all of it is. `node_state`: how the node was when the process ended.
    `memory_bytes`: the most that the process was seen to hold.
    """

    origin: Origin
    type: str = ""
    message: str = ""
    traceback: str = ""
    bases: tuple[str, ...] = ()
    exit_code: int | None = None
    is_fatal: bool = False
    """No trial can ever run: the trainable cannot be loaded, the resources can never be had."""
    node_state: NodeState = ""
    memory_bytes: int | None = None
    traceback_uri: str = ""

    def __str__(self) -> str:
        return ": ".join(part for part in (self.type, self.message) if part)


def classify(failure: Failure) -> FailureKind:
    """The class of a failure (see the table in the module docstring)."""
    match failure.origin:
        case "node":
            return "preempted"
        case "memory":
            return "oom"
        case "metric":
            return "non_finite"
        case "hang":
            return "hung"
        case "placement":
            return "no_room"
        case "process" | "start":
            if "OutOfMemoryError" in failure.bases:
                return "oom"
            return "preempted" if failure.node_state in ("draining", "dead") else "worker_died"
        case "gpu_memory":
            return "gpu_oom"
        case "infeasible":
            return "infeasible"
        case "exception":
            return "user_error"


_DEATHS: Final[tuple[FailureKind, ...]] = ("worker_died", "hung", "oom")


def same_budget(kind: FailureKind) -> tuple[FailureKind, ...]:
    """The classes that share the budget of this one."""
    return _DEATHS if kind in _DEATHS else (kind,)


def is_retried(
    failure: Failure, kind: FailureKind, earlier: int, reports: int, policy: FailurePolicy
) -> bool:
    """True if a trial gets another attempt, after `earlier` failures of this budget and `reports` reports."""
    match kind:
        case "user_error":
            return not _is_hopeless(failure, reports) and earlier < policy.max_failures
        case "worker_died" | "hung" | "oom":
            return earlier < policy.max_worker_deaths
        case "preempted":
            return True
        case "no_room" | "gpu_oom" | "non_finite" | "infeasible":
            return False


def is_by_config(failure: Failure | None, kind: FailureKind | None, earlier: int, reports: int) -> bool:
    """True if a trial that failed for good did so by its config, so that others near to it would fail, too.

    Of an error in user code that holds where a rerun failed as well, or cannot mend it.

    Args:
        failure: The facts of its last failure.
        kind: The class of that.
        earlier: How many of its attempts had failed in user code before.
        reports: How many reports it has made.
    """
    if kind == "user_error":
        return earlier > 0 or (failure is not None and _is_hopeless(failure, reports))
    return kind in _BY_CONFIG


def _is_hopeless(failure: Failure, reports: int) -> bool:
    return reports == 0 and not _HOPELESS.isdisjoint(failure.bases)


def more_memory(base: int | None, factor: float, largest: int) -> int | None:
    """The next memory of a trial that ran out of it with `base` bytes; None: no node has more.

    `largest` is what the largest node offers, 0 where that is not known. Without `base` nothing is asked for
    (0): the trial's need is unknown.
    """
    if base is None or factor == 1:
        return base or 0
    wanted = int(base * factor)
    if not largest or wanted <= largest:
        return wanted
    return largest if base < _NEARLY * largest else None


def backoff_s(policy: FailurePolicy, seed: int, trial: int, retry: int) -> float:
    """Seconds before retry number `retry` (1, 2, …): doubles each time, up to `backoff_max_s`.

    The upper half is jitter, derived from the seed: trials that failed together do not return together.
    """
    doublings = min(max(0, retry - 1), _MAX_DOUBLINGS)
    ceiling = min(policy.backoff_max_s, policy.backoff_initial_s * 2.0**doublings)
    digest = blake2b(f"{seed}:{trial}:{retry}".encode(), digest_size=4).digest()
    return ceiling * (0.5 + int.from_bytes(digest, "big") / 2**33)
