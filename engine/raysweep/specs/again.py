"""A sweep that runs some configs of another one again, each to its full end, with new seeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from raysweep.schedulers import TRAINING_ITERATION, make_scheduler
from raysweep.space.priors import without_priors
from raysweep.space.scales import Scale
from raysweep.specs.sweep import SweepSpec


def run_again(
    spec: SweepSpec,
    configs: Sequence[Mapping[str, Any]],
    seeds: int,
    *,
    name: str,
    scale: Scale,
    seed_param: str | None = None,
    limits: Mapping[str, Any] | None = None,
) -> SweepSpec:
    """The sweep that runs configs again; all of them under each seed, in their order.

    Args:
        spec: Of the sweep that found them.
        configs: At `scale`.
        seeds: How many seeds each gets.
        name: Of the new sweep.
        scale: Of all its trials.
        seed_param: A parameter that gets the seed; default: that of the sweep's repeats.
        limits: How far each trial runs, as `stop.trial`; the spec's own limits win.
    """
    breaker = spec.failure.breaker_trials
    # Each config is judged by itself: one that fails takes the others with it only where all do.
    failure = spec.failure.replace(
        max_failed_fraction=None, breaker_trials=max(breaker, len(configs)) if breaker else 0
    )
    # Where repeats had their seeds from the config, so have these: not that of the best repeat alone.
    seed_param = seed_param or (spec.repeat.seed_param if spec.repeat is not None else None)
    return spec.replace(
        name=name,
        search={"configs": {"configs": list(configs), "seeds": seeds, "seed_param": seed_param}},
        repeat=None,
        scale=dict(scale),
        scales=(),
        # The configs are given: nothing is drawn.
        param_space=without_priors(spec.param_space),
        where=(),
        points=(),
        scheduler="fifo",
        num_samples=len(configs) * seeds,
        # New seeds: others than the sweep's own.
        seed=None,
        warm_start=None,
        stop={
            "trial": {**(limits or {}), **spec.stop.trial},
            "trial_time_s": spec.stop.trial_time_s,
            "grace_s": spec.stop.grace_s,
        },
        failure=failure,
    )


def full_length(spec: SweepSpec, reached: Iterable[Any]) -> dict[str, float]:
    """The scheduler's limit for a trial, as a limit for each trial; empty: it has none.

    Args:
        spec: Of the sweep.
        reached: How far its trials went, for a scheduler of a user's own: this process may lack its class.
    """
    if not spec.scheduler.is_plugin:
        scheduler = make_scheduler(spec)
        return {} if scheduler.max_t is None else {scheduler.time_attr: scheduler.max_t}
    lengths = [float(length) for length in reached if isinstance(length, int | float)]
    return {TRAINING_ITERATION: max(lengths)} if lengths else {}
