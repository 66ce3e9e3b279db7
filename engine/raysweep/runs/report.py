"""A sweep as a page or a table shows it: how it stands, its best trials, and the curve of the best so far.

What is here is pure: an outcome, or a state and a heartbeat, in; a report out. `reader.py` reads them from
the storage. The size of a report is bounded, whatever the number of trials. All times are UTC seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

import orjson
from pydantic import BaseModel, ConfigDict

from raysweep.core.result import trial_outcome
from raysweep.core.scores import score_of
from raysweep.core.state import SweepState
from raysweep.outcome import (
    AttemptOutcome,
    BestTrial,
    ErrorInfo,
    GateOutcome,
    Metrics,
    RunningTrial,
    SweepOutcome,
    SweepProgress,
    TrialOutcome,
    Usage,
)
from raysweep.runs.holder import is_held

TOP: Final = 20
"""How many of the best trials a report holds."""
FAILURES: Final = 5
"""How many of the newest failed trials a report holds."""
MAX_POINTS: Final = 400
"""The curve is thinned to so many points, and the dots around it too."""
MAX_RUNNING: Final = 50
MAX_NOTES: Final = 20
INTERRUPTED: Final = "interrupted"
"""The status of a sweep that has not ended, and that nobody runs."""

_ENDED: Final = ("completed", "stopped", "failed", "cancelled")
_Place = tuple[float, int, float, str]


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, use_attribute_docstrings=True, protected_namespaces=())


class CurvePoint(_Part):
    """From here on this was the best score of the trials that had ended."""

    at: float
    """When the trial ended."""
    ended: int
    """How many trials had ended by then, this one included."""
    score: float
    trial_id: str


class Dot(_Part):
    """One trial that ended with a score: a dot beside the curve."""

    at: float
    ended: int
    """Its place in the order in which trials ended, from 1."""
    score: float
    trial_id: str


class Standing(_Part):
    """One trial, without its attempts and its traceback."""

    trial_id: str
    number: int
    state: str
    score: float | None = None
    config: dict[str, Any] = {}
    metrics: Metrics = {}
    """Its last report."""
    reports: int = 0
    attempts: int = 0
    started_at: float | None = None
    ended_at: float | None = None
    checkpoint_uri: str | None = None
    error: str = ""
    """`ValueError: bad rate`, for one that failed; one line."""


class SweepReport(_Part):
    """How a sweep stands."""

    sweep_id: str
    name: str
    uri: str
    """Where it is stored."""
    key: str = ""
    status: str
    """`starting | running | stopping`, what it ended as (`SweepOutcome.status`), or `interrupted`."""
    is_running: bool
    """Somebody is at work on it."""
    has_ended: bool
    """It has an outcome."""
    why: str = ""
    """Why it ended, in a sentence."""
    metric: str
    mode: Literal["min", "max"]
    counts: dict[str, int] = {}
    """Trials by state."""
    num_trials: int | None = None
    """How many there will be; None where that is not known."""
    ended: int = 0
    """How many have ended, in whatever way."""
    best: Standing | None = None
    """The best trial so far; one that still runs may be it."""
    curve: tuple[CurvePoint, ...] = ()
    """The best score so far, a point for each time that it was beaten, in the order of time."""
    dots: tuple[Dot, ...] = ()
    """Trials in the order in which they ended; a sample of them where there are many."""
    top: tuple[Standing, ...] = ()
    """The best trials, best first; running ones are among them, failed ones are not."""
    running: tuple[RunningTrial, ...] = ()
    failures: tuple[Standing, ...] = ()
    """The newest failed trials, the newest first."""
    slots: int = 0
    """How many trials can run at once."""
    started_at: float | None = None
    ended_at: float | None = None
    seen_at: float | None = None
    """When its controller was last heard of."""
    deadline: float | None = None
    expected_end_at: float | None = None
    """When the last trial ends if it goes on at this pace, the deadline at most; None: cannot be said."""
    generation: int = 0
    """How many controllers have run it."""
    usage: Usage | None = None
    gate: GateOutcome | None = None
    error: ErrorInfo | None = None
    """What made it fail."""
    notes: tuple[str, ...] = ()
    read_at: float
    """When this was read."""

    def to_json(self) -> str:
        """As JSON text on one line; NaN and infinity among the metrics are strings, as in outcomes."""
        return orjson.dumps(self.model_dump(mode="json")).decode()


# --- what is known, put into a report


def report_of_outcome(outcome: SweepOutcome, *, uri: str = "", top: int = TOP, now: float) -> SweepReport:
    """The report of a sweep that has ended; reads nothing."""
    trials = outcome.trials
    ranked = _ranked([trial for trial in trials if trial.state != "failed"], outcome.mode)
    curve, dots = best_so_far(trials, outcome.mode)
    return SweepReport(
        sweep_id=outcome.sweep_id,
        name=outcome.name,
        uri=uri or outcome.uri,
        key=outcome.key,
        status=outcome.status,
        is_running=False,
        has_ended=True,
        why=outcome.why,
        metric=outcome.metric,
        mode=outcome.mode,
        counts=outcome.counts,
        num_trials=len(trials),
        ended=_count_ended(outcome.counts),
        best=_standing(outcome.best) if outcome.best is not None else None,
        curve=curve,
        dots=dots,
        top=tuple(_standing(trial) for trial in ranked[:top]),
        failures=_failures(trials),
        started_at=outcome.started_at,
        ended_at=outcome.ended_at,
        seen_at=outcome.ended_at,
        generation=outcome.generation,
        usage=outcome.usage,
        gate=outcome.gate,
        error=outcome.error,
        notes=outcome.notes[-MAX_NOTES:],
        read_at=now,
    )


def report_of_running(
    state: SweepState | None,
    progress: SweepProgress | None,
    *,
    uri: str,
    key: str = "",
    top: int = TOP,
    now: float,
    is_running: bool | None = None,
    problem: str = "",
) -> SweepReport:
    """The report of a sweep without an outcome, of its state, its heartbeat, or both; reads nothing.

    `is_running`: whether its controller lives, where that is known better than by this heartbeat's time.
    """
    if is_running is None:
        is_running = is_held(progress, now)
    if state is None:
        assert progress is not None, "a state, a heartbeat or both"
        return _of_heartbeat(progress, uri=uri, key=key, now=now, is_running=is_running, problem=problem)
    trials = list(state.trials.values())
    counts = {name: number for name, number in state.counts.items() if number}
    ended = _count_ended(counts)
    # Only those that are shown are made into outcomes: there may be ten thousand.
    scored = [trial for trial in trials if trial.state != "failed" and score_of(state, trial) is not None]
    sign = -1.0 if state.rules.is_max else 1.0
    scored.sort(key=lambda trial: (sign * (score_of(state, trial) or 0.0), trial.number))
    failed = sorted(
        (trial for trial in trials if trial.state == "failed"), key=lambda trial: -(trial.ended_at or 0.0)
    )
    best = tuple(_standing(trial_outcome(state, trial)) for trial in scored[: max(top, 1)])
    curve, dots = _curve(
        (
            (trial.ended_at, score_of(state, trial), f"{trial.number:05d}")
            for trial in trials
            if trial.ended_at is not None and trial.state in _ENDED and trial.state != "failed"
        ),
        ended_order=sorted(
            trial.ended_at for trial in trials if trial.ended_at is not None and trial.state in _ENDED
        ),
        is_max=state.rules.is_max,
    )
    num_trials = progress.num_trials if progress is not None else None
    return SweepReport(
        sweep_id=progress.sweep_id if progress is not None else uri.rpartition("/")[2],
        name=state.spec.name,
        uri=uri,
        key=key,
        status=_status(state, progress, is_running),
        is_running=is_running,
        has_ended=False,
        why=state.why if state.phase == "ended" else "",
        metric=state.spec.metric,
        mode=state.spec.mode,
        counts=counts,
        num_trials=num_trials,
        ended=ended,
        best=best[0] if best else None,
        curve=curve,
        dots=dots,
        top=best[:top],
        running=progress.running[:MAX_RUNNING] if progress is not None and is_running else (),
        failures=tuple(_standing(trial_outcome(state, trial)) for trial in failed[:FAILURES]),
        slots=progress.slots if progress is not None and is_running else 0,
        started_at=state.started_at,
        seen_at=progress.at if progress is not None else None,
        deadline=state.deadline_at,
        expected_end_at=_expected_end(state, ended, num_trials, now) if is_running else None,
        generation=state.generation,
        notes=(*state.notes[-MAX_NOTES:], *([problem] if problem else [])),
        read_at=now,
    )


def best_so_far(trials: Iterable[TrialOutcome], mode: str) -> tuple[tuple[CurvePoint, ...], tuple[Dot, ...]]:
    """The curve of the best score over the trials that ended, and the trials as dots.

    Failed trials are on neither, but count as ended.

    Args:
        trials: In any order; those without an end are left out.
        mode: "min" or "max".
    """
    ended = [trial for trial in trials if trial.ended_at is not None and trial.state in _ENDED]
    return _curve(
        ((trial.ended_at, trial.score, trial.trial_id) for trial in ended if trial.state != "failed"),
        ended_order=sorted(trial.ended_at for trial in ended if trial.ended_at is not None),
        is_max=mode == "max",
    )


def _curve(
    rows: Iterable[tuple[float | None, float | None, str]], *, ended_order: Sequence[float], is_max: bool
) -> tuple[tuple[CurvePoint, ...], tuple[Dot, ...]]:
    """Of (when it ended, score, trial id); `ended_order` are the ends of all trials, sorted."""
    scored = sorted(
        (at, name, score)
        for at, score, name in rows
        if at is not None and score is not None and math.isfinite(score)
    )
    # Plain tuples until it is known which are shown: there may be ten thousand.
    points: list[_Place] = []
    places: list[_Place] = []
    place = 0
    for at, name, score in scored:
        # Trials may end at the same instant: each takes its own place.
        place = max(place + 1, bisect_left(ended_order, at) + 1)
        places.append((at, place, score, name))
        if not points or (score > points[-1][2] if is_max else score < points[-1][2]):
            points.append(places[-1])
    curve = tuple(CurvePoint(at=a, ended=e, score=s, trial_id=t) for a, e, s, t in _thinned(points))
    return curve, tuple(Dot(at=a, ended=e, score=s, trial_id=t) for a, e, s, t in _thinned(places))


def _thinned(points: Sequence[_Place]) -> Sequence[_Place]:
    """Evenly at most MAX_POINTS of them, the first and the last included."""
    count = len(points)
    if count <= MAX_POINTS:
        return points
    return [points[round(index * (count - 1) / (MAX_POINTS - 1))] for index in range(MAX_POINTS)]


def _of_heartbeat(
    progress: SweepProgress, *, uri: str, key: str, now: float, is_running: bool, problem: str
) -> SweepReport:
    best = progress.best
    return SweepReport(
        sweep_id=progress.sweep_id,
        name=progress.name,
        uri=uri,
        key=key,
        status=progress.status if is_running else INTERRUPTED,
        is_running=is_running,
        has_ended=False,
        metric=progress.metric,
        mode=progress.mode,
        counts=progress.counts,
        num_trials=progress.num_trials,
        ended=_count_ended(progress.counts),
        best=_best_of_heartbeat(best, progress) if best is not None else None,
        running=progress.running[:MAX_RUNNING] if is_running else (),
        slots=progress.slots if is_running else 0,
        started_at=progress.started_at,
        seen_at=progress.at,
        deadline=progress.deadline,
        generation=progress.generation,
        notes=(*progress.notes[-MAX_NOTES:], *([problem] if problem else [])),
        read_at=now,
    )


def _best_of_heartbeat(best: BestTrial, progress: SweepProgress) -> Standing:
    is_running = any(trial.trial_id == best.trial_id for trial in progress.running)
    return Standing(
        trial_id=best.trial_id,
        number=int(best.trial_id) if best.trial_id.isdigit() else 0,
        state="running" if is_running else "",
        score=best.score,
        config=best.config,
        metrics=best.metrics,
    )


def _status(state: SweepState, progress: SweepProgress | None, is_running: bool) -> str:
    if is_running and progress is not None:
        return progress.status
    return state.status if state.phase == "ended" and state.status else INTERRUPTED


def _expected_end(state: SweepState, ended: int, num_trials: int | None, now: float) -> float | None:
    """By the pace of this sweep so far; its pauses do not count."""
    if num_trials is None or ended < 3 or ended >= num_trials:
        return None
    pace_s = state.active_s(now) / ended
    end = now + pace_s * (num_trials - ended)
    return end if state.deadline_at is None else min(end, state.deadline_at)


def _standing(trial: TrialOutcome) -> Standing:
    return Standing(
        trial_id=trial.trial_id,
        number=trial.number,
        state=trial.state,
        score=trial.score if trial.score is not None and math.isfinite(trial.score) else None,
        config=trial.config,
        metrics=trial.metrics,
        reports=trial.reports,
        attempts=len(trial.attempts) + (trial.state == "running"),
        started_at=trial.started_at,
        ended_at=trial.ended_at,
        checkpoint_uri=trial.checkpoint_uri,
        error=_one_line(trial.error or _last_error(trial.attempts)) if trial.state == "failed" else "",
    )


def _last_error(attempts: Sequence[AttemptOutcome]) -> ErrorInfo | None:
    return attempts[-1].error if attempts else None


def _one_line(error: ErrorInfo | None) -> str:
    if error is None:
        return ""
    first = (error.message.strip().splitlines() or [""])[0][:500]
    return f"{error.type}: {first}" if error.type else first


def _ranked(trials: Sequence[TrialOutcome], mode: str) -> list[TrialOutcome]:
    scored = [(t.score, t) for t in trials if t.score is not None and math.isfinite(t.score)]
    sign = -1.0 if mode == "max" else 1.0
    return [trial for _, trial in sorted(scored, key=lambda pair: (sign * pair[0], pair[1].number))]


def _failures(trials: Sequence[TrialOutcome]) -> tuple[Standing, ...]:
    failed = [trial for trial in trials if trial.state == "failed"]
    failed.sort(key=lambda trial: -(trial.ended_at or 0.0))
    return tuple(_standing(trial) for trial in failed[:FAILURES])


def _count_ended(counts: dict[str, int]) -> int:
    return sum(counts.get(state, 0) for state in _ENDED)
