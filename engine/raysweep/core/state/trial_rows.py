"""Trials in a snapshot: most that have ended as a row of values, the others with all their fields.

A row is a third of the text and is read in a fraction of the time. What is read back shares the values that
all such trials have, as trials that ran here do.
"""

from __future__ import annotations

from functools import cache
from sys import intern
from typing import Final, cast

from msgspec import Raw, Struct
from msgspec.json import Decoder
from pydantic import TypeAdapter

from raysweep.core.state.trial import Trial
from raysweep.core.state.trial_parts import (
    NO_ANCESTRY,
    NO_METRICS,
    NOT_CONTINUED,
    Attempt,
    Metrics,
    Results,
)
from raysweep.core.vocabulary.lifecycle import Cause, TrialState
from raysweep.space.amounts import USUAL

_NOTHING: Final = (None, None, None, None)


class AttemptRow(Struct, array_like=True, frozen=True):
    """An attempt without a failure, of the trial's own config. The fields are those of `Attempt`."""

    attempt: int
    started_at: float | None
    ended_at: float
    end: str
    node: str


class TrialRow(Struct, array_like=True, frozen=True):
    """A trial that has ended, in the usual slot, without checkpoints. The fields are those of `Trial`."""

    number: int
    state: str
    config: dict[str, object]
    attempt: int
    node: str
    started_at: float | None
    attempt_started_at: float | None
    ended_at: float | None
    attempts: list[AttemptRow]
    reports: int
    attempt_reports: int
    iteration: int
    attempt_iteration: int
    next_checkpoint: int
    last: dict[str, object]
    best: dict[str, object] | None
    """None: the last report is the best."""
    last_score: float | None
    best_score: float | None


def entry_of(trial: Trial) -> TrialRow | Trial:
    """The stored form of a trial: its row, or itself where that would not say all of it."""
    results = trial.results
    is_plain = (
        not (trial.checkpoints or trial.is_unmade)
        and (trial.turn, trial.pace, trial.due_at, trial.slot) == _NOTHING
        and trial.stop_reason is None
        and trial.needs == USUAL
        and trial.ancestry == NO_ANCESTRY
        and trial.continued == NOT_CONTINUED
        and not (results.overrun or results.saved or results.recent)
        and results.improved is None
        and all(_is_plain(each) for each in trial.attempts)
    )
    if not is_plain:
        return trial
    return TrialRow(
        trial.number,
        trial.state,
        cast(dict[str, object], trial.config),
        trial.attempt,
        trial.node,
        trial.started_at,
        trial.attempt_started_at,
        trial.ended_at,
        [
            AttemptRow(each.attempt, each.started_at, each.ended_at, each.end, each.node)
            for each in trial.attempts
        ],
        results.reports,
        results.attempt_reports,
        results.iteration,
        results.attempt_iteration,
        results.next_checkpoint,
        cast(dict[str, object], results.last),
        None if results.best == results.last else cast(dict[str, object], results.best),
        results.last_score,
        results.best_score,
    )


def read_entry(text: Raw) -> Trial:
    """The trial that was stored as this JSON.

    Raises:
        ValueError: it does not fit.
    """
    view = memoryview(text)
    if bytes(view[:1]) != b"[":
        return _reader().validate_json(bytes(view))
    row = _decode_row(view)
    last = cast(Metrics, row.last) or NO_METRICS
    return Trial(
        number=row.number,
        state=cast(TrialState, intern(row.state)),
        config=cast(Metrics, row.config),
        attempt=row.attempt,
        node=intern(row.node),
        started_at=row.started_at,
        attempt_started_at=row.attempt_started_at,
        ended_at=row.ended_at,
        attempts=tuple(map(_attempt_of, row.attempts)),
        results=Results(
            reports=row.reports,
            attempt_reports=row.attempt_reports,
            iteration=row.iteration,
            attempt_iteration=row.attempt_iteration,
            next_checkpoint=row.next_checkpoint,
            last=last,
            best=last if row.best is None else cast(Metrics, row.best) or NO_METRICS,
            last_score=row.last_score,
            best_score=row.best_score,
        ),
    )


def _is_plain(each: Attempt) -> bool:
    return (each.kind, each.failure, each.config, each.donor) == _NOTHING


def _attempt_of(row: AttemptRow) -> Attempt:
    return Attempt(
        attempt=row.attempt,
        started_at=row.started_at,
        ended_at=row.ended_at,
        end=cast(Cause, intern(row.end)),
        node=intern(row.node),
    )


_decode_row: Final = Decoder(TrialRow).decode


@cache
def _reader() -> TypeAdapter[Trial]:
    return TypeAdapter(Trial)
