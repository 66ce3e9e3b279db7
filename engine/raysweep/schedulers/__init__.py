"""Schedulers: pure policies that turn reports into verdicts on trials."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from raysweep.schedulers.asha import AshaScheduler
from raysweep.schedulers.base import (
    NOTHING,
    TRAINING_ITERATION,
    Decisions,
    Exploit,
    Move,
    Pause,
    Resize,
    Resume,
    Scheduler,
    Stop,
    Verdict,
    pauses_again,
    tell_end,
    tell_report,
)
from raysweep.schedulers.dehb import DehbScheduler
from raysweep.schedulers.fifo import FifoScheduler
from raysweep.schedulers.freeze_thaw import FreezeThawScheduler
from raysweep.schedulers.hyperband import HyperBandScheduler
from raysweep.schedulers.judge import Judge, load_judge, make_judge
from raysweep.schedulers.median import MedianScheduler
from raysweep.schedulers.moasha import MoashaScheduler
from raysweep.schedulers.pasha import PashaScheduler
from raysweep.schedulers.pb2 import Pb2Scheduler
from raysweep.schedulers.pbt import PbtScheduler, Population
from raysweep.schedulers.plugin import PLUGINS, PluginScheduler
from raysweep.schedulers.promotion import PromotionScheduler
from raysweep.schedulers.resource_changing import ResourceChangingScheduler
from raysweep.space.amounts import parse_amount
from raysweep.space.parsed import parse_where
from raysweep.space.perturbation import bounded_leaves, mutable_leaves
from raysweep.specs.plugins import PolicySetup
from raysweep.specs.schedulers import (
    AshaOptions,
    DehbOptions,
    FifoOptions,
    FreezeThawOptions,
    HyperbandOptions,
    MedianStoppingOptions,
    MoashaOptions,
    PashaOptions,
    Pb2Options,
    PbtOptions,
    ResourceChangingOptions,
)
from raysweep.specs.sweep import SweepSpec

__all__ = [
    "NOTHING",
    "TRAINING_ITERATION",
    "AshaScheduler",
    "Decisions",
    "DehbScheduler",
    "Exploit",
    "FifoScheduler",
    "FreezeThawScheduler",
    "HyperBandScheduler",
    "Judge",
    "MedianScheduler",
    "MoashaScheduler",
    "Move",
    "PashaScheduler",
    "Pause",
    "Pb2Scheduler",
    "PbtScheduler",
    "PolicySetup",
    "Population",
    "PromotionScheduler",
    "Resize",
    "ResourceChangingScheduler",
    "Resume",
    "Scheduler",
    "Stop",
    "Verdict",
    "load_scheduler",
    "make_judge",
    "make_scheduler",
    "pauses_again",
    "tell_end",
    "tell_report",
]


def load_scheduler(spec: SweepSpec) -> None:
    """Import what decides about trials in this spec, and is the user's own.

    That is the class of its scheduler, and the function of `stop.trial_if`.

    Raises:
        SpecError: it cannot be imported, is no scheduler, its options do not fit, or its state is not JSON.
    """
    load_judge(spec)
    if spec.scheduler.is_plugin:
        PLUGINS.load(spec.scheduler.kind)
        scheduler = make_scheduler(spec)
        scheduler.from_json(scheduler.to_json())


def make_scheduler(spec: SweepSpec, seed: int | None = None) -> Scheduler:
    """Return the scheduler that a spec asks for, without any trial.

    Args:
        spec: the sweep's spec.
        seed: the seed that the sweep runs with; default `spec.seed`, or 0.

    Raises:
        SpecError: it is of a class that was not loaded, or that does not take these options.
    """
    seed = seed if seed is not None else spec.seed or 0
    setup = PolicySetup(
        mode=spec.compared[1],
        seed=seed,
        param_space=spec.param_space,
        where=spec.where,
        modes=tuple(spec.objectives.values()),
    )
    make = _KINDS.get(spec.scheduler.kind)
    return make(spec.scheduler.options, setup) if make is not None else PluginScheduler(spec.scheduler, setup)


def _make_fifo(options: FifoOptions, setup: PolicySetup) -> Scheduler:
    return FifoScheduler()


def _make_asha(options: AshaOptions, setup: PolicySetup) -> Scheduler:
    make: Callable[..., Scheduler] = AshaScheduler
    if options.type == "promotion":
        make = partial(PromotionScheduler, delayed=options.delayed)
    return make(
        mode=setup.mode,
        max_t=options.max_t,
        grace_period=options.grace_period,
        reduction_factor=options.reduction_factor,
        brackets=options.brackets,
        seed=setup.seed,
        time_attr=options.time_attr,
    )


def _make_pasha(options: PashaOptions, setup: PolicySetup) -> Scheduler:
    return PashaScheduler(
        mode=setup.mode,
        max_t=options.max_t,
        grace_period=options.grace_period,
        reduction_factor=options.reduction_factor,
        time_attr=options.time_attr,
        delayed=options.delayed,
    )


def _make_moasha(options: MoashaOptions, setup: PolicySetup) -> Scheduler:
    return MoashaScheduler(
        modes=setup.modes,
        max_t=options.max_t,
        grace_period=options.grace_period,
        reduction_factor=options.reduction_factor,
        brackets=options.brackets,
        seed=setup.seed,
        time_attr=options.time_attr,
    )


def _make_median(options: MedianStoppingOptions, setup: PolicySetup) -> Scheduler:
    return MedianScheduler(
        mode=setup.mode,
        grace_period=options.grace_period,
        min_samples_required=options.min_samples_required,
        hard_stop=options.hard_stop,
        time_attr=options.time_attr,
    )


def _make_hyperband(options: HyperbandOptions, setup: PolicySetup) -> Scheduler:
    return HyperBandScheduler(
        mode=setup.mode,
        max_t=options.max_t,
        reduction_factor=options.reduction_factor,
        time_attr=options.time_attr,
    )


def _make_dehb(options: DehbOptions, setup: PolicySetup) -> Scheduler:
    return DehbScheduler(
        max_t=options.max_t, reduction_factor=options.reduction_factor, time_attr=options.time_attr
    )


def _make_freeze_thaw(options: FreezeThawOptions, setup: PolicySetup) -> Scheduler:
    return FreezeThawScheduler(
        mode=setup.mode,
        max_t=options.max_t,
        grace_period=options.grace_period,
        interval=options.interval,
        basket=options.basket,
        time_attr=options.time_attr,
    )


def _make_pbt(options: PbtOptions, setup: PolicySetup) -> Scheduler:
    population = Population(
        perturbation_interval=options.perturbation_interval,
        burn_in_period=options.burn_in_period,
        quantile_fraction=options.quantile_fraction,
        resample_probability=options.resample_probability,
        perturbation_factors=options.perturbation_factors,
        synch=options.synch,
        leaves=mutable_leaves(setup.param_space, options.hyperparam_mutations),
        where=parse_where(setup.where, setup.param_space),
    )
    return PbtScheduler(
        mode=setup.mode,
        population=population,
        max_t=options.max_t,
        seed=setup.seed,
        time_attr=options.time_attr,
    )


def _make_pb2(options: Pb2Options, setup: PolicySetup) -> Scheduler:
    population = Population(
        perturbation_interval=options.perturbation_interval,
        quantile_fraction=options.quantile_fraction,
        synch=options.synch,
        where=parse_where(setup.where, setup.param_space),
    )
    return Pb2Scheduler(
        mode=setup.mode,
        population=population,
        leaves=bounded_leaves(setup.param_space, options.hyperparam_bounds),
        max_t=options.max_t,
        seed=setup.seed,
        time_attr=options.time_attr,
    )


def _make_resource_changing(options: ResourceChangingOptions, setup: PolicySetup) -> Scheduler:
    return ResourceChangingScheduler(
        base=_KINDS[options.base.kind](options.base.options, setup),
        param=parse_amount(options.param).names[0],
        total=options.total,
        most=options.most,
        interval=options.interval,
    )


_KINDS: Final[dict[str, Callable[[Any, PolicySetup], Scheduler]]] = {
    "fifo": _make_fifo,
    "asha": _make_asha,
    "pasha": _make_pasha,
    "moasha": _make_moasha,
    "median_stopping": _make_median,
    "hyperband": _make_hyperband,
    "dehb": _make_dehb,
    "freeze_thaw": _make_freeze_thaw,
    "pbt": _make_pbt,
    "pb2": _make_pb2,
    "resource_changing": _make_resource_changing,
}
