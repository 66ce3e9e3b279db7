"""Reopening a stored sweep if it is the one asked for: by a moved limit, or for more samples."""

from __future__ import annotations

import shlex
from typing import Final

from raysweep.core.handlers.sweep_end import ENDS_THAT_STAY
from raysweep.errors import SpecChangedError, SpecError, SweepDamagedError
from raysweep.outcome import SweepOutcome
from raysweep.outcome.showing.formatting import show_age
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.replay import newest_spec
from raysweep.specs import SweepSpec
from raysweep.specs.changes import Changes, changes
from raysweep.specs.code_digest import is_other_code
from raysweep.specs.continuing import Continue, Extension

NOT_CONTINUED: Final = Continue()
_LIMITS: Final = frozenset({"deadline", "budget"})


def reopens(outcome: SweepOutcome, diff: Changes, continuing: Continue) -> bool:
    """True if an ended sweep continues, given the changes of its spec.

    - `deadline` or `budget`: when that limit was moved.
    - `cancelled`: when `continuing.resume_cancelled` is set.
    - `completed`: when there are more samples, trials to retry or trials to extend.
    - `failed`: when there are trials to retry.
    - ended by a plateau or a target: when there are trials to extend.

    Never where a change would mix two searches.

    Raises:
        SpecError: Trials are to be extended, and cannot be.
    """
    if diff.unsafe:
        return False
    if outcome.status == "cancelled":
        return continuing.resume_cancelled
    if outcome.status in _LIMITS and _rule_of(outcome) in diff.moved:
        return True
    if outcome.status == "completed" and "num_samples" in diff.moved:
        return True
    if has_retries(outcome, continuing):
        return True
    if continuing.extend is None or (outcome.status in ENDS_THAT_STAY and diff):
        return False
    return has_extensions(outcome, continuing.extend)


def _rule_of(outcome: SweepOutcome) -> str:
    return outcome.ended_by.rule if outcome.ended_by is not None else outcome.status


def has_retries(outcome: SweepOutcome, continuing: Continue) -> bool:
    """True if some of its trials are to run again."""
    if continuing.retry is None or outcome.status not in ("completed", "failed"):
        return False
    wanted = None if continuing.retry == "failed" else set(continuing.retry)
    return any(
        trial.state == "failed" and (wanted is None or trial.number in wanted) for trial in outcome.trials
    )


def has_extensions(outcome: SweepOutcome, extend: Extension) -> bool:
    """True if some of its trials are to go further than they have been told to.

    Raises: SpecError where some should, and none can: the search is not over, or no trial has a checkpoint.
    """
    if outcome.status not in ("completed", *ENDS_THAT_STAY, *_LIMITS):
        return False
    done = [trial for trial in outcome.trials if trial.state in ("completed", "stopped")]
    wanted = set(extend.trials)
    chosen = [trial for trial in done if trial.number in wanted] if wanted else done
    told = sum(trial.max_t is not None and trial.max_t >= extend.max_t for trial in chosen)
    if chosen and told >= (extend.top or len(chosen)):
        return False
    if outcome.status in _LIMITS:
        raise _not_over(outcome)
    rest = [trial for trial in chosen if trial.max_t is None or trial.max_t < extend.max_t]
    if any(trial.checkpoint_uri for trial in rest):
        return True
    if told:
        return False
    problem = f"no trial of {outcome.sweep_id} has a checkpoint to resume from"
    raise SpecError("extend", problem, "have the trainable report checkpoints, and run a new sweep")


def _not_over(outcome: SweepOutcome) -> SpecError:
    """Trials of a sweep are to go further whose search a limit has ended before it was over."""
    rule = _rule_of(outcome)
    fix = f"raise {rule}: the sweep resumes, and extends its best trials once it has completed"
    if outcome.is_open_ended:
        fix = f"set num_samples to a number and raise {rule}: without a number the search is never over"
    return SpecError("extend", f"{outcome.sweep_id} was ended by {rule} before it completed", fix)


