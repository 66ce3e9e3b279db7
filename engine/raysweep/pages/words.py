"""The outcome of a sweep in sentences: what ended it, what is best, and how sure that is."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Final

from raysweep.documents.json_values import leaves
from raysweep.numeric.shown import show_number
from raysweep.outcome import TrialOutcome
from raysweep.outcome.showing.formatting import show_counts, show_duration
from raysweep.runs.reading.whole_sweep import WholeSweep
from raysweep.space.domains import Domain, Float, Integer
from raysweep.space.perturbation import mutable_leaves

NEAR: Final = 0.02
"""A value this near to an end of its range, as a share of the range, counts as at its end."""
_CLOSE: Final = 0.01


def verdict(whole: WholeSweep) -> str:
    """The verdict on the sweep, or the training, in a sentence or two."""
    status = whole.status
    what = "training" if status.kind == "train" else "sweep"
    counts = show_counts(status.counts, status.num_trials)
    if status.has_ended:
        took = f" after {show_duration(status.elapsed_s)}" if status.elapsed_s is not None else ""
        head = {
            "completed": f"The {what} completed",
            "target": f"The {what} reached its target",
            "plateau": f"The {what} ended because its results no longer improved",
            "deadline": "The deadline ended the sweep",
            "budget": "A budget ended the sweep",
            "cancelled": f"The {what} was cancelled",
            "failed": f"The {what} failed",
        }.get(status.status, f"The {what} ended: {status.status}")
        reason = f" {sentence(status.reason)}" if status.reason else ""
        return f"{head}{took}: {counts}.{reason}"
    if status.is_running:
        return f"The {what} is running: {counts}."
    if status.why:
        return f"The {what} came to its end, but its outcome was not stored; resuming it does so: {counts}."
    return f"The {what} has not ended, and no process runs it: {counts}."


def certainty(whole: WholeSweep, ranked: Sequence[TrialOutcome]) -> list[str]:
    """The known facts about the worth of the best result; a sentence each, the most telling first.

    Args:
        whole: The sweep.
        ranked: Its trials that have a score, the best first.
    """
    return list(_certainty(whole, ranked))


def _certainty(whole: WholeSweep, ranked: Sequence[TrialOutcome]) -> Iterator[str]:
    status, outcome = whole.status, whole.outcome
    best = status.best
    if status.gate is not None:
        promoted = "promoted" if status.gate.promoted else "not promoted"
        yield f"Gate: {promoted}. {sentence(status.gate.why)}"
    if status.infeasible:
        yield sentence(status.infeasible)
    if best is None or not status.metric:
        return
    if outcome is not None and outcome.configs:
        yield from _repeats(whole)
    elif not status.others:
        yield from _lead(whole, ranked, best)
    if status.others:
        front = _many(status.pareto_size, "trial")
        yield f"{front} on the Pareto front: no trial is better in one metric and no worse in the others."
    if status.constraints:
        feasible = sum(trial.is_feasible for trial in ranked)
        yield f"{feasible} of {len(ranked)} trials with a score satisfy {' and '.join(status.constraints)}."
    yield from _ends_of_ranges(whole, best)


def _repeats(whole: WholeSweep) -> Iterator[str]:
    assert whole.outcome is not None
    first, *others = whole.outcome.configs
    spread = f" ± {show_number(first.std)} (standard deviation)" if first.std is not None else ""
    times = _many(first.completed, "repeat")
    yield f"The best config has a mean of {show_number(first.mean)}{spread} over {times}."
    second = others[0] if others else None
    if second is None:
        return
    lead = abs(first.mean - second.mean)
    text = f"The next config is {show_number(lead)} behind" if lead else "The next config has the same mean"
    if not first.std or not lead:
        yield f"{text}."
    elif lead <= first.std:
        yield f"{text}, less than one standard deviation: the two may be equally good."
    else:
        yield f"{text}, {lead / first.std:.1f} standard deviations."


def _lead(whole: WholeSweep, ranked: Sequence[TrialOutcome], best: TrialOutcome) -> Iterator[str]:
    scores = [trial.score for trial in ranked if trial.is_feasible and trial.score is not None]
    if best.score is None or len(scores) < 2:
        return
    lead = abs(scores[0] - scores[1])
    spread = abs(scores[0] - scores[len(scores) // 2])
    near = sum(abs(scores[0] - score) <= _CLOSE * spread for score in scores) - 1 if spread else 0
    text = (
        f"The next best trial is {show_number(lead)} behind" if lead else "Another trial has the same score"
    )
    if near > 1:
        text += f"; {near} trials are within 1 % of the distance to the median"
    yield f"{text}. Each config ran once, so chance is not measured; repeat: 3 in the spec measures it."


def _ends_of_ranges(whole: WholeSweep, best: TrialOutcome) -> Iterator[str]:
    values = {tuple(path.split(".")): value for path, value in leaves(best.config)}
    for path, domain in _domains(whole):
        value = values.get(path)
        end = _end_of(domain, value)
        if end is not None:
            name = ".".join(path)
            text = f"{name} = {show_number(value)} of the best trial is at the {end} end of its range"
            yield f"{text}: a wider range may have a better value."


def _domains(whole: WholeSweep) -> Sequence[tuple[tuple[str, ...], Domain]]:
    try:
        return mutable_leaves(whole.spec.param_space)
    except (KeyError, ValueError):
        return ()


def _end_of(domain: Domain, value: object) -> str | None:
    if (
        not isinstance(domain, Float | Integer)
        or isinstance(value, bool)
        or not isinstance(value, int | float)
    ):
        return None
    low, high, at = float(domain.lower), float(domain.upper), float(value)
    if isinstance(domain, Integer) and high - low < 10:
        return None  # of few values, one at the end says little
    if domain.log and low > 0 and at > 0:
        low, high, at = math.log(low), math.log(high), math.log(at)
    if high <= low:
        return None
    share = (at - low) / (high - low)
    return "lower" if share <= NEAR else "upper" if share >= 1 - NEAR else None


def _many(count: int, what: str) -> str:
    return f"1 {what}" if count == 1 else f"{count} {what}s"


def sentence(text: str) -> str:
    """A text with a capital and a full stop; empty where it is."""
    text = text.strip()
    if not text:
        return ""
    return text[0].upper() + text[1:] + ("" if text[-1] in ".!?" else ".")
