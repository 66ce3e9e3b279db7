"""The claim of a sweep. Finished: its outcome. Held by a live controller: follow that. Else: claim it.

The claim is the journal's next segment, created only if it does not exist. Of two that try at once one
succeeds; the other reads who it was and follows. A holder that lost the sweep fails its next append and ends.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from raysweep.core import SweepState, encode, make_outcome
from raysweep.core.handlers.reopen import find_failed
from raysweep.core.views.scores import told
from raysweep.core.vocabulary.events import ControllerStarted, SpecChanged
from raysweep.documents.wall_clock import check_deadline, resolve_deadline
from raysweep.errors import SegmentExistsError, SpecChangedError, SweepDamagedError
from raysweep.outcome import Cancellation, Holder, SweepOutcome, SweepProgress
from raysweep.outcome.record import without_collector
from raysweep.runs.across_runs.pins import find_pins, pins_of
from raysweep.runs.across_runs.warm_start import recall, warm_from_json, warm_to_json
from raysweep.runs.folder import SweepFolder, SweepRecord
from raysweep.runs.ownership.holder import HolderWatch, current_holder, find_living
from raysweep.runs.ownership.reopening import NOT_CONTINUED, check_same, check_whole, reopens
from raysweep.runs.ownership.replay import rebuild
from raysweep.search import Searcher, WarmStart, make_searcher, result_of, tell_end
from raysweep.specs import SweepSpec
from raysweep.specs.changes import Changes, changes
from raysweep.specs.continuing import Continue
from raysweep.storage.journal.journal import Claim, Journal
from raysweep.storage.journal.segment import RESTORE_FIX
from raysweep.storage.objects.retries import retrying

OnProgress = Callable[[SweepProgress], None]
POLL_S: Final = 0.5
# A fresh controller writes its heartbeat right after its claim; one that does not is gone.
FIRST_BEAT_S: Final = 10.0
FIRST_BEAT_POLL_S: Final = 0.2
FOLLOW_GIVE_UP_S: Final = 600.0
SILENT_S: Final = 60.0
"""After how long a holder that lives, by the process table, and writes no heartbeat is worth a word."""

log = logging.getLogger("raysweep")


@dataclass(frozen=True, slots=True, kw_only=True)
class SweepRequest:
    """The request for a sweep; the `RunRequest` with its seed and schedule settled."""

    spec: SweepSpec
    key: str
    seed: int
    scheduled_at: float | None = None
    """The scheduled time of the run, in UTC seconds; None: when it starts."""
    continuing: Continue = NOT_CONTINUED
    """The continuation that is wanted if it has ended."""
    job_number: int = 0
    """The number of the job that runs it; 0: no job, or none of known number."""
    code: str = ""
    """The digest of the trainable's code, as this process has it; empty: not known."""
    train: Mapping[str, Any] | None = None
    """Of a training: its own spec, decoded."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ownership:
    """A claimed sweep: its state as replayed before the claim (`started`), its searcher rebuilt.

    `old_cancellation` was meant for a controller before this one: who runs the sweep anew wants it to
    continue. One that names this controller's job counts, however old it is.
    """

    asked: SweepRequest
    folder: SweepFolder
    state: SweepState
    searcher: Searcher
    journal: Journal
    claim: Claim
    started: ControllerStarted
    changed: SpecChanged | None
    holder: Holder
    old_cancellation: Cancellation | None = None
    discarded: tuple[str, ...]
    """Checkpoints that the controller before may not have come to delete."""

    def find_pins(self) -> Collection[str]:
        """Those of its checkpoints that champions and trainings need: only a sweep that had ended has such.

        Raises: StorageError.
        """
        has_ended = self.started.is_reopening or self.state.end.reopened
        return pins_of(find_pins(self.folder.store), self.folder.sweep_id) if has_ended else ()


def find_outcome(folder: SweepFolder, asked: SweepRequest) -> SweepOutcome | None:
    """The outcome of a sweep that has ended, if it was asked for in the same words.

    None also for one that continues (`reopening.reopens`).

    Raises:
        SpecChangedError: It ended under another spec.
        SpecError: It is to continue until a deadline that has passed too.
    """
    outcome, record = folder.read_outcome(), folder.read_spec()
    if record is not None:
        check_whole(folder, record)
    if outcome is None or record is None:
        return outcome
    if not check_same(folder, asked.spec, outcome, continuing=asked.continuing):
        return outcome
    check_deadline(asked.spec.stop.deadline, record.scheduled_at or outcome.started_at, time.time())
    return None


def find_holder(folder: SweepFolder) -> tuple[SweepProgress | None, int]:
    """The heartbeat of the controller that has the sweep and lives (None: none does), and the newest
    generation, which this is the verdict about.
    """
    journal = folder.journal()
    for _ in journal.read():
        pass
    generation = journal.generation
    if not generation:
        return None, 0
    if _has_ended_in(folder, generation):
        return None, generation
    deadline = time.monotonic() + FIRST_BEAT_S
    while (progress := folder.read_progress()) is None or progress.generation < generation:
        if time.monotonic() > deadline:
            return None, generation
        time.sleep(FIRST_BEAT_POLL_S)
    return find_living(folder.read_progress), generation


def _has_ended_in(folder: SweepFolder, generation: int) -> bool:
    """True if that controller ended the sweep: then it has no heartbeat."""
    try:
        ended = folder.read_standing()
    except SweepDamagedError:
        return False
    return ended is not None and ended.generation >= generation


def follow(folder: SweepFolder, on_progress: OnProgress | None) -> None:
    """Watch another controller's sweep until it has an outcome, or that controller goes away before."""
    watch, is_said = HolderWatch(), False
    while True:
        for attempt in retrying(FOLLOW_GIVE_UP_S):
            with attempt:
                progress = None if folder.read_outcome() is not None else folder.read_progress()
        if progress is None or watch.see(progress) in ("gone", "stale"):
            return
        if watch.silent_s >= SILENT_S and not is_said:
            is_said = True
            text = (
                "%s lives, and has not said for %.0f s that it is at work: end it, or run with takeover=True"
            )
            log.warning(text, progress.holder, watch.silent_s)
        if on_progress is not None:
            on_progress(progress)
        time.sleep(POLL_S)


