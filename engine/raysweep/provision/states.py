"""The phases of a RayJob, from its status, as pure functions.

| RayJob | phase |
|---|---|
| is being deleted | `leaving` |
| is not there | `absent` |
| `Complete` or `Failed` | `ended` |
| `Running`, its keeper `RUNNING`, the head's address known | `ready` |
| anything else: `Initializing`, `Suspended`, … | `coming` |
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, Literal

from raysweep.errors import one_line
from raysweep.provision.manifest import LEASE_ANNOTATION, MANAGER, MANAGER_LABEL, RENEWED_ANNOTATION

Phase = Literal["absent", "leaving", "ended", "coming", "ready"]
RayJob = Mapping[str, Any]
_ENDED: Final = frozenset({"Complete", "Failed"})

_FIXES: Final = {
    "AppFailed": "the image of the head must hold raysweep[ray] of this release; see the log of its job",
    "DeadlineExceeded": "raise activeDeadlineSeconds in the manifest",
    "PreRunningDeadlineExceeded": "raise preRunningDeadlineSeconds, or see why its pods do not start",
    "SubmissionFailed": "see the log of the submitter's pod",
    "ValidationFailed": "correct the manifest",
    "JobDeploymentStatusTransitionGracePeriodExceeded": "see the operator's log",
}
"""The fix, by the reason that KubeRay gives."""


def phase_of(job: RayJob | None) -> Phase:
    """The row of the table that fits."""
    if job is None:
        return "absent"
    if (job.get("metadata") or {}).get("deletionTimestamp"):
        return "leaving"
    status = job.get("status") or {}
    deployment = status.get("jobDeploymentStatus")
    if deployment in _ENDED:
        return "ended"
    is_kept = deployment == "Running" and status.get("jobStatus") == "RUNNING"
    return "ready" if is_kept and status.get("dashboardURL") else "coming"


def is_ours(job: RayJob) -> bool:
    """True if raysweep made it."""
    return ((job.get("metadata") or {}).get("labels") or {}).get(MANAGER_LABEL) == MANAGER


def why_ended(job: RayJob) -> str:
    """The end of a RayJob, in its own words: `Failed, AppFailed: …`."""
    status = job.get("status") or {}
    parts = [str(status.get("jobDeploymentStatus") or "unknown"), str(status.get("reason") or "")]
    head = ", ".join(part for part in parts if part)
    said = one_line(str(status.get("message") or ""), 300)
    return f"{head}: {said}" if said else head


def fix_of(job: RayJob) -> str:
    """The fix for its end."""
    reason = str((job.get("status") or {}).get("reason") or "")
    meta = job.get("metadata") or {}
    look = f"kubectl -n {meta.get('namespace', 'default')} describe rayjob {meta.get('name', '')}"
    return _FIXES.get(reason, f"see {look}")


def how_far(job: RayJob) -> str:
    """The progress of a cluster: the parts that are there, and what KubeRay says of the rest."""
    status = job.get("status") or {}
    cluster = status.get("rayClusterStatus") or {}
    text = str(status.get("jobDeploymentStatus") or "not seen by the operator yet")
    if text == "Suspended":
        text += " (queued)"
    wanted = cluster.get("desiredWorkerReplicas")
    if wanted is not None:
        text += f", {cluster.get('availableWorkerReplicas', 0)} of {wanted} workers"
    said = [
        str(each.get("message") or each.get("reason") or "")
        for each in cluster.get("conditions") or ()
        if each.get("status") == "False" or each.get("type") == "ReplicaFailure"
    ]
    said.append(str(cluster.get("reason") or status.get("message") or ""))
    note = one_line("; ".join(dict.fromkeys(each for each in said if each)), 300)
    return f"{text}: {note}" if note else text


def lease_left_s(job: RayJob, now: float) -> float:
    """The seconds left of the lease since something waited for the cluster to come up; may be < 0.

    Annotations that are not there, or that a person has edited, leave none.
    """
    notes = (job.get("metadata") or {}).get("annotations") or {}
    try:
        return float(notes[RENEWED_ANNOTATION]) + float(notes[LEASE_ANNOTATION]) - now
    except (KeyError, TypeError, ValueError):
        return -1.0


def why_leaked(job: RayJob, now: float) -> str:
    """The reason why a RayJob is left over and can be deleted; empty where it cannot.

    A `ready` one is never left over: its keeper ends it. One that ended, or is still coming, is left over
    once nothing has renewed its lease.
    """
    phase = phase_of(job)
    if not is_ours(job) or phase in ("absent", "leaving", "ready"):
        return ""
    left_s = lease_left_s(job, now)
    if left_s > 0:
        return ""
    return (
        "it has ended"
        if phase == "ended"
        else f"nothing has waited for it, its lease ended {-left_s:.0f} s ago"
    )
