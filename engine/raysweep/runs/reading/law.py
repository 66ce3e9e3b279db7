"""The law of a stored sweep: its trials as `raysweep.transfer` reads them."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any

from raysweep.errors import SpecError
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.specs import SweepSpec
from raysweep.transfer import fit

if TYPE_CHECKING:
    from raysweep.transfer.law import Law


def law_of(sweep: SweepSpec, outcome: SweepOutcome, more: Iterable[Mapping[str, Any]] = ()) -> Law:
    """The law of a sweep's trials, and of more. Raises SpecError: They have one scale, or no finite score."""
    if not outcome.metric:
        raise SpecError("transfer", "a law needs a metric, and the sweep has none", "name metric and mode")
    if not sweep.proxy_scales:
        problem = "the sweep names no scale, and a law needs two or more"
        raise SpecError("transfer", problem, "give the sweep scales")
    space = sweep.parameter_space
    return fit([*trials_of(sweep, outcome), *more], space=space, mode=outcome.mode)


def trials_of(
    sweep: SweepSpec, outcome: SweepOutcome, *, seed_param: str | None = None
) -> Iterable[dict[str, Any]]:
    """The trials as a law reads them: those that have a scale, and ran.

    Args:
        sweep: The spec of the sweep that found the configs.
        outcome: Its outcome, or that of a sweep that ran them again.
        seed_param: What has the seed in their configs; default: as the sweep's repeats have it.
    """
    time_attr = getattr(sweep.scheduler.options, "time_attr", "training_iteration")
    seed = seed_param or (sweep.repeat.seed_param if sweep.repeat is not None else None)
    for trial in outcome.trials:
        if not trial.scale or trial.state in ("pending", "running"):
            continue
        step = trial.metrics.get(time_attr)
        is_known = isinstance(step, int | float) and not isinstance(step, bool) and 0 < step < math.inf
        yield {
            "scale": trial.scale,
            "config": {
                name: value
                for name, value in trial.config.items()
                if name not in trial.scale and name != seed
            },
            "score": _score(trial, outcome.metric),
            "status": "completed" if trial.state in ("completed", "failed") else "stopped",
            **({"step": step} if is_known else {}),
        }


def _score(trial: TrialOutcome, metric: str) -> float | None:
    """Infinite where the config is bad: it diverged, or breaks a constraint; None: nothing is known."""
    last = trial.metrics.get(metric)
    has_diverged = isinstance(last, float) and not math.isfinite(last)
    if has_diverged or (trial.failure is not None and trial.failure.kind == "non_finite"):
        return math.inf
    if trial.score is not None and not trial.is_feasible:
        return math.inf
    return None if trial.state == "failed" else trial.score