def ask_to_cancel(folder: SweepFolder, *, by: str, reason: str) -> bool:
    """Ask the process that runs the sweep to cancel it; False, without a request, where none does."""
    if folder.read_outcome() is not None or find_living(folder.read_progress) is None:
        return False
    folder.write_cancellation(Cancellation(at=time.time(), by=by, reason=reason))
    return True


def hold(
    folder: SweepFolder,
    asked: SweepRequest,
    after: int | None = None,
    *,
    at: float | None = None,
    holder: Holder | None = None,
) -> Ownership | None:
    """Claim the sweep; None: another process did so at this moment, or since generation `after`.

    `at` (default: now, in UTC seconds) and `holder` (default: this process) are what the claim says.

    Raises:
        SpecChangedError: The sweep exists, with another spec that would mix two searches.
        JournalDamagedError: What is there cannot be read in full. Nothing is started over in its stead.
    """
    claimed_at = time.time() if at is None else at
    record = _write_or_read_record(folder, asked, claimed_at)
    check_whole(folder, record)
    # Before the replay as well: of schedulers, only the one that is asked for is there.
    began_as = SweepSpec.from_any(dict(record.spec))
    asked = replace(asked, spec=asked.spec.settled_by(began_as))
    diff = changes(began_as, asked.spec, record.scheduled_at)
    if diff.unsafe:
        raise SpecChangedError(folder.sweep_id, diff.unsafe)
    rebuilt = rebuild(folder, record, began_as)
    journal, state = rebuilt.journal, rebuilt.state
    if after is not None and journal.generation != after:
        return None
    diff = changes(state.spec, asked.spec, record.scheduled_at)
    if diff.unsafe:
        raise SpecChangedError(folder.sweep_id, diff.unsafe)
    held_by = current_holder() if holder is None else holder
    scheduled_at = record.scheduled_at or state.clock.started_at or claimed_at
    is_reopening = _is_to_reopen(folder, asked, state, diff)
    retried = _retried(state, asked.continuing) if is_reopening or state.phase == "running" else ()
    extend = asked.continuing.extend
    started = ControllerStarted(
        at=claimed_at,
        generation=0,
        host=held_by.host,
        pid=held_by.pid,
        deadline=state.clock.deadline_text or _deadline_text(state.spec, scheduled_at),
        seen_at=_last_seen_at(folder, journal.generation),
        is_reopening=is_reopening,
        code=asked.code,
        retried=retried,
        extend_to=extend.max_t if extend is not None else None,
        extend_top=(extend.top or 0) if extend is not None else 0,
        extend_trials=extend.trials if extend is not None else (),
    )

    def make_record(generation: int) -> bytes:
        return encode(replace(started, generation=generation))

    old_cancellation = folder.read_cancellation()
    if old_cancellation is not None and old_cancellation.names(asked.job_number):
        old_cancellation = None
    try:
        claim = journal.claim(make_record)
    except SegmentExistsError:
        return None
    changed = _changed(state, asked, started, scheduled_at, diff) if diff.safe else None
    if started.is_reopening or state.phase != "ended":
        # Of an end that was not the last: also where the controller that reopened the sweep died right then.
        folder.archive_outcome()
    return Ownership(
        asked=asked,
        folder=folder,
        state=state,
        searcher=rebuild_searcher(asked.spec, state, warm_from_json(record.warm), retried),
        journal=journal,
        claim=claim,
        started=replace(started, generation=claim.generation),
        changed=changed,
        holder=held_by,
        old_cancellation=old_cancellation,
        discarded=rebuilt.discarded,
    )


