"""The law of a stored sweep: its trials as `raysweep.transfer` reads them.

A sweep with `warm_start` shares the law with the nights that it began with, which its record names: a resume
has the same law. What lies outside of tonight's space, or has other scales, is left out.
"""

from __future__ import annotations

import logging
import math
from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, Any, Final

from raysweep.errors import SpecError, StorageError
from raysweep.outcome import SweepOutcome, TrialOutcome
from raysweep.runs.across_runs.warm_start import warm_from_json
from raysweep.runs.folder import SweepFolder
from raysweep.search.machinery.warm_start import refit
from raysweep.specs import SweepSpec
from raysweep.storage.objects.opening import open_store
from raysweep.transfer import fit

if TYPE_CHECKING:
    from raysweep.transfer.law import Law

MOST_NIGHTS: Final = 5
MOST_TRIALS: Final = 1000
"""Of earlier nights, the newest."""
log = logging.getLogger("raysweep")


def law_of(sweep: SweepSpec, outcome: SweepOutcome, more: Iterable[Mapping[str, Any]] = ()) -> Law:
    """The law of a sweep's trials, of more, and of the nights before that it began with.

    The cost is linear in trials; of earlier nights these are a bounded number.

    Raises:
        SpecError: They have one scale, or no finite score.
        StorageError: The sweep's record cannot be read.
    """
    if not outcome.metric:
        raise SpecError("transfer", "a law needs a metric, and the sweep has none", "name metric and mode")
    if not sweep.proxy_scales:
        problem = "the sweep names no scale, and a law needs two or more"
        raise SpecError("transfer", problem, "give the sweep scales")
    tonight = [*trials_of(sweep, outcome), *more]
    earlier = islice(_earlier(sweep, outcome), MOST_TRIALS)
    return fit([*tonight, *earlier], space=sweep.parameter_space, mode=outcome.mode)


def _earlier(sweep: SweepSpec, outcome: SweepOutcome) -> Iterator[dict[str, Any]]:
    """The trials of the nights that the sweep began with, the newest night first."""
    storage, _, sweep_id = outcome.uri.rpartition("/")
    if sweep.warm_start is None or not storage:
        return
    store = open_store(storage)
    record = SweepFolder(store, sweep_id).read_spec()
    warm = warm_from_json(record.warm) if record is not None else None
    for ago, name in enumerate(warm.sources[:MOST_NIGHTS] if warm is not None else (), start=1):
        try:
            night = SweepFolder(store, name).read_outcome()
        except StorageError as error:
            log.warning("the law leaves out the night %s: %s", name, error)
            continue
        for trial in trials_of(sweep, night) if night is not None else ():
            if _fits(trial, sweep):
                yield {**trial, "night": ago}


def _fits(trial: Mapping[str, Any], sweep: SweepSpec) -> bool:
    """True if an earlier trial has tonight's scales, and a config of tonight's space."""
    if trial["scale"].keys() != sweep.largest_scale.keys():
        return False
    try:
        refit(sweep.parameter_space, trial["config"])
    except ValueError:
        return False
    return True


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
