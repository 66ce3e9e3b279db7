"""The time of the trials of each proxy scale and of the training, and their cost: by earlier runs.

A scale at which nothing ran yet is priced by how the time of trials grows with the size, as a power of it; by
one known scale, in proportion. Prices are those of the sweep's `stop.cost_per_hour`.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean, median
from typing import Any, Final

from raysweep.outcome import SweepOutcome
from raysweep.pipeline.night_end import times_of
from raysweep.schedulers.base import TRAINING_ITERATION
from raysweep.space.scales import Scale, counts_of, order_of, show_scale
from raysweep.specs import SweepSpec, TrainSpec
from raysweep.specs.trial.resources import resources_of
from raysweep.specs.trial.shape import Bundle

STEEPEST: Final = 2.0
"""The time grows by no more than this power of the size."""


def parts_of(
    spec: SweepSpec, trials: int | None, nights: Sequence[SweepOutcome], step_s: float | None
) -> tuple[dict[str, Any], ...]:
    """The trials of each scale, with the hours and the cost of each part, where known."""
    counts: Sequence[int | None] = (trials,) * len(spec.proxy_scales)
    shares: Sequence[float] = (1.0,) * len(spec.proxy_scales)
    if spec.has_several_scales and spec.num_samples is not None:
        times = spec.repeat.times if spec.repeat is not None else 1
        given = counts_of(spec.scales, spec.num_samples)
        counts = [count * times for count in given]
        shares = [count / spec.num_samples for count in given]
    found = []
    for scale, count, share in zip(spec.proxy_scales, counts, shares, strict=True):
        each_s = _step_time(spec, step_s) if step_s is not None else _trial_s(nights, scale)
        hours = None if each_s is None or count is None else count * each_s / 3600.0
        cost = spec.use_per_slot_hour["cost"] * hours if hours is not None else None
        found.append({"scale": scale, "trials": count, "share": share, "hours": hours, "cost": cost or None})
    return tuple(found)


def show_part(part: Mapping[str, Any]) -> str:
    """`rows=20000: 12 trials, 33%, 1.2 trial-hours, cost 3.60`."""
    count = part["trials"]
    many = "as many trials as there is time for" if count is None else f"{count} trials"
    return f"{show_scale(part['scale'])}: {many}, {part['share']:.0%}{_shown(part, 'trial-hours')}"


def training_price(sweep: SweepSpec, train: TrainSpec, nights: Sequence[SweepOutcome]) -> str:
    """`, 2.1 hours, cost 6.30 (by 3 trainings before)`; empty where nothing says how long it takes.

    Raises: StorageError.
    """
    took = times_of(train)
    scale = {name: train.scale.get(name, value) for name, value in sweep.largest_scale.items()}
    each_s, by = None, f"{len(took)} training{'s' * (len(took) != 1)} before"
    if took:
        each_s = median(took)
    elif scale:
        each_s, by = _trial_s(nights, scale), "trials of earlier nights"
    if each_s is None:
        return ""
    hours = each_s / 3600.0
    prices = {
        "CPU": sweep.stop.cost_per_hour.get("cpu", 0.0),
        "GPU": sweep.stop.cost_per_hour.get("gpu", 0.0),
    }
    prices |= {name: price for name, price in sweep.stop.cost_per_hour.items() if name not in ("cpu", "gpu")}
    total: Bundle = resources_of(train.scaling).shape().total
    cost = hours * sum(amount * prices.get(name, 0.0) for name, amount in total.items())
    return f"{_shown({'hours': hours, 'cost': cost or None}, 'hours')} (by {by})"


def _shown(part: Mapping[str, Any], unit: str) -> str:
    hours, cost = part["hours"], part["cost"]
    if hours is None:
        return ""
    return f", {hours:.3g} {unit}" + (f", cost {cost:.2f}" if cost is not None else "")


def _step_time(spec: SweepSpec, step_s: float) -> float:
    """The time of a trial that makes all its steps; without a `max_t`, a step is all that a trial does."""
    limits = {name: limit for name, limit, *_ in spec.stop.trial_limits}
    steps = spec.scheduler.options.rung_times().max_t or limits.get(TRAINING_ITERATION) or 1
    return step_s * float(steps)


def _trial_s(nights: Sequence[SweepOutcome], scale: Scale) -> float | None:
    """The mean time of an earlier trial at a scale, those included that were stopped."""
    took: dict[tuple[tuple[str, float], ...], list[float]] = {}
    for night in nights:
        for trial in night.trials:
            ran = [each.took_s for each in trial.attempts if each.took_s is not None]
            if ran and trial.scale.keys() == scale.keys():
                took.setdefault(tuple(sorted(trial.scale.items())), []).append(sum(ran))
    known = {each: fmean(times) for each, times in took.items()}
    own = known.get(tuple(sorted(scale.items())))
    if own is not None or not known:
        return own
    points = [(order_of(dict(each))[0], math.log(max(time, 1e-3))) for each, time in known.items()]
    return math.exp(_on_line(points, order_of(scale)[0]))


def _on_line(points: Sequence[tuple[float, float]], at: float) -> float:
    """The value there of the line through points, which rises by 0 to `STEEPEST`."""
    middle, level = fmean(x for x, _ in points), fmean(y for _, y in points)
    spread = sum((x - middle) ** 2 for x, _ in points)
    slope = sum((x - middle) * (y - level) for x, y in points) / spread if spread > 1e-9 else 1.0
    return level + min(max(slope, 0.0), STEEPEST) * (at - middle)
