"""Facts about trials that have run: how long a report takes, how many there are, how attempts fail."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from statistics import median

from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Slot, Trial
from raysweep.core.vocabulary.failures import Failure
from raysweep.outcome import SweepOutcome

MAX_TRIALS = 2_000
"""The newest trials that are looked at, beside all that have not ended."""
CHECKPOINTS_AN_ATTEMPT = 1_000_000_000
"""Attempts number their checkpoints in blocks of this size."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Ran:
    """One trial that ran, or runs.

    `step_s`: seconds from report to report; of a trial that ended without any, all that it took.
    `has_returned`: its own code ended it after `reports` reports. Else something else did, or it still runs.
    """

    reports: int
    step_s: float
    node: str = ""
    has_returned: bool = False
    has_ended: bool = True


@dataclass(frozen=True, slots=True, kw_only=True)
class Samples:
    """The facts known of the trials of a sweep. `attempts` counts those that `failures` are of.

    `failures`: of attempts that failed, the failure and the seconds from the attempt's start.
    `start_s`: from the controller's start to the first trial. `gap_s`: what passes between two trials of a
    slot. `save_every`: a checkpoint comes with every so-manyth report; 0: none.
    """

    ran: tuple[Ran, ...] = ()
    attempts: int = 0
    failures: tuple[tuple[Failure, float], ...] = ()
    start_s: float | None = None
    gap_s: float = 0.0
    save_every: int = 0

    @property
    def known(self) -> int:
        """The number of trials that have ended."""
        return sum(each.has_ended for each in self.ran)


@dataclass(frozen=True, slots=True, kw_only=True)
class Past:
    """An earlier night of the same name."""

    samples: Samples
    took_s: float = 0.0


def samples_of(state: SweepState) -> Samples:
    """The samples from a sweep's own trials so far."""
    trials = _newest(state)
    ran, failures, attempts, busy_s = [], [], 0, 0.0
    for trial in trials:
        for attempt in trial.attempts:
            if attempt.started_at is None:
                continue
            attempts += 1
            took_s = max(0.0, attempt.ended_at - attempt.started_at)
            busy_s += took_s
            if attempt.failure is not None and attempt.kind is not None:
                failures.append((attempt.failure, took_s))
        slot = state.slots.get(trial.slot) if trial.slot is not None else None
        if _runs(trial, slot) and slot is not None and trial.attempt_started_at is not None:
            attempts += 1
            busy_s += max(0.0, state.clock.last_at - trial.attempt_started_at)
        found = _ran(trial, slot)
        if found is not None:
            ran.append(found)
    return Samples(
        ran=tuple(ran),
        attempts=attempts,
        failures=tuple(failures),
        start_s=_start_s(state, trials),
        gap_s=_gap_s(state, attempts, busy_s, len(trials), ran),
        save_every=_save_every(trials),
    )


def past_of(outcome: SweepOutcome) -> Past:
    """The samples from an earlier night; its curves are not known."""
    ran, failures, attempts = [], [], 0
    for trial in outcome.trials[-MAX_TRIALS:]:
        times = [each.took_s or 0.0 for each in trial.attempts]
        attempts += len(times)
        for attempt in trial.attempts:
            if attempt.end == "failed" and attempt.error is not None:
                failed = Failure(origin="exception", type=attempt.error.type, message=attempt.error.message)
                failures.append((failed, attempt.took_s or 0.0))
        if not times or trial.state not in ("completed", "stopped"):
            continue
        reports = trial.reports
        is_done = trial.state == "completed"
        node = trial.attempts[-1].node
        ran.append(Ran(reports=reports, step_s=sum(times) / max(1, reports), node=node, has_returned=is_done))
    begun = [trial.started_at for trial in outcome.trials if trial.started_at is not None]
    started = outcome.started_at
    samples = Samples(
        ran=tuple(ran),
        attempts=attempts,
        failures=tuple(failures),
        start_s=max(0.0, min(begun) - started) if begun and started is not None else None,
        save_every=1 if any(trial.checkpoint_uri for trial in outcome.trials) else 0,
    )
    return Past(samples=samples, took_s=(outcome.ended_at or 0.0) - (started or 0.0))


