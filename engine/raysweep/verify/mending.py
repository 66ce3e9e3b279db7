"""Mending by the program: orphans deleted, caches and the outcome made anew.

Pruning is safe beside a controller that starts meanwhile: objects are listed before the journal is read, so
whatever a later controller refers to was not listed, or is in the journal. A worker that outlives its
controller unseen is the other danger; where it is not certain that the last controller is gone,
only what has not changed for an hour is deleted.
"""

from __future__ import annotations

import math
import secrets
from typing import Final

from raysweep.errors import StorageError, SweepHeldError
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.holder import find_living, known_state
from raysweep.verify.documents import replay_outcome
from raysweep.verify.report import Finding, VerifyReport

QUIET_S: Final = 3600.0


def prune(folder: SweepFolder, report: VerifyReport) -> tuple[Finding, ...]:
    """Delete the orphans of a report; returns those that are gone.

    Raises:
        SweepHeldError: A controller runs the sweep: what looks like an orphan may be on its way.
        StorageError: It cannot be deleted.
    """
    age_s = _check_not_held(folder)
    now = _store_time(folder) if age_s else math.inf
    done = []
    for finding in report.orphans:
        if now - finding.modified_at >= age_s:
            for key in finding.keys:  # one by one: a bulk delete keeps no order, and the manifest goes first
                folder.store.delete(key)
            done.append(finding)
    return tuple(done)


def repair(folder: SweepFolder, report: VerifyReport) -> tuple[Finding, ...]:
    """Delete damaged snapshots, and write a damaged outcome anew from the journal; returns what was mended.

    Raises:
        SweepHeldError: A controller runs the sweep.
        StorageError: It cannot be written, or the journal cannot be read (any more).
    """
    _check_not_held(folder)
    done = []
    for finding in report.damage:
        if finding.mending == "drop":
            folder.store.delete(*finding.keys)
            done.append(finding)
        elif finding.mending == "rewrite":
            outcome = replay_outcome(folder)
            if outcome is None:
                raise StorageError(f"{folder.uri}/outcome.json", "cannot be made: the sweep has not ended")
            folder.store.delete(f"{folder.sweep_id}/outcome.json")
            folder.write_outcome_if_absent(outcome)
            done.append(finding)
    return tuple(done)


def _store_time(folder: SweepFolder) -> float:
    """Now, by the clock that dates the store's objects: ours may be another."""
    key = f"{folder.sweep_id}/.raysweep-probe-{secrets.token_hex(6)}"
    folder.store.put(key, b"probe")
    try:
        written = folder.store.head(key)
    finally:
        folder.store.delete(key)
    if written is None:
        raise StorageError(folder.uri_of(".raysweep-probe"), "was not there right after it was written")
    return written.modified_at


def _check_not_held(folder: SweepFolder) -> float:
    """The time for which something must have been left alone to be deleted, in seconds."""
    living = find_living(folder.read_progress)
    if living is not None:
        raise SweepHeldError(folder.sweep_id, living.holder)
    progress = folder.read_progress()
    if progress is None:  # it went with the end
        return 0.0 if folder.has_outcome() else QUIET_S
    if known_state(progress) is None:
        return QUIET_S
    return 0.0