@without_collector()
def rebuild_searcher(
    spec: SweepSpec, state: SweepState, warm: WarmStart | None = None, retried: Sequence[int] = ()
) -> Searcher:
    """A searcher that knows every config it ever suggested and every result it was ever told.

    But of those that are `retried`: it receives them when they end again. Unless the order counts in which
    it was told: then they stay failed to it.
    """
    searcher = make_searcher(spec, state.seed, warm)
    rungs: dict[int, list[tuple[float, float]]] = {}
    for number, *reached in state.search.rungs:
        rungs.setdefault(number, []).append((reached[0], reached[1]))
    for number, is_told in in_order(state):
        trial = state.trials[number]
        if not is_told and not trial.config:  # it could not be made at all
            searcher.replay_failed(number)
        elif not is_told:
            searcher.restore(
                number, trial.config if trial.ancestry.suggested is None else trial.ancestry.suggested
            )
        if is_told:
            for time_reached, value in rungs.get(number, ()):
                searcher.tell_rung(number, time_reached, value)
        known = told(state, trial) if is_told else None
        if known is not None and (number not in retried or state.rules.search.is_logged):
            result = result_of(known.value, known.violations, known.others, known.cost)
            tell_end(searcher, number, result, state=known.end)
    return searcher


def in_order(state: SweepState) -> Iterator[tuple[int, bool]]:
    """Each trial, when it was asked for and (True) when its end was told; by number where that was not noted.

    Of what was asked or told several times, the last counts: an ask without an answer, a trial run again.
    """
    log = list(dict.fromkeys(reversed(state.search.log)))[::-1]
    if not log:
        yield from ((number, is_told) for number in state.trials for is_told in (False, True))
        return
    firsts = [~entry for entry in log if entry < 0]
    after = dict(zip(firsts, [*firsts[1:], len(state.trials)], strict=True))
    for entry in log:
        if entry >= 0:
            yield entry, True
        else:
            yield from ((number, False) for number in range(~entry, after[~entry]))
    noted = set(log)
    yield from ((number, True) for number in state.trials if number not in noted)


def _is_to_reopen(folder: SweepFolder, asked: SweepRequest, state: SweepState, diff: Changes) -> bool:
    if state.phase != "ended":
        return False
    ended = make_outcome(state, sweep_id=folder.sweep_id, key=asked.key, uri=folder.uri, version="")
    return reopens(ended, diff, asked.continuing)


def _retried(state: SweepState, wanted: Continue) -> tuple[int, ...]:
    if wanted.retry is None:
        return ()
    failed = find_failed(state)
    return failed if wanted.retry == "failed" else tuple(n for n in failed if n in wanted.retry)


def _changed(
    state: SweepState, asked: SweepRequest, started: ControllerStarted, scheduled_at: float, diff: Changes
) -> SpecChanged:
    is_same = asked.spec.stop.deadline == state.spec.stop.deadline
    deadline = started.deadline if is_same else _deadline_text(asked.spec, scheduled_at)
    return SpecChanged(at=started.at, spec=asked.spec.to_stored(), changes=diff.safe, deadline=deadline)


def _deadline_text(spec: SweepSpec, scheduled_at: float) -> str:
    deadline = resolve_deadline(spec.stop.deadline, scheduled_at)
    return deadline.isoformat() if deadline is not None else ""


def _last_seen_at(folder: SweepFolder, generation: int) -> float | None:
    """The last time of the newest controller at work, by its heartbeat; its journal may be older."""
    progress = folder.read_progress() if generation else None
    return progress.at if progress is not None and progress.generation == generation else None


def _write_or_read_record(folder: SweepFolder, asked: SweepRequest, at: float) -> SweepRecord:
    found = folder.read_spec()
    if found is not None:
        return found
    warm = recall(folder.store, asked.spec, folder.sweep_id)
    record = SweepRecord(
        digest=asked.spec.digest(),
        key=asked.key,
        seed=asked.seed,
        spec=asked.spec.to_stored(),
        scheduled_at=asked.scheduled_at if asked.scheduled_at is not None else at,
        warm=warm_to_json(warm) if warm is not None else None,
        train=asked.train,
    )
    if folder.write_spec_if_absent(record):
        return record
    return folder.read_spec() or record


def check_not_lost(folder: SweepFolder, generation: int) -> None:
    """Check that a sweep without a sweep.json may be begun: not where controllers have run it already.

    Raises:
        SweepDamagedError: sweep.json is gone, and with it what the journal can be replayed under.
    """
    if generation and folder.journal().contents().generation:
        raise SweepDamagedError(f"{folder.uri}/sweep.json", "is missing, but there is a journal", RESTORE_FIX)