def check_same(
    folder: SweepFolder,
    spec: SweepSpec,
    outcome: SweepOutcome | None,
    *,
    continuing: Continue = NOT_CONTINUED,
) -> bool:
    """Is the stored sweep what `spec` asks for? Returns whether it continues although it has an outcome.

    A sweep that has ended takes no change, not even a safe one, but those that let it continue.

    Raises:
        SpecChangedError: With one line for each difference.
    """
    record = folder.read_spec()
    if record is not None:
        check_whole(folder, record)
    diff = stored_changes(folder, record, spec, outcome)
    lines = diff.unsafe
    if outcome is not None:
        if reopens(outcome, diff, continuing):
            return True
        lines = (*diff.unsafe, *diff.safe)
    if lines:
        raise SpecChangedError(folder.sweep_id, lines)
    return False


def stored_changes(
    folder: SweepFolder, record: SweepRecord | None, spec: SweepSpec, outcome: SweepOutcome | None
) -> Changes:
    """The differences between the sweep as it is stored and the spec that is asked for."""
    ran = outcome.spec_digest if outcome is not None else ""
    if record is None or (spec.digest() in (record.digest, ran)):
        return Changes()
    # What was changed since its start counts: more samples are more than those of the last time.
    stored = newest_spec(folder, record) if outcome is not None else SweepSpec.from_any(dict(record.spec))
    return changes(stored, spec, record.scheduled_at)


def check_whole(folder: SweepFolder, record: SweepRecord) -> None:
    """Make sure that no process is about to move the sweep away. Raises: SweepDamagedError."""
    if record.leaving:
        problem = f"was being {record.leaving.what} by {record.leaving.by}, and is not whole any more"
        fix = f"if that process is gone, `{_command(record.leaving.verb, folder)}` completes it"
        raise SweepDamagedError(folder.uri, problem, fix)


# -- notes about a sweep that ended before --------------------------------------------------------------


def told(outcome: SweepOutcome, *, code: str, now: float) -> SweepOutcome:
    """An outcome of earlier, handed on: with what a person must know of it, as nothing has run this time."""
    note = _old_failure(outcome, now) or _old_code(outcome, code)
    update = {"notes": (*outcome.notes, note), "nothing_ran": note}
    return outcome.model_copy(update=update) if note else outcome


def _old_failure(outcome: SweepOutcome, now: float) -> str:
    if outcome.status != "failed":
        return ""
    name = shlex.quote(outcome.sweep_id)
    storage = _storage(outcome.uri.rpartition("/")[0])
    return (
        f"nothing ran: this is the sweep that failed {show_age(now - outcome.ended_at)} ago, with "
        f"{outcome.counts.get('failed', 0)} of {outcome.counts.total} trials failed. With its cause fixed, "
        f'`raysweep retry {name}{storage}` (in Python retry="failed") runs the failed trials again, '
        f"`raysweep restart {name}{storage}` (restart=True) puts it aside and begins anew"
    )


def _old_code(outcome: SweepOutcome, code: str) -> str:
    if outcome.status == "failed" or not is_other_code(outcome.code_digest, code):
        return ""
    name = shlex.quote(outcome.sweep_id)
    storage = _storage(outcome.uri.rpartition("/")[0])
    failed = outcome.counts.get("failed", 0)
    retry = f"`raysweep retry {name}{storage}` runs its {failed} failed trials again, " if failed else ""
    return (
        f"nothing ran: the trainable's code was changed since, and this is what it gave before; {retry}"
        f"another key, or `raysweep restart {name}{storage}` (in Python restart=True), all of them"
    )


def _storage(url: str) -> str:
    from raysweep.storage.objects.opening import open_store

    return "" if url == open_store("~/raysweep").url else f" --storage {shlex.quote(url)}"


def _command(verb: str, folder: SweepFolder) -> str:
    return f"raysweep {verb} {shlex.quote(folder.sweep_id)}{_storage(folder.store.url)}"
