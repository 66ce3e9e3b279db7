"""Values that a spec names and trials should report: a note warns about names that were never reported.

What the scheduler looks at is checked at the end of each trial (`attempts`), as nothing goes without it. What
limits a trial, ranks its checkpoints or counts as its cost may come with few reports: that none came is said
once, when the first trial has completed, or else when the sweep ends.
"""

from __future__ import annotations

from raysweep.core.handlers import transitions
from raysweep.core.state.sweep import SweepState
from raysweep.documents.validation import did_you_mean
from raysweep.schedulers import TRAINING_ITERATION


def see(state: SweepState, keys: tuple[str, ...]) -> None:
    """Trials report values of these names."""
    for name in state.rules.named:
        if name in keys and name not in state.reports.seen_names:
            state.reports.seen_names += (name,)


def note_missing(state: SweepState, by: str) -> None:
    """Say which names were never reported so far; `by`: by which trials, in words."""
    reports = state.reports
    if not reports.keys:
        return
    known = dict.fromkeys((*reports.keys, TRAINING_ITERATION))
    for name, field in state.rules.named.items():
        if name not in reports.seen_names:
            reports.seen_names += (name,)
            transitions.note(
                state, f"{field}: {name!r} was never reported by {by}; {did_you_mean(name, known)}"
            )
