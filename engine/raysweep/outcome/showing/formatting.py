"""Formats numbers, configs and the progress of a sweep for people."""

from __future__ import annotations

import math
import shlex
import sys
from collections.abc import Mapping, Sequence
from typing import Any, Final

from raysweep.documents.json_numbers import Counts
from raysweep.documents.json_values import leaves
from raysweep.numeric.shown import DIGITS, rounded, show_number
from raysweep.outcome import BestTrial, SweepOutcome, SweepProgress
from raysweep.outcome.estimate import Estimate
from raysweep.outcome.showing.best import NO_METRIC

_NAMES = {"waiting": "waiting for a retry"}
_MOST_DIGITS: Final = 12


def show_column(values: Sequence[object]) -> list[str]:
    """The values of one column: each float has the digits of `show_number`, and zeros up to six of them.

    Where the column takes more than 12 digits, all have an exponent instead. None is an empty text; whole
    numbers, texts, NaN and infinity stand as they are.
    """
    floats = [value for value in values if isinstance(value, float) and math.isfinite(value)]
    shown = [show_number(value) for value in floats]
    decimals = max((len(text.partition(".")[2]) for text in shown), default=0)
    whole = max((len(f"{abs(value):.0f}") for value in floats), default=0)
    has_exponent = any("e" in text for text in shown) or decimals + whole > _MOST_DIGITS
    most = None if has_exponent else decimals
    return ["" if value is None else _show_cell(value, most) for value in values]


def _show_cell(value: object, decimals: int | None) -> str:
    if not isinstance(value, float) or not math.isfinite(value):
        return str(value)
    if decimals is None:
        return f"{value:.{DIGITS - 1}e}"
    own = max(0, min(decimals, DIGITS - _digits_before_point(value)))
    return f"{rounded(value):.{own}f}"


def _digits_before_point(value: float) -> int:
    """The number of digits before its point; of 0.00123, less than none."""
    return 1 + math.floor(math.log10(abs(rounded(value)))) if value else 0


def show_duration(seconds: float) -> str:
    """`0:34`, `12:05` or `3:04:05`."""
    whole = max(0, round(seconds))
    hours, minutes = whole // 3600, whole // 60 % 60
    return f"{hours}:{minutes:02d}:{whole % 60:02d}" if hours else f"{minutes}:{whole % 60:02d}"


def show_age(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h` or `4 d`."""
    for unit, size in (("d", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * size:
            return f"{seconds // size:.0f} {unit}"
    return f"{max(0.0, seconds):.0f} s"


def show_bytes(size_bytes: int) -> str:
    """`512 B`, `1.5 MiB`."""
    size, unit = float(size_bytes), "B"
    for bigger in ("KiB", "MiB", "GiB", "TiB"):
        if size < 1024:
            break
        size, unit = size / 1024, bigger
    return f"{size:.0f} {unit}" if unit == "B" else f"{size:.1f} {unit}"


def show_config(config: Mapping[str, Any]) -> str:
    """A config on one line: `lr=0.0123 net.depth=4`."""
    return " ".join(f"{path}={show_number(value)}" for path, value in leaves(config))


def show_counts(counts: Counts, total: int | None = None) -> str:
    """`12 of 30 trials ended: 7 completed, 4 stopped, 1 failed, 2 running`; leaves out what is none."""
    others = counts.shown
    completed = f"{others.pop('completed', 0)} completed"
    first = completed if total is None else f"{counts.ended} of {total} trials ended: {completed}"
    return ", ".join([first, *(f"{number} {_NAMES.get(state, state)}" for state, number in others.items())])


def show_score(metric: str, score: float | None, trial_id: str) -> str:
    """`auc 0.7213 (trial 00007)`."""
    return f"{metric} {'' if score is None else show_number(score)} (trial {trial_id})"


def show_best(progress: SweepProgress, *, has_config: bool = True) -> str:
    """`best auc 0.7213 (trial 00007): lr=0.01`, or that there is none yet, and which trial is ahead."""
    best, ahead = progress.best, progress.ahead
    if best is not None:
        return _show_trial("best", progress, best, has_config=has_config)
    if ahead is not None:
        head = _show_trial("ahead", progress, ahead, has_config=has_config)
        return f"no trial with {progress.metric} has ended; {head}"
    if not progress.metric:
        return NO_METRIC
    meeting = f" with {' and '.join(progress.constraints)}" if progress.constraints else ""
    return f"no {progress.metric}{meeting} yet"


def _show_trial(rank: str, progress: SweepProgress, trial: BestTrial, *, has_config: bool) -> str:
    head = f"{rank} {show_score(progress.metric, trial.score, trial.trial_id)}"
    return f"{head}: {show_config(trial.config)}" if has_config else head


def show_progress(progress: SweepProgress, *, has_config: bool = True) -> str:
    """`12 of 30 trials ended: 11 completed, 1 failed, 4 running; best auc 0.7213 (trial 00007): lr=0.01`."""
    parts = [show_counts(progress.counts, progress.num_trials), show_best(progress, has_config=has_config)]
    if progress.estimate is not None and progress.is_at_work:
        parts.append(show_expected(progress.estimate, progress.at))
    return "; ".join((*parts, *progress.slow[:1]))


def show_end(estimate: Estimate, now: float) -> str:
    """`in 1:02:00 (0:55:00 to 1:10:00)`."""
    low, high = (show_duration(at - now) for at in (estimate.end_at.low, estimate.end_at.high))
    return f"in {show_duration(estimate.end_at.expected - now)} ({low} to {high})"


def show_expected(estimate: Estimate, now: float) -> str:
    """`ends in 1:02:00 (0:55:00 to 1:10:00), cost 12.50`."""
    trials = f" with {estimate.trials.expected:.0f} trials" if estimate.completes < 1.0 else ""
    cost = f", cost {estimate.cost.expected:.2f}" if estimate.cost is not None else ""
    return f"ends {show_end(estimate, now)}{trials}{cost}"


def show_conclusion(outcome: SweepOutcome) -> list[str]:
    """The end of a sweep, line by line: status, counts and best; what failed first; the next command."""
    head = f"{outcome.status} {outcome.sweep_id}: {show_counts(outcome.counts, outcome.wanted_trials)}"
    best = outcome.found_best
    if best is not None:
        score = show_score(outcome.metric, best.score, best.trial_id)
        head += f"; best {score}: {show_config(best.config)}"
    elif outcome.infeasible:
        head += f"; {outcome.infeasible}"
    return [head, *show_failure(outcome)]


def show_failure(outcome: SweepOutcome) -> list[str]:
    """The first failure, where the whole traceback is, and the command that shows all; empty without one."""
    trial = outcome.first_failure
    error = trial.failure if trial is not None else outcome.error
    if error is None:
        return []
    who = f"trial {trial.trial_id}: " if trial is not None else ""
    lines = [f"  {who}{error.line}"]
    if error.where:
        lines.append(f"  at {error.where}")
    if error.traceback_uri:
        lines.append(f"  traceback: {error.traceback_uri}")
    storage = outcome.uri.rpartition("/")[0]
    where = f" --storage {shlex.quote(storage)}" if storage else ""
    return [*lines, f"  all failures: raysweep trials {outcome.sweep_id} --attempts{where}"]


def is_notebook() -> bool:
    """True if what is printed goes to a cell of a notebook: IPython's kernel is no dependency."""
    return type(sys.stdout).__module__.split(".")[0] == "ipykernel"
