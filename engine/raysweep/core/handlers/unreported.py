"""Values that a spec names and trials should report: a note warns about names that were never reported.

What the scheduler looks at is checked at the end of each trial (`attempts`), as nothing goes without it. What
limits a trial, ranks its checkpoints or counts as its cost may come with few reports: that none came is said
once, when the first trial has completed, or else when the sweep ends. A limit of `stop.trial` that a trial
lacks in its first 100 reports is said then, as the trial may have no other end.
"""

from __future__ import annotations

from typing import Final

from raysweep.core.handlers import transitions
from raysweep.core.state.sweep import SweepState
from raysweep.core.state.trial import Trial
from raysweep.documents.validation import did_you_mean
from raysweep.schedulers import TRAINING_ITERATION

_ENOUGH: Final = 100
_STOP: Final = "stop.trial"


def see(state: SweepState, keys: tuple[str, ...]) -> None:
    """Trials report values of these names."""
    for name in state.rules.named:
        if name in keys and name not in state.reports.seen_names:
            state.reports.seen_names += (name,)


def note_unlimited(state: SweepState, trial: Trial, before: int) -> None:
    """Say which limits of `stop.trial` a trial has not reported in `_ENOUGH` reports: it may never end.

    `before`: how many reports it had before the present ones.
    """
    if before < _ENOUGH <= trial.results.reports and _STOP in state.rules.named.values():
        note_missing(state, f"trial {trial.number} in {_ENOUGH} reports", only=_STOP)


def note_missing(state: SweepState, by: str, *, only: str = "") -> None:
    """Say which names were never reported so far.

    `by`: by which trials, in words. `only`: of names in this field of the spec.
    """
    reports = state.reports
    if not reports.keys:
        return
    known = dict.fromkeys((*reports.keys, TRAINING_ITERATION))
    for name, field in state.rules.named.items():
        if name not in reports.seen_names and only in ("", field):
            reports.seen_names += (name,)
            transitions.note(
                state, f"{field}: {name!r} was never reported by {by}; {did_you_mean(name, known)}"
            )
