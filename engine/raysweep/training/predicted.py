"""A training beside the score that a law predicted of it: the band that ends it, and how it came out."""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Mapping
from typing import Any

from raysweep.outcome.predicted import Predicted
from raysweep.specs import TrainSpec
from raysweep.specs.carried import CarriedConfig
from raysweep.transfer.trials import as_float
from raysweep.transfer.watched import Band, Fall

log = logging.getLogger("raysweep")


def fall_of(spec: TrainSpec) -> Fall:
    """The rule that ends a run below its prediction; one that never does, unless the spec asks."""
    stop, carried = spec.stop.below_prediction, spec.carried
    if stop is None or carried is None:
        return Fall(None)
    steps = stop.steps or carried.steps
    if why := _why_not(carried, steps):
        log.warning("stop.below_prediction ends nothing: %s", why)
        return Fall(None)
    assert carried.score is not None
    assert carried.score_low is not None
    assert carried.score_high is not None
    worse_end = carried.score_high if carried.mode == "min" else carried.score_low
    return Fall(
        Band(
            metric=carried.metric,
            mode=carried.mode,
            score=carried.score,
            width=abs(worse_end - carried.score),
            widths=stop.widths,
            curve=[(part, worse) for part, worse in carried.curve],
            steps=steps,
            reports=stop.reports,
        )
    )


def _why_not(carried: CarriedConfig, steps: int | None) -> str:
    if not carried.is_predicted:
        return f"the law's verdict is {carried.verdict or 'none'}"
    if steps is None:
        return "the trials made different numbers of reports; give stop.below_prediction.steps"
    return ""


def predicted_of(
    carried: CarriedConfig | None, reports: Iterable[Mapping[str, Any]], metrics: Mapping[str, Any]
) -> Predicted | None:
    """The law's score beside the run's; None where no law predicted one.

    Args:
        carried: How the config was carried.
        reports: The metrics of each report, oldest first.
        metrics: Those that the run ended with.
    """
    if carried is None or carried.score is None or not carried.metric:
        return None
    values = [as_float(each.get(carried.metric)) for each in (*reports, metrics)]
    known = [value for value in values if value is not None]
    finite = [value for value in known if math.isfinite(value)]
    got = known[-1] if known and carried.score_of == "last" else None
    if carried.score_of == "best" and finite:
        got = min(finite) if carried.mode == "min" else max(finite)
    return Predicted(
        metric=carried.metric,
        mode=carried.mode,
        score=carried.score,
        low=carried.score_low,
        high=carried.score_high,
        got=got if got is not None and math.isfinite(got) else None,
    )
