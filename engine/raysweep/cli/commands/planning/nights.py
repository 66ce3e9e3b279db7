"""Suggestions from earlier nights of a name, and the expected end of the next one."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Sequence
from typing import Final

from raysweep.documents.json_values import leaves
from raysweep.documents.wall_clock import resolve_deadline
from raysweep.errors import SpecError
from raysweep.estimates import Samples, estimate_new, past_of
from raysweep.estimates.samples import Ran
from raysweep.outcome import SweepOutcome
from raysweep.outcome.estimate import Estimate
from raysweep.runs.reading.past_nights import past_outcomes
from raysweep.schedulers.base import TRAINING_ITERATION
from raysweep.space.domains import Float, Integer
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store

NIGHTS: Final = 3
"""The number of nights that are looked at where that is not said."""
CPU_S: Final = 8.0
_NEAR: Final = 0.02
_EARLY: Final = 0.4
_MIN_TRIALS: Final = 10
_MOST_OF: Final = 2 / 3


def nights_before(spec: SweepSpec, sweep_id: str, count: int | None) -> list[SweepOutcome]:
    """The newest nights of a sweep's name, without this one. Raises: SpecError, StorageError."""
    if count is not None and count < 1:
        raise SpecError("--nights", f"{count} is too few", "give how many earlier nights count, 1 or more")
    return past_outcomes(open_store(spec.storage_path), spec.name, but=sweep_id, last=count or NIGHTS)


def expect(
    spec: SweepSpec,
    nights: Sequence[SweepOutcome],
    *,
    slots: int,
    trials: int | None,
    step_s: float | None,
    now: float | None = None,
) -> Estimate | None:
    """The end of the sweep; `step_s`: the seconds of one report. None: nothing says how long one takes.

    Raises: SpecError: a step that takes no time.
    """
    samples = None
    if step_s is not None:
        if not 0.0 < step_s < math.inf:
            raise SpecError("--step-seconds", f"{step_s:g} is not a duration", "give seconds, such as 30")
        # Without a max_t, a step is all that a trial does.
        samples = Samples(ran=(Ran(reports=1, step_s=step_s, has_returned=not _has_end(spec)),) * 3)
    at = time.time() if now is None else now
    deadline = resolve_deadline(spec.stop.deadline, at)
    return estimate_new(
        spec,
        now=at,
        slots=max(1, slots),
        total=trials,
        past=[past_of(night) for night in nights],
        samples=samples,
        deadline=deadline.isoformat() if deadline is not None else "",
        cpu_s=CPU_S,
    )


def suggestions(spec: SweepSpec, nights: Sequence[SweepOutcome]) -> tuple[str, ...]:
    """The changes that earlier nights suggest; empty where nothing stands out."""
    known = [night for night in nights if night.found_best is not None]
    return (*_unreached(spec, known), *_at_bounds(spec, known), *_plateaus(known)) if known else ()


def _has_end(spec: SweepSpec) -> bool:
    limits = {name for name, *_ in spec.stop.trial_limits}
    return bool(spec.scheduler.options.rung_times().max_t) or TRAINING_ITERATION in limits


def _unreached(spec: SweepSpec, nights: Sequence[SweepOutcome]) -> Iterator[str]:
    times = spec.scheduler.options.rung_times()
    max_t = times.max_t
    if max_t is None or times.attr != TRAINING_ITERATION:
        return
    furthest = max((trial.reports for night in nights for trial in night.trials), default=0)
    if 0 < furthest < max_t:
        yield (
            f"no trial of {_nights(len(nights))} came to max_t: {max_t:g}; the furthest made {furthest}"
            f" reports. With max_t: {furthest} the rungs lie where trials end"
        )


def _at_bounds(spec: SweepSpec, nights: Sequence[SweepOutcome]) -> Iterator[str]:
    for path, domain in spec.space.leaves:
        if not isinstance(domain, Float | Integer):
            continue
        name = ".".join(path)
        configs = [dict(leaves(night.found_best.config)) for night in nights if night.found_best]
        sides = [_side(domain, config.get(name)) for config in configs]
        for side, bound in (("lower", domain.lower), ("upper", domain.upper)):
            count = sides.count(side)
            if count >= max(2, math.ceil(_MOST_OF * len(nights))):
                yield (
                    f"{name}: the best trial of {count} of {_nights(len(nights))} is at the {side} bound"
                    f" {bound:g}: move it"
                )


def _side(domain: Float | Integer, value: object) -> str:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return ""
    low, high = float(domain.lower), float(domain.upper) - (isinstance(domain, Integer) and domain.step == 1)
    at = float(value)
    if domain.log and low > 0 and at > 0:
        low, high, at = math.log(low), math.log(high), math.log(at)
    if high <= low:
        return ""
    place = (at - low) / (high - low)
    return "lower" if place <= _NEAR else "upper" if place >= 1.0 - _NEAR else ""


def _plateaus(nights: Sequence[SweepOutcome]) -> Iterator[str]:
    places = []
    for night in nights:
        ended = sorted((t for t in night.trials if t.ended_at is not None), key=lambda t: t.ended_at or 0.0)
        best = night.found_best
        numbers = [trial.number for trial in ended]
        if best is None or len(ended) < _MIN_TRIALS or best.number not in numbers:
            continue
        places.append(((numbers.index(best.number) + 1) / len(ended), numbers.index(best.number) + 1))
    early = [place for share, place in places if share <= _EARLY]
    if len(early) >= max(2, math.ceil(_MOST_OF * len(nights))):
        yield (
            f"the best trial of {len(early)} of {_nights(len(nights))} was among the first {_EARLY:.0%}"
            f" (number {max(early)} of those that ended, at the latest): fewer num_samples would do"
        )


def _nights(count: int) -> str:
    return f"{count} night{'s' * (count != 1)}"
