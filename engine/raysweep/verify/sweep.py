"""A whole sweep: its spec, journal, snapshots, checkpoints, outcome and heartbeat, and whether they agree."""

from __future__ import annotations

import time

from raysweep.core import SweepState
from raysweep.core.state.trial import trial_id
from raysweep.documents.json_numbers import Counts
from raysweep.errors import StorageError, StorageUnavailableError
from raysweep.outcome import SweepProgress
from raysweep.runs.across_runs.champions import FOLDER as CHAMPIONS
from raysweep.runs.folder import SweepFolder
from raysweep.runs.ownership.holder import holder_state
from raysweep.runs.reading.checkpoints import pinned_numbers
from raysweep.schedulers import load_scheduler
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.verify.checkpoints import CheckpointCheck
from raysweep.verify.documents import check_listed, check_outcome, check_progress, check_spec, replay_state
from raysweep.verify.evidence import check_evidence
from raysweep.verify.journal import JournalCheck, check_journal
from raysweep.verify.report import Checked, Finding, OnRead, VerifyReport
from raysweep.verify.snapshots import SnapshotCheck


def verify_sweep(
    folder: SweepFolder, *, is_quick: bool = False, on_read: OnRead | None = None
) -> VerifyReport:
    """Check everything that a sweep's folder holds. Only reads; takes one listing and every object once.

    Args:
        is_quick: Compare the sizes of checkpoint files only, and do not read them.
        on_read: Told what is read, how many bytes of it were, and how many there are at most; 0: not known.

    Raises:
        StorageError: The storage does not answer. What is damaged is in the report, and raises nothing.
        SpecError: The sweep's scheduler is a class that cannot be imported here.
    """
    checked = Checked()
    # In this order: what controllers wrote after the listing, and refer to, cannot look like an orphan.
    infos = list(folder.store.list(folder.sweep_id))
    if on_read is not None:
        on_read("checking the journal", 0, 0)
    progress, findings = check_progress(folder)
    record, spec = check_spec(folder, findings)
    if spec is not None:
        load_scheduler(spec)
    snapshots = SnapshotCheck(folder, infos, checked, findings)
    state = SweepState.create(spec, record.seed) if record is not None and spec is not None else None
    journal = check_journal(folder, state, checked, snapshots.compare)
    findings += journal.findings
    snapshots.check_rest(journal)
    _check_end(folder, journal, progress, findings)
    known = journal.state if journal.is_whole else None
    checkpoints = [info for info in infos if info.key.startswith(f"{folder.sweep_id}/checkpoints/")]
    is_running = holder_state(progress, time.time()) == "alive"
    pinned = _pinned(folder, findings)
    checking = CheckpointCheck(folder, checkpoints, checked, is_quick=is_quick, on_read=on_read)
    found = list(checking.run(known, pinned or (), journal.unsealed))
    if pinned is None:  # an orphan may be a champion's
        found = [finding for finding in found if finding.severity != "orphan"]
    findings += _still_wanted(folder, found) if is_running else found
    findings += check_outcome(folder, record, known)
    findings += check_listed(folder)
    told = {finding.object for finding in findings}
    findings += (each for each in check_evidence(folder, spec) if each.object not in told)
    return VerifyReport(
        sweep_id=folder.sweep_id,
        uri=folder.uri,
        status=_status(known),
        is_running=is_running,
        is_quick=is_quick,
        generation=journal.generation,
        trials=Counts.of(journal.state.line.counts if journal.state is not None else {}),
        readable=_readable(journal),
        checked=checked,
        findings=tuple(sorted(findings, key=lambda finding: _RANK[finding.severity])),
    )


def _pinned(folder: SweepFolder, findings: list[Finding]) -> dict[tuple[str, int], tuple[str, ...]] | None:
    """Checkpoints needed by others than the sweep; None: a damaged champion's file may name one.

    Raises: StorageError: The storage does not answer.
    """
    try:
        return pinned_numbers(folder)
    except StorageError as error:
        key = error.path.removeprefix(f"{folder.store.url}/")
        if not key.startswith(f"{CHAMPIONS}/") or isinstance(error, StorageUnavailableError):
            raise
        lost = "which checkpoint a champion needs: none is said to be an orphan"
        findings.append(
            Finding(severity="damage", object=key, problem=error.problem, lost=lost, fix=error.fix)
        )
        return None


def _still_wanted(folder: SweepFolder, findings: list[Finding]) -> list[Finding]:
    """Without the damage of checkpoints that a running controller has deleted since, as it may."""
    if all(finding.severity != "damage" for finding in findings):
        return findings
    replayed = replay_state(folder)
    if replayed is None:
        return findings
    wanted = {
        (trial_id(owner), checkpoint.number)
        for trial in replayed[1].trials.values()
        for owner, checkpoint in trial.needed
    }

    return [each for each in findings if each.severity != "damage" or each.checkpoint in wanted]


_RANK = {"damage": 0, "orphan": 1, "note": 2}


def _status(state: SweepState | None) -> str:
    if state is None:
        return "unreadable"
    return state.end.status if state.phase == "ended" and state.end.status else "unfinished"


def _readable(journal: JournalCheck) -> str:
    if journal.state is None:
        return "the journal cannot be replayed without sweep.json"
    ended = Counts(journal.state.line.counts).ended
    what = f"{ended} of {len(journal.state.trials)} trials had ended"
    if journal.is_whole:
        return f"the journal is readable to its end, segment {journal.last_number}: {what}"
    return f"the journal is readable up to segment {journal.last_number}: {what} by then"


def _check_end(
    folder: SweepFolder, journal: JournalCheck, progress: SweepProgress | None, findings: list[Finding]
) -> None:
    """A journal that lost its last objects has no gap; the heartbeat knows how far it went."""
    claimed = journal.generation + journal.lost_claims
    if progress is None or progress.generation <= claimed or not journal.is_whole:
        return
    # Read again: a controller may have claimed since.
    fresh = folder.journal()
    for _ in fresh.read():
        pass
    if progress.generation > fresh.generation + fresh.lost_claims:
        problem = f"ends in generation {claimed}, but progress.json is of {progress.generation}"
        lost = f"what came after segment {journal.last_number}"
        findings.append(
            Finding(severity="damage", object="journal", problem=problem, lost=lost, fix=RESTORE_FIX)
        )