def with_past(own: Samples, past: Sequence[Past], enough: int) -> Samples:
    """A sweep's own samples; while there are not `enough`, those of earlier nights too, the newest first."""
    missing = max(0, enough - own.known)
    nights = [each.samples for each in past if each.samples.ran]
    if not missing or not nights:
        return own
    share = -(-missing // len(nights))
    added = [ran for each in nights for ran in _spread(each.ran, share)]
    return Samples(
        ran=(*own.ran, *added),
        attempts=own.attempts + sum(each.attempts for each in nights),
        failures=own.failures + tuple(failure for each in nights for failure in each.failures),
        start_s=own.start_s if own.start_s is not None else nights[0].start_s,
        gap_s=own.gap_s,
        save_every=own.save_every or nights[0].save_every,
    )


def _spread(ran: Sequence[Ran], count: int) -> Iterable[Ran]:
    return ran[:: max(1, len(ran) // max(1, count))]


def _newest(state: SweepState) -> list[Trial]:
    newest = list(islice(reversed(state.trials.values()), MAX_TRIALS))
    numbers = {trial.number for trial in newest}
    begun = [state.trials[number] for number in state.line.active if number not in numbers]
    return [trial for trial in (*begun, *reversed(newest)) if trial.attempt]


def _runs(trial: Trial, slot: Slot | None) -> bool:
    return (
        slot is not None and bool(slot.queue) and slot.queue[0] == trial.number and trial.state == "running"
    )


def _ran(trial: Trial, slot: Slot | None) -> Ran | None:
    results = trial.results
    if _runs(trial, slot) and slot is not None:
        if not results.attempt_reports or trial.attempt_started_at is None:
            return None
        step_s = (slot.heard_at - trial.attempt_started_at) / results.attempt_reports
        return Ran(reports=results.iteration, step_s=step_s, node=trial.node, has_ended=False)
    if not trial.attempts or trial.attempts[-1].started_at is None:
        return None
    last = trial.attempts[-1]
    if last.kind is not None and not results.attempt_reports:
        return None
    step_s = (last.ended_at - (last.started_at or 0.0)) / max(1, results.attempt_reports)
    return Ran(
        reports=results.iteration,
        step_s=step_s,
        node=last.node,
        has_returned=last.end == "returned",
        has_ended=trial.ended_at is not None,
    )


def _start_s(state: SweepState, trials: Sequence[Trial]) -> float | None:
    begun = [trial.started_at for trial in trials if trial.started_at is not None]
    if not begun or state.controller.generation > 1 or state.clock.started_at is None:
        return None
    return max(0.0, min(begun) - state.clock.started_at)


def _gap_s(state: SweepState, attempts: int, busy_s: float, seen: int, ran: Sequence[Ran]) -> float:
    """The idle seconds of a slot between two trials: it was open, and no attempt ran in it."""
    if seen < len(state.trials) - len(state.line.pending) or not attempts or not ran:
        return 0.0
    meter = state.meter
    open_s = meter.slot_s + meter.open_slots * max(0.0, state.clock.last_at - meter.slot_s_at)
    usual_s = median(each.step_s * max(1, each.reports) for each in ran)
    return min(max(0.0, open_s - busy_s) / attempts, usual_s)


def _save_every(trials: Sequence[Trial]) -> int:
    rates = []
    for trial in trials:
        reports = trial.results.attempt_reports
        saved = trial.results.next_checkpoint % CHECKPOINTS_AN_ATTEMPT
        if reports and saved:
            rates.append(reports / saved)
    return max(1, round(min(rates))) if rates else 0
